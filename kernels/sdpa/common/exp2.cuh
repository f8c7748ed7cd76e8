// 2^x for x <= 0, as softmax needs it.
#pragma once

#include "ptx.cuh"

// 2^x on the FMA units, to 13 bits, which is more than P keeps. x is split into a whole number, which goes into the exponent, and a rest of at
// most a half, for which a polynomial of the third degree does (least worst relative error; the constant is exactly 1, so that 2^0 is).
// 2^-127 and below come out as 0 or as less than 2^-126; NaN stays NaN.
__device__ __forceinline__ float exp2_by_polynomial(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const float clamped = ptx::max_nan(x, -127.0f);
  const float shifted = clamped + kRounder;
  const float rest = clamped - (shifted - kRounder);  // -0.5 .. 0.5
  float y = fmaf(rest, 0.05500893f, 0.242211f);
  y = fmaf(y, rest, 0.69328293f);
  y = fmaf(y, rest, 1.0f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

// 2^x for the i-th of a row of numbers: kEighths of eight by the FMA units, the others by the special-function unit beside them.
template <int kEighths>
__device__ __forceinline__ float exp2_of(float x, int i) {
  if ((i + 1) * kEighths % 8 < kEighths) return exp2_by_polynomial(x);
  return ptx::ex2_approx_ftz(x);
}
