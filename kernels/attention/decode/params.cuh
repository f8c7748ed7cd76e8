// The arguments of the kernel, and what a query row sees.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "traits.cuh"

namespace attention::decode {

// The result of some tiles of a unit, before it is normalised. Padding is not written.
struct Part {
  float o[Sizes::kRows][Sizes::kHeadDim];
  float row_max[Sizes::kRows];  // scaled, in log2 units
  float row_sum[Sizes::kRows];
};

struct Strides {
  long long batch, head, row;  // in elements
};

// A factor of a K/V head. A cache in 16 bits has none.
__device__ __forceinline__ float factor_of(const float* factors, int head) {
  return factors == nullptr ? 1 : factors[head];
}

struct Params {
  const uint8_t* q;       // E4M3; null for FP16 and BF16
  __half* o;              // null for BF16
  __nv_bfloat16* o_bf16;  // null for FP16
  float* lse;             // or null
  const float* descale_q;
  const float* descale_k;  // or null, as descale_v
  const float* descale_v;
  const float* sinks;     // or null
  const int* lengths;     // or null
  const int* page_table;  // or null
  Part* parts;            // two per block
  unsigned* arrived;      // counters of each unit, see epilogue.cuh
  int batch, kv_heads, group, queries, keys, max_pages, page_size, causal, window, even_blocks;
  int box_keys;  // of a load
  float softmax_scale;
  // In place of q; one of the two is null.
  const __half* q_fp16;
  const __nv_bfloat16* q_bf16;
  Strides q_strides;

  __device__ __forceinline__ int rows() const { return group * queries; }

  // A unit is a K/V head with up to kRows of its query rows.
  __device__ __forceinline__ unsigned units_of_head() const {
    return static_cast<unsigned>(rows() + Sizes::kRows - 1) / Sizes::kRows;
  }
  __device__ __forceinline__ int units() const { return kv_heads * units_of_head(); }

  // The first key that query i of a sequence of `end` keys sees. The last query is at the last key.
  __device__ __forceinline__ int window_begin(int end, int i) const {
    return end - queries + i - window;
  }

  // The end of the keys that query i sees.
  __device__ __forceinline__ int causal_end(int end, int i) const {
    return causal ? end - queries + i + 1 : end;
  }
};

}  // namespace attention::decode
