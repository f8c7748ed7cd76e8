// No cheat: it must pass.
#include "attention.cuh"

__device__ void cheat(const Problem& p) { compute(p); }
