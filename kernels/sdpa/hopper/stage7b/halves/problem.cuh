// The problem of kernels/fused and kernels/mixed: inputs in 16 bits, and strides.
#pragma once

#include <cstdint>

#include "../../../common/problem.cuh"

namespace stage7b {

// Strides in elements; columns are contiguous.
struct Strides {
  int64_t batch, head, row;
};

// The headers of stage7b find this one where they say Problem. Of ::Problem, `heads` are those of
// all batches, and lse may be null. kernels/fused does not use q, k, v and the descale factors, and
// its O has the type of the inputs. In kernels/mixed q has 16 bits and no factors.
struct Problem : ::Problem {
  unsigned kv_heads;  // of a batch
  Strides o_strides;
  Strides q_strides;    // of kernels/mixed
  bool q_bf16, o_bf16;  // of kernels/mixed: the types, FP16 otherwise

  // O of a query head.
  __device__ __forceinline__ uint16_t* o_of(Head head) const {
    return o + offset(o_strides, head);
  }
  // Q of a query head, in 16 bits.
  __device__ __forceinline__ const uint16_t* q_of(Head head) const {
    return reinterpret_cast<const uint16_t*>(q) + offset(q_strides, head);
  }

 private:
  __device__ __forceinline__ int64_t offset(const Strides& strides, Head head) const {
    const unsigned batch = head.kv / kv_heads;
    return strides.batch * batch + strides.head * (head.q - batch * kv_heads * group);
  }
};

}  // namespace stage7b
