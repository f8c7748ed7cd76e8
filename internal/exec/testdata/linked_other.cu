// The other file of linked.cu.
#include "linked.cuh"

__device__ int offset = 10;
__constant__ float table[4] = {1, 2, 3, 4};

__device__ float twice(float x) { return 2 * x; }

__global__ void add(float *out, int n) {
  if (threadIdx.x < n) add_to(out, threadIdx.x, three(1.0f));
}

void add_three(float *out, int n) {
  add<<<1, 64>>>(out, n);
  cudaDeviceSynchronize();
}
