// The problem: that of prefill, in 16 bits. Descale factors and pointers to Q, K and V are not used.
#pragma once

#include "attention/prefill/problem.cuh"

namespace attention::prefill16 {

struct Problem : prefill::Problem {
  float softcap;             // of the scores; 0: none
  float softmax_scale_log2;  // of the scores, in log2 units; of capped ones the cap
  int o_columns;             // of V and O, a multiple of 8 up to HEAD_DIM
};

}  // namespace attention::prefill16
