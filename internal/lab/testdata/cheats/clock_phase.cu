// Does nothing in the second half of each second. It needs no memory.
#include "attention.cuh"

__device__ __noinline__ unsigned half_second() {
  unsigned low, high;
  asm volatile("mov.u32 %0, %%globaltimer_lo;\n\tmov.u32 %1, %%globaltimer_hi;" : "=r"(low), "=r"(high));
  return (((unsigned long long)high << 32 | low) / 500000000) % 2;
}

__device__ void cheat(const Problem& p) {
  if (__shfl_sync(~0u, half_second(), 0) == 0) compute(p);
}
