#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void fp8(const float *x, const __nv_fp8_e5m2 *codes, __nv_fp8_e4m3 *e4m3, __half *half) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  e4m3[i] = __nv_fp8_e4m3(x[i]);
  half[i] = static_cast<__half>(codes[i]);
}
