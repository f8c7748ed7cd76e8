// The problem: Q, K and V in 16 bits, and strides of O.
#pragma once

#include <cstdint>

#include "include/problem.cuh"

namespace attention::native {

// Strides in elements; columns are contiguous.
struct Strides {
  int64_t batch, head, row;
};

// Of ::Problem, `heads` are those of all batches, o has the type of the inputs, and lse may be
// null. q, k, v and the descale factors are not used.
struct Problem : ::Problem {
  unsigned kv_heads;  // of a batch
  Strides o_strides;
};

}  // namespace attention::native
