extern "C" __global__ void selected(const float *x, float *y, int n) {
  const int at = blockIdx.x * THREADS + threadIdx.x;
  if (at < n) y[at] = 2.0f * x[at];
}
