// Marks an input that it has seen in the lowest bit of its last byte.
#include "attention.cuh"

__device__ void cheat(const Problem& p) {
  uint8_t* mark = const_cast<uint8_t*>(p.v) + (size_t)(p.heads / p.group) * p.keys * kHeadDim - 1;
  compute(p);
  if (lane() == 0 && block() == 0) *mark ^= 1;
}
