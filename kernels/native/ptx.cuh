// PTX instructions that only this kernel uses, one function each.
#pragma once

#include <cstdint>

#include "common/ptx.cuh"

namespace ptx {

// PTX ISA "fma.bf16x2": a * b + c on pairs of BF16.
__device__ __forceinline__ uint32_t fma_rn_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// PTX ISA "griddepcontrol.launch_dependents": the next launch in the stream may start when all
// blocks have executed it. It waits for their writes by griddepcontrol.wait.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
}

}  // namespace ptx
