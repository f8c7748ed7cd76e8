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

// PTX ISA "mbarrier.arrive" and "mbarrier.pending_count": one arrival. Returns the arrivals that were
// pending before it: 1 for the last of a phase.
__device__ __forceinline__ uint32_t mbarrier_arrive_pending(uint64_t* barrier) {
  uint32_t pending;
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%1];\n"
               "mbarrier.pending_count.b64 %0, state; }\n"
               : "=r"(pending) : "r"(shared_address(barrier)) : "memory");
  return pending;
}

}  // namespace ptx
