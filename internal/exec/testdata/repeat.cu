// Timing loops: 100 launches that do the same, and 20 that add to what is there.
#include <cstdio>

__global__ void square(float *out, const float *in) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i] * in[i];
}

__global__ void increment(float *p) {
  p[threadIdx.x] += 1;
}

int main() {
  const int n = 64 * 1024;
  float *in, *out, result[2];
  cudaMalloc(&in, n * sizeof(float));
  cudaMalloc(&out, n * sizeof(float));
  cudaMemset(in, 0, n * sizeof(float));
  for (int i = 0; i < 100; i++) {
    if (i == 50) {
      const float two = 2;
      cudaMemcpy(in, &two, sizeof two, cudaMemcpyHostToDevice);
    }
    square<<<n / 256, 256>>>(out, in);
    if (i == 60) cudaMemset(out, 0, 4);
  }
  for (int i = 0; i < 20; i++) increment<<<1, 2>>>(out);
  cudaMemcpy(result, out, sizeof result, cudaMemcpyDeviceToHost);
  printf("%g %g\n", result[0], result[1]);
  return result[0] != 24 || result[1] != 20;
}
