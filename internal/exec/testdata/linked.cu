// Separate compilation: kernels that call a function of another file. Prints "ok" if all results are right.
#include <cstdio>

#include "linked.cuh"

__global__ void apply(float *out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = twice((float)i) + offset + table[1] + three(1.0f);
}

int main(int count, char **) {
  float *out;
  cudaMallocManaged(&out, 32 * sizeof(float));
  apply<<<1, 32>>>(out, 32);
  cudaDeviceSynchronize();
  int wrong = out[3] != 2 * 3 + 10 + 2 + 3;
  add_three(out, count > 1 ? 33 : 32);
  wrong += out[3] != 2 * 3 + 10 + 2 + 3 + 3;
  if (wrong == 0 && cudaGetLastError() == cudaSuccess) printf("ok\n");
  return wrong;
}
