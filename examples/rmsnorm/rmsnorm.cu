// RMSNorm of rows in FP16: y = x / sqrt(mean(x^2) + eps) * w. One block per row.
//
//   1. Each thread loads its chunks of 8 halves, 16 bytes, into registers and sums the squares.
//   2. Warp shuffles, then one exchange through shared memory, add up the threads' sums.
//   3. Each thread scales its chunks and stores them.
//
// x is read from memory once: the kernel moves 4 bytes per element. The first CHUNKS chunks of a
// thread stay in registers. Chunks beyond THREADS * CHUNKS are read again in step 3. If n is not a
// multiple of 8, rows are not aligned to 16 bytes and chunks are read element by element.
#include <cuda_fp16.h>

namespace {

constexpr int kWidth = 8;  // halves in a chunk

struct alignas(16) Chunk {
  __half h[kWidth];
};

// Loads chunk `c` of a row. Elements beyond n are 0.
__device__ Chunk load(const __half* row, int c, int n) {
  if (n % kWidth == 0) return *reinterpret_cast<const Chunk*>(row + kWidth * c);
  Chunk chunk = {};
  for (int i = 0; i < kWidth; i++) {
    if (kWidth * c + i < n) chunk.h[i] = row[kWidth * c + i];
  }
  return chunk;
}

// Stores chunk `c` of a row, without the elements beyond n.
__device__ void store(__half* row, int c, int n, const Chunk& chunk) {
  if (n % kWidth == 0) {
    *reinterpret_cast<Chunk*>(row + kWidth * c) = chunk;
    return;
  }
  for (int i = 0; i < kWidth; i++) {
    if (kWidth * c + i < n) row[kWidth * c + i] = chunk.h[i];
  }
}

__device__ float sum_of_squares(const Chunk& x) {
  float sum = 0;
  for (int i = 0; i < kWidth; i++) sum += __half2float(x.h[i]) * __half2float(x.h[i]);
  return sum;
}

__device__ Chunk scaled(const Chunk& x, const Chunk& w, float scale) {
  Chunk y;
  for (int i = 0; i < kWidth; i++) y.h[i] = __float2half(__half2float(x.h[i]) * scale * __half2float(w.h[i]));
  return y;
}

// Adds up the values of all threads of the block. Every thread gets the sum.
__device__ float block_sum(float value) {
  __shared__ float warps[THREADS / 32];
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < THREADS / 32; warp++) sum += warps[warp];
  return sum;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
rmsnorm(const __half* x,  // (rows, n)
        const __half* w,  // (n)
        __half* y,        // (rows, n)
        int n, float eps) {
  const size_t row = blockIdx.x;
  const int chunks = (n + kWidth - 1) / kWidth, first = threadIdx.x;
  x += row * n;
  y += row * n;

  Chunk kept[CHUNKS];
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const int c = first + i * THREADS;
    kept[i] = c < chunks ? load(x, c, n) : Chunk{};
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) sum += sum_of_squares(kept[i]);
  for (int c = first + CHUNKS * THREADS; c < chunks; c += THREADS) sum += sum_of_squares(load(x, c, n));

  const float scale = rsqrtf(block_sum(sum) / n + eps);

#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const int c = first + i * THREADS;
    if (c < chunks) store(y, c, n, scaled(kept[i], load(w, c, n), scale));
  }
  for (int c = first + CHUNKS * THREADS; c < chunks; c += THREADS) {
    store(y, c, n, scaled(load(x, c, n), load(w, c, n), scale));
  }
}
