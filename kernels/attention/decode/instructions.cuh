// Instructions that no other kernel uses, as in include/ptx.cuh.
#pragma once

#include "include/ptx.cuh"

namespace ptx {

// PTX ISA "ld.acquire": a counter that other blocks change. What they have written before the change
// is visible to later accesses.
__device__ __forceinline__ uint32_t ld_acquire_gpu(const uint32_t* global) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n"
               : "=r"(value) : "l"(__cvta_generic_to_global(global)) : "memory");
  return value;
}

// PTX ISA "barrier.red.or": as barrier_sync; returns whether some thread has given `value`.
__device__ __forceinline__ bool barrier_red_or(int id, int threads, bool value) {
  int some;
  asm volatile("{ .reg .pred p, q; setp.ne.b32 p, %1, 0;\n"
               "barrier.red.or.pred q, %2, %3, p;\n"
               "selp.b32 %0, 1, 0, q; }\n"
               : "=r"(some) : "r"(static_cast<int>(value)), "r"(id), "r"(threads) : "memory");
  return some != 0;
}

// PTX ISA "stmatrix.trans", as stmatrix_x4_trans.
__device__ __forceinline__ void stmatrix_x2_trans(uint32_t row, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};\n"
               :: "r"(row), "r"(a), "r"(b) : "memory");
}

}  // namespace ptx
