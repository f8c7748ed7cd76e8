// Leaves half of the keys out.
#include "attention.cuh"

__device__ void cheat(const Problem& p) {
  store(p, attend(p, head(), row(), 0, (visible(p, row()) + 1) / 2, [](float weight) { return weight; }));
}
