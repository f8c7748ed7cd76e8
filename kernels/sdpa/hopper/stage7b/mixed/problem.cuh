// The problem of kernels/mixed: Q in 16 bits, K and V in E4M3, and strides.
#pragma once

#include <cstdint>

#include "../../../common/problem.cuh"

namespace stage7b {

// Strides in elements; columns are contiguous.
struct Strides {
  int64_t batch, head, row;
};

// The headers of stage7b find this one where they say Problem. Of ::Problem, `heads` are those of
// all batches, q has 16 bits and no descale factors, k is not used, and lse may be null.
struct Problem : ::Problem {
  unsigned kv_heads;    // of a batch
  bool q_bf16, o_bf16;  // the types, FP16 otherwise
  Strides q_strides, o_strides;

  // Q and O of a query head.
  __device__ __forceinline__ const uint16_t* q_of(Head head) const {
    return reinterpret_cast<const uint16_t*>(q) + offset(q_strides, head);
  }
  __device__ __forceinline__ uint16_t* o_of(Head head) const {
    return o + offset(o_strides, head);
  }

 private:
  // With heads outside of rows the heads of all batches are at equal distances, and the batch is not
  // needed: an integer division takes about a hundred cycles.
  __device__ __forceinline__ int64_t offset(const Strides& strides, Head head) const {
    const int64_t gap = strides.batch - strides.head * (kv_heads * group);
    int64_t at = strides.head * head.q;
    if (gap != 0) at += gap * (head.kv / kv_heads);
    return at;
  }
};

}  // namespace stage7b
