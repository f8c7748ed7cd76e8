// The arithmetic of the online softmax that stage7a and stage7b share: the running row max, the
// rescale factor, and the log-sum-exp.
//
// Both keep the row max of a query as
//
//   neg_row_max_scaled = kMaxOffset - row_max * softmax_scale_log2
//
// in log2 units, so that one FMA gives the exponent of P:
//
//   P = exp2(score * softmax_scale_log2 + neg_row_max_scaled)
//
// A growing row max lowers neg_row_max_scaled. row_sum and O are sums of P relative to it.
#pragma once

#include "../include/ptx.cuh"

// P is at most 2^8 (FA3: Max_offset). E4M3 has the same relative precision up to its maximum, 448.
// So the scale costs nothing and moves small P out of the subnormal range.
constexpr float kMaxOffset = 8.0f;

// neg_row_max_scaled of a row before its first key: above that of any key, and finite, so that
// differences are finite too.
constexpr float kNoRowMax = 3e38f;

// Updates the running row max with the max of new scores. Returns the factor that rescales row_sum
// and O to the new row max. If step_max is NaN, so are both.
__device__ __forceinline__ float update_row_max(float& neg_row_max_scaled, float step_max,
                                                float softmax_scale_log2) {
  const float before = neg_row_max_scaled;
  neg_row_max_scaled = ptx::min_nan(before, fmaf(-step_max, softmax_scale_log2, kMaxOffset));
  return ptx::ex2_approx_ftz(neg_row_max_scaled - before);
}

// The natural logarithm of a row's sum of exp(score); minus infinity for a row without keys.
__device__ __forceinline__ float log_sum_exp(float row_sum, float neg_row_max_scaled) {
  constexpr float kLn2 = 0.6931471805599453f;
  return kLn2 * (ptx::lg2_approx_ftz(row_sum) - neg_row_max_scaled);
}
