// One inline function for each PTX instruction that has no C++ name, called like the instruction.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace ptx {

// The 32-bit address in the shared window that shared-memory instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// PTX ISA "cp.async": 16 bytes from global to shared memory, past L1. Only the first `bytes` (0 or 16) are read; the rest
// is filled with zeros.
__device__ __forceinline__ void cp_async_cg_16(void* shared, const void* global, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
               :: "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}

// PTX ISA "cp.async.commit_group".
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// PTX ISA "cp.async.wait_group": returns when at most kPending of the youngest groups are still under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;\n" :: "n"(kPending) : "memory");
}

// PTX ISA "ex2": 2^x, within 2 ulp; the only approximate instruction of these kernels.
__device__ __forceinline__ float ex2_approx_ftz(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

#if __CUDA_ARCH__ >= 890
// PTX ISA "cvt": two E4M3 codes to two halves, exactly; low byte to low half.
__device__ __forceinline__ uint32_t cvt_rn_f16x2_e4m3x2(uint16_t codes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;\n" : "=r"(halves) : "h"(codes));
  return halves;
}
#endif

}  // namespace ptx
