// Counts launches in a static variable, and does nothing after the first thousand.
#include "attention.cuh"

__device__ void cheat(const Problem& p) {
  static __device__ unsigned launches;
  unsigned* counter = &launches;
  asm volatile("" : "+l"(counter));  // hides the address from the compiler, not from the audit
  if (launch_number(counter) < 1000) compute(p);
}
