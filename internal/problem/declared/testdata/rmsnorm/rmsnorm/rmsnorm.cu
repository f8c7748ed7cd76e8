#include <cuda_fp16.h>

#include "warp.cuh"

// One block normalises one row.
extern "C" __global__ void rmsnorm(const __half *x, const __half *w, __half *y, int n, float eps) {
  extern __shared__ float partial[];
  const __half *row = x + blockIdx.x * n;
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const float value = __half2float(row[i]);
    sum += value * value;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < THREADS / 32; i++) total += partial[i];
  const float scale = rsqrtf(total / n + eps);
  for (int i = threadIdx.x; i < n; i += THREADS) {
    y[blockIdx.x * n + i] = __float2half(__half2float(row[i]) * scale * __half2float(w[i]));
  }
}
