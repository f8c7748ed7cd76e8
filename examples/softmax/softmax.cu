// Softmax of rows in FP16: y = exp(x - max(x)) / sum(exp(x - max(x))). One block per row.
//
//   1. Each thread loads its chunks of 8 halves, 16 bytes, into registers. Warp shuffles give the
//      maximum of the warp's elements.
//   2. Each thread replaces its elements by their exponentials, relative to the maximum of the
//      warp. Warp shuffles add them up.
//   3. The warps exchange their maxima and sums through shared memory. Both together give the
//      maximum and the sum of the row, so that one barrier is enough.
//   4. Each thread scales its exponentials and stores them.
//
// x is read from memory once: the kernel moves 4 bytes per element. The first CHUNKS chunks of a
// thread stay in registers; chunks beyond THREADS * CHUNKS are read again in steps 2 and 4. If n is
// not a multiple of 8, rows are not aligned to 16 bytes and a chunk is one half.
#include <cuda_fp16.h>

namespace {

constexpr int kWarps = THREADS / 32;
constexpr float kLowest = -1e30f;  // below every half; not -inf, because -inf - -inf is NaN

// PTX ISA "ex2": 2^x, within 2 ulp.
__device__ float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ float exp_approx(float x) { return ex2_approx_ftz(1.44269504f * x); }

// kWidth halves of a row. A copy is one load or store.
template <int kWidth>
struct alignas(2 * kWidth) Chunk {
  __half h[kWidth];
};

// The elements of a chunk while they are computed with. The exponential of an element that was not
// loaded is 0.
template <int kWidth>
struct Elements {
  float v[kWidth];

  __device__ Elements() {
    for (int i = 0; i < kWidth; i++) v[i] = -INFINITY;
  }
  // By value: of a reference to global memory it would load each half by itself.
  __device__ explicit Elements(Chunk<kWidth> x) {
    for (int i = 0; i < kWidth; i++) v[i] = __half2float(x.h[i]);
  }
  __device__ float max(float other) const {
    for (int i = 0; i < kWidth; i++) other = fmaxf(other, v[i]);
    return other;
  }
  __device__ float sum() const {
    float sum = 0;
    for (int i = 0; i < kWidth; i++) sum += v[i];
    return sum;
  }
  __device__ Elements exp(float max) const {
    Elements e;
    for (int i = 0; i < kWidth; i++) e.v[i] = exp_approx(v[i] - max);
    return e;
  }
  __device__ Chunk<kWidth> times(float scale) const {
    Chunk<kWidth> y;
    for (int i = 0; i < kWidth; i++) y.h[i] = __float2half(v[i] * scale);
    return y;
  }
};

__device__ float warp_max(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, lane));
  return value;
}

__device__ float warp_sum(float value) {
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
}

// The factor that turns exponentials relative to the maximum of the warp, which add up to `sum`,
// into the softmax of the row.
__device__ float scale_of_warp(float max, float sum) {
  __shared__ float maxima[kWarps], sums[kWarps];
  if (threadIdx.x % 32 == 0) {
    maxima[threadIdx.x / 32] = max;
    sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  float row_max = kLowest, row_sum = 0;
  for (int warp = 0; warp < kWarps; warp++) row_max = fmaxf(row_max, maxima[warp]);
  for (int warp = 0; warp < kWarps; warp++) row_sum += sums[warp] * exp_approx(maxima[warp] - row_max);
  return exp_approx(max - row_max) / row_sum;
}

template <int kWidth>
__device__ void softmax_of_row(const __half* row, __half* out, int n) {
  using Part = Elements<kWidth>;
  const auto* x = reinterpret_cast<const Chunk<kWidth>*>(row);
  auto* y = reinterpret_cast<Chunk<kWidth>*>(out);
  const int chunks = n / kWidth, first = threadIdx.x, rest = first + CHUNKS * THREADS;

  Part kept[CHUNKS];
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const int c = first + i * THREADS;
    if (c < chunks) kept[i] = Part(x[c]);
  }
  float max = kLowest;
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) max = kept[i].max(max);
#pragma unroll 1
  for (int c = rest; c < chunks; c += THREADS) max = Part(x[c]).max(max);
  max = warp_max(max);

  float sum = 0;
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    kept[i] = kept[i].exp(max);
    sum += kept[i].sum();
  }
#pragma unroll 1
  for (int c = rest; c < chunks; c += THREADS) sum += Part(x[c]).exp(max).sum();

  const float scale = scale_of_warp(max, warp_sum(sum));

#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    const int c = first + i * THREADS;
    if (c < chunks) y[c] = kept[i].times(scale);
  }
#pragma unroll 1
  for (int c = rest; c < chunks; c += THREADS) y[c] = Part(x[c]).exp(max).times(scale);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
softmax(const __half* x,  // (rows, n)
        __half* y,        // (rows, n)
        int n) {
  const size_t start = size_t(blockIdx.x) * n;
  if (n % 8 == 0) {
    softmax_of_row<8>(x + start, y + start, n);
  } else {
    softmax_of_row<1>(x + start, y + start, n);
  }
}
