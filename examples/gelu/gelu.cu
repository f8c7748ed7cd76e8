// GELU in FP16, in the form with tanh:
//
//   y = x / 2 * (1 + tanh(u)) = x / (1 + exp(-2 u)),  u = sqrt(2 / pi) * (x + 0.044715 x^3)
//
// The right side needs no tanh and keeps its relative accuracy where tanh(u) is close to -1.
//
// A grid-stride loop over chunks of 8 halves, 16 bytes: BLOCKS and THREADS may be anything. The
// first threads take the n % 8 elements behind the last whole chunk.
#include <cuda_fp16.h>

namespace {

constexpr int kWidth = 8;  // halves in a chunk

struct alignas(16) Chunk {
  __half h[kWidth];
};

__device__ __half gelu_of(__half half) {
  const float x = __half2float(half);
  const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
  return __float2half(__fdividef(x, 1 + __expf(-2 * u)));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
gelu(const __half* x,  // (n)
     __half* y,        // (n)
     int n) {
  const int chunks = n / kWidth, thread = blockIdx.x * THREADS + threadIdx.x;
  for (int c = thread; c < chunks; c += gridDim.x * THREADS) {
    Chunk chunk = reinterpret_cast<const Chunk*>(x)[c];
    for (int i = 0; i < kWidth; i++) chunk.h[i] = gelu_of(chunk.h[i]);
    reinterpret_cast<Chunk*>(y)[c] = chunk;
  }
  const int i = chunks * kWidth + thread;
  if (i < n) y[i] = gelu_of(x[i]);
}
