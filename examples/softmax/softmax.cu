// Softmax of rows in FP16: y = exp(x - max(x)) / sum(exp(x - max(x))). One block per row.
//
//   1. Each thread loads its chunks of 8 halves, 16 bytes, into registers and takes their maximum.
//   2. Warp shuffles, then one exchange through shared memory, give the maximum of the row.
//   3. Each thread replaces its elements by their exponentials; the same exchange adds them up.
//   4. Each thread divides by the sum and stores.
//
// x is read from memory once: the kernel moves 4 bytes per element. The first CHUNKS chunks of a
// thread stay in registers. Chunks beyond THREADS * CHUNKS are read again in steps 3 and 4. If n is
// not a multiple of 8, rows are not aligned to 16 bytes and chunks are read element by element.
#include <cuda_fp16.h>

namespace {

constexpr int kWidth = 8;  // halves in a chunk
constexpr float kLog2E = 1.44269504f;

// 8 halves of a row, as they are in memory.
struct alignas(16) Chunk {
  __half h[kWidth];
};

// 8 elements of a row while they are computed with.
struct Elements {
  float v[kWidth];
};

// Loads chunk `c` of a row. Elements beyond n are -inf, so that their exponentials are 0.
__device__ Elements load(const __half* row, int c, int n) {
  Elements x;
  if (n % kWidth == 0 && c < n / kWidth) {
    const Chunk chunk = *reinterpret_cast<const Chunk*>(row + kWidth * c);
    for (int i = 0; i < kWidth; i++) x.v[i] = __half2float(chunk.h[i]);
  } else {
    for (int i = 0; i < kWidth; i++) x.v[i] = kWidth * c + i < n ? __half2float(row[kWidth * c + i]) : -INFINITY;
  }
  return x;
}

// Stores chunk `c` of a row, without the elements beyond n.
__device__ void store(__half* row, int c, int n, const Elements& y) {
  Chunk chunk;
  for (int i = 0; i < kWidth; i++) chunk.h[i] = __float2half(y.v[i]);
  if (n % kWidth == 0) {
    *reinterpret_cast<Chunk*>(row + kWidth * c) = chunk;
    return;
  }
  for (int i = 0; i < kWidth; i++) {
    if (kWidth * c + i < n) row[kWidth * c + i] = chunk.h[i];
  }
}

// PTX ISA "ex2": 2^x, within 2 ulp.
__device__ float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// exp(x - max). `offset` is -max * log2(e).
__device__ Elements exponentials(const Elements& x, float offset) {
  Elements e;
  for (int i = 0; i < kWidth; i++) e.v[i] = ex2_approx_ftz(fmaf(x.v[i], kLog2E, offset));
  return e;
}

__device__ Elements scaled(const Elements& x, float scale) {
  Elements y;
  for (int i = 0; i < kWidth; i++) y.v[i] = x.v[i] * scale;
  return y;
}

struct Max {
  static constexpr float kIdentity = -INFINITY;
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Sum {
  static constexpr float kIdentity = 0;
  __device__ float operator()(float a, float b) const { return a + b; }
};

template <class Op>
__device__ float reduce(const Elements& x) {
  float result = x.v[0];
  for (int i = 1; i < kWidth; i++) result = Op()(result, x.v[i]);
  return result;
}

// Combines the values of all threads of the block. Every thread gets the result. Two calls need
// different `warps`: a slow warp may still read the first result while a fast one writes its
// second.
template <class Op>
__device__ float block_reduce(float value, float (&warps)[THREADS / 32]) {
  for (int lane = 16; lane > 0; lane /= 2) value = Op()(value, __shfl_xor_sync(~0u, value, lane));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float result = Op::kIdentity;
  for (int warp = 0; warp < THREADS / 32; warp++) result = Op()(result, warps[warp]);
  return result;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const __half* x,  // (rows, n)
        __half* y,        // (rows, n)
        int n) {
  __shared__ float maxima[THREADS / 32], sums[THREADS / 32];
  const int chunks = (n + kWidth - 1) / kWidth, first = threadIdx.x, rest = first + CHUNKS * THREADS;
  x += size_t(blockIdx.x) * n;
  y += size_t(blockIdx.x) * n;

  Elements kept[CHUNKS];
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) kept[i] = load(x, first + i * THREADS, n);

  float max = -INFINITY;
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) max = fmaxf(max, reduce<Max>(kept[i]));
  for (int c = rest; c < chunks; c += THREADS) max = fmaxf(max, reduce<Max>(load(x, c, n)));
  const float offset = -kLog2E * block_reduce<Max>(max, maxima);

  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    kept[i] = exponentials(kept[i], offset);
    sum += reduce<Sum>(kept[i]);
  }
  for (int c = rest; c < chunks; c += THREADS) sum += reduce<Sum>(exponentials(load(x, c, n), offset));
  const float scale = 1 / block_reduce<Sum>(sum, sums);

#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const int c = first + i * THREADS;
    if (c < chunks) store(y, c, n, scaled(kept[i], scale));
  }
  for (int c = rest; c < chunks; c += THREADS) store(y, c, n, scaled(exponentials(load(x, c, n), offset), scale));
}
