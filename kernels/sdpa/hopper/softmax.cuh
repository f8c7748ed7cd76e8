// What both kernels take exponentials relative to.
#pragma once

#include "../common/ptx.cuh"

// P goes up to 2^8: of E4M3's range, which ends at 448, the upper part is as fine as the lower.
constexpr float kShift = 8.0f;

// What the scaled scores of a query are relative to; one that has seen no key yet has nothing.
__device__ __forceinline__ float anchor_of(float greatest, float factor) { return greatest == -INFINITY ? 0.0f : greatest * factor; }

// The logarithm of the sum of exp(score), of a sum of 2^(kShift + scaled score - anchor). That is minus infinity where there is no key to see.
__device__ __forceinline__ float log_sum_exp(float sum, float anchor) {
  constexpr float kLn2 = 0.6931471805599453f;
  return kLn2 * (anchor + (ptx::lg2_approx_ftz(sum) - kShift));
}
