// The problem: that of prefill, in 16 bits. Descale factors and pointers to Q, K and V are not used.
#pragma once

#include "attention/prefill/problem.cuh"

namespace attention::prefill16 {

struct Problem : prefill::Problem {
  float softcap;               // of the scores; 0: none
  float score_scale_log2;      // of the scores, in log2 units; of capped ones the cap
  float softmax_scale_log2;    // the same; 1 with ALiBi, which leaves the scores in log2 units
  const float* alibi_slopes;   // (batch, heads), or null
  int64_t alibi_stride_batch;  // in elements, 0 if all sequences share the slopes
  const uint64_t* tree_mask;   // (batch, queries), of packed queries one for each row, or null
  int o_columns;               // of V and O, a multiple of 8 up to HEAD_DIM
};

}  // namespace attention::prefill16
