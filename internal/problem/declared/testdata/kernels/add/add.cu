extern "C" __global__ void add(const float *x, const float *z, float *y, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  if (i < n) y[i] = x[i] + z[i];
}
