// One inline function per PTX instruction that has no C++ name, named like the instruction.
#pragma once

#include <cstdint>

namespace ptx {

// PTX ISA "ld.global.nc": 16 bytes that no thread writes while the kernel runs.
__device__ __forceinline__ uint4 ld_global_nc_16(const void* global) {
  uint4 d;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
               : "l"(__cvta_generic_to_global(global)));
  return d;
}

// PTX ISA "griddepcontrol.launch_dependents": the next launch in the stream may start when all
// blocks have executed it. It waits for their writes by griddepcontrol.wait. Before sm_90 there is
// no such launch.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

// PTX ISA "atom.acq_rel": adds to a counter and returns the value before it. It orders the accesses
// of all threads that have added before those that follow.
__device__ __forceinline__ unsigned long long atom_acq_rel_gpu_add(unsigned long long* global,
                                                                   unsigned long long value) {
  unsigned long long before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;\n"
               : "=l"(before) : "l"(__cvta_generic_to_global(global)), "l"(value) : "memory");
  return before;
}

// PTX ISA "cvt": two FP32 numbers to E4M3, round to nearest even. Beyond 448 and for infinities the
// result is 448 with the sign; for NaN it is NaN (0x7f).
__device__ __forceinline__ uint16_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\n" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

}  // namespace ptx
