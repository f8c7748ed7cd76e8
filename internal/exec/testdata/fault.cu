// What kernels print and how they fail: the argument is print, assert, trap, race, crash or host.
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>

__global__ void print(int n) {
  if (threadIdx.x < n) printf("thread %d of %d\n", threadIdx.x, n);
}

__global__ void check(int n) { assert(threadIdx.x < n); }

__global__ void trap() { __trap(); }

__global__ void race(int *out) {
  __shared__ int tile[64];
  tile[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "print";
  int *out;
  cudaMalloc(&out, 64 * sizeof(int));
  if (!strcmp(what, "print")) print<<<1, 32>>>(2);
  if (!strcmp(what, "assert")) check<<<1, 32>>>(31);
  if (!strcmp(what, "trap")) trap<<<1, 32>>>();
  if (!strcmp(what, "race")) race<<<1, 64>>>(out);
  printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
  if (!strcmp(what, "host")) *(volatile int *)out = 1;
  if (!strcmp(what, "crash")) *(volatile int *)nullptr = 1;
  cudaError_t e = cudaDeviceSynchronize();
  printf("synchronize: %s\n", cudaGetErrorName(e));
  return e == cudaSuccess ? 0 : 3;
}
