// The problem of kernels/attention/mixed: Q in 16 bits.
#pragma once

#include "../../include/problem.cuh"

namespace stage7b {

// The headers of stage7b find this one where they say Problem. Of ::Problem, lse may be null, and q,
// k, v and descale_q are not used.
struct Problem : ::Problem {
  bool q_bf16, o_bf16;  // the types, FP16 otherwise
};

}  // namespace stage7b
