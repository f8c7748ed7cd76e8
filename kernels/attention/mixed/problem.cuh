// The problem: Q in 16 bits.
#pragma once

#include "include/problem.cuh"

namespace attention::mixed {

// Of ::Problem, lse may be null, and q, k, v and descale_q are not used.
struct Problem : ::Problem {
  bool q_bf16, o_bf16;  // the types, FP16 otherwise
};

}  // namespace attention::mixed
