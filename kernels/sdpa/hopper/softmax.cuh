// What both kernels take exponentials relative to.
#pragma once

#include "../common/ptx.cuh"

// P goes up to 2^8: of E4M3's range, which ends at 448, the upper part is as fine as the lower.
constexpr float kShift = 8.0f;

// The base of a query, which is added to its scaled scores, while it has seen no key: far above what any key asks for, and finite, so that differences are.
constexpr float kUnseen = 3e38f;

// Lowers a base to what the greatest score of some keys asks for. Returns what remains of sums that were relative to the base before. If that score is NaN,
// so are both.
__device__ __forceinline__ float lowered(float& base, float greatest, float factor) {
  const float before = base;
  base = ptx::min_nan(before, fmaf(-greatest, factor, kShift));
  return ptx::ex2_approx_ftz(base - before);
}

// The logarithm of the sum of exp(score), of a sum of 2^(scaled score + base). That is minus infinity where there is no key to see.
__device__ __forceinline__ float log_sum_exp(float sum, float base) {
  constexpr float kLn2 = 0.6931471805599453f;
  return kLn2 * (ptx::lg2_approx_ftz(sum) - base);
}
