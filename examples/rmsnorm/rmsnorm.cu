// RMSNorm of rows in FP16: y = x / sqrt(mean(x^2) + eps) * w. One block per row.
//
//   1. Each thread loads its chunks of 8 halves, 16 bytes, into registers and sums the squares.
//      With EARLY_WEIGHTS it loads w too, whose latency then overlaps with step 2.
//   2. Warp shuffles, then one exchange through shared memory, add up the threads' sums.
//   3. Each thread scales its chunks and stores them.
//
// x is read from memory once: the kernel moves 4 bytes per element. The first CHUNKS chunks of a
// thread stay in registers; chunks beyond THREADS * CHUNKS are read again in step 3. If n is not a
// multiple of 8, rows are not aligned to 16 bytes and a chunk is one half.
#include <cuda_fp16.h>

namespace {

// kWidth halves of a row. A copy is one load or store. Functions take chunks by value: of a
// reference to global memory they would load each half by itself.
template <int kWidth>
struct alignas(2 * kWidth) Chunk {
  __half h[kWidth];
};

template <int kWidth>
__device__ float sum_of_squares(Chunk<kWidth> x) {
  float sum = 0;
  for (int i = 0; i < kWidth; i++) sum += __half2float(x.h[i]) * __half2float(x.h[i]);
  return sum;
}

template <int kWidth>
__device__ Chunk<kWidth> scaled(Chunk<kWidth> x, Chunk<kWidth> w, float scale) {
  Chunk<kWidth> y;
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

template <int kWidth>
__device__ void normalise(const __half* row, const __half* weights, __half* out, int n, float eps) {
  using Part = Chunk<kWidth>;
  const Part* x = reinterpret_cast<const Part*>(row);
  const Part* w = reinterpret_cast<const Part*>(weights);
  Part* y = reinterpret_cast<Part*>(out);
  const int chunks = n / kWidth, first = threadIdx.x, rest = first + CHUNKS * THREADS;

  Part kept[CHUNKS], weights_kept[CHUNKS];
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const int c = first + i * THREADS;
    kept[i] = c < chunks ? x[c] : Part{};
  }
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const int c = first + i * THREADS;
    if (EARLY_WEIGHTS && c < chunks) weights_kept[i] = w[c];
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) sum += sum_of_squares(kept[i]);
#pragma unroll 1
  for (int c = rest; c < chunks; c += THREADS) sum += sum_of_squares(x[c]);

  const float scale = rsqrtf(block_sum(sum) / n + eps);

#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const int c = first + i * THREADS;
    if (c < chunks) y[c] = scaled(kept[i], EARLY_WEIGHTS ? weights_kept[i] : w[c], scale);
  }
#pragma unroll 1
  for (int c = rest; c < chunks; c += THREADS) y[c] = scaled(x[c], w[c], scale);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
rmsnorm(const __half* x,  // (rows, n)
        const __half* w,  // (n)
        __half* y,        // (rows, n)
        int n, float eps) {
  const size_t start = size_t(blockIdx.x) * n;
  if (n % 8 == 0) {
    normalise<8>(x + start, w, y + start, n, eps);
  } else {
    normalise<1>(x + start, w, y + start, n, eps);
  }
}
