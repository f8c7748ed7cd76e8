#include <cuda_fp16.h>

extern "C" __global__ void i8_scalar(const signed char *x, signed char bias, unsigned char shift, __half scale, signed char *y,
                                     unsigned long long n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = static_cast<signed char>(((x[i] + bias) << shift) * __half2float(scale) / 8);
}
