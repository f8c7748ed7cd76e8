// Position of a producer or a consumer in a pipeline of kStages shared-memory stages.
#pragma once

#include <cstdint>

// `phase` is the parity of the mbarrier phase that ends when stage `stage` is next filled. A
// consumer waits for this parity on the full barrier. A producer waits for the opposite parity on
// the empty barrier: a new mbarrier passes that wait at once, so every stage starts out empty.
template <int kStages>
struct PipelineState {
  int stage = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
};
