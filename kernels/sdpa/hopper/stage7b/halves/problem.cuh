// The problem of kernels/fused: Q, K and V in 16 bits, and strides.
#pragma once

#include <cstdint>

#include "../../../common/problem.cuh"

namespace stage7b {

// Strides in elements; columns are contiguous.
struct Strides {
  int64_t batch, head, row;
};

// The headers of stage7b find this one where they say Problem. Of ::Problem, `heads` are those of
// all batches, o has the type of the inputs, and lse may be null. q, k, v and the descale factors
// are not used.
struct Problem : ::Problem {
  unsigned kv_heads;  // of a batch
  Strides o_strides;

  // O of a query head.
  __device__ __forceinline__ uint16_t* o_of(Head head) const {
    const unsigned batch = head.kv / kv_heads;
    return o + o_strides.batch * batch +
           o_strides.head * (head.q - batch * kv_heads * group);
  }
};

}  // namespace stage7b
