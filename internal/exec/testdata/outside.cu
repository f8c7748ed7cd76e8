// A vector addition whose last block goes one element too far.
#include <cstdio>
#include <cstdlib>
__global__ void add(const float *a, const float *b, float *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) c[i] = a[i] + b[i];
}
int main() {
  int n = 1000;
  float *a, *b, *c, *h = (float *)malloc(n * 4);
  cudaMalloc(&a, n * 4); cudaMalloc(&b, n * 4); cudaMalloc(&c, n * 4);
  for (int i = 0; i < n; i++) h[i] = i;
  cudaMemcpy(a, h, n * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(b, h, n * 4, cudaMemcpyHostToDevice);
  add<<<(n + 255) / 256, 256>>>(a, b, c, n);
  printf("launch: %s\n", cudaGetErrorString(cudaGetLastError()));
  printf("copy: %s\n", cudaGetErrorString(cudaMemcpy(h, c, n * 4, cudaMemcpyDeviceToHost)));
  int bad = 0;
  for (int i = 0; i < n; i++) bad += h[i] != 2 * i;
  printf("%d wrong\n", bad);
  return bad != 0;
}
