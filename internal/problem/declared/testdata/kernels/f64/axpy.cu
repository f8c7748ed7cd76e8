extern "C" __global__ void axpy(double a, const double *x, double *y, long long n) {
  if (threadIdx.x < n) y[threadIdx.x] += a * x[threadIdx.x];
}
