// One inline function per PTX instruction that has no C++ name, named like the instruction.
#pragma once

#include <cstdint>

namespace ptx {

// The 32-bit address in the shared window, which shared-memory instructions take.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// PTX ISA "cp.async": 16 bytes from global to shared memory, bypassing L1. Only the first `bytes`
// (0 or 16) are read; the rest is filled with zeros.
__device__ __forceinline__ void cp_async_cg_16(void* shared, const void* global, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
               :: "r"(shared_address(shared)), "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}

// PTX ISA "cp.async.commit_group".
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// PTX ISA "cp.async.wait_group": waits until at most kPending of the youngest groups are pending.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;\n" :: "n"(kPending) : "memory");
}

// PTX ISA "ld.global.nc": 16 bytes that no thread writes while the kernel runs.
__device__ __forceinline__ uint4 ld_global_nc_16(const void* global) {
  uint4 d;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
               : "l"(__cvta_generic_to_global(global)));
  return d;
}

// PTX ISA "red.release": adds to a counter, after all earlier accesses of the thread and of those
// that a barrier has ordered before it.
__device__ __forceinline__ void red_release_gpu_add(uint32_t* global, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;\n"
               :: "l"(__cvta_generic_to_global(global)), "r"(value) : "memory");
}

// PTX ISA "ld.relaxed": a counter that other blocks change.
__device__ __forceinline__ uint32_t ld_relaxed_gpu(const uint32_t* global) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];\n"
               : "=r"(value) : "l"(__cvta_generic_to_global(global)) : "memory");
  return value;
}

// PTX ISA "atom.acq_rel": adds to a counter and returns the value before it. It orders the accesses
// of all threads that have added before those that follow.
__device__ __forceinline__ uint32_t atom_acq_rel_gpu_add(uint32_t* global, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;\n"
               : "=r"(before) : "l"(__cvta_generic_to_global(global)), "r"(value) : "memory");
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
