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

// 2^x of two numbers of at most 8 as halves, for weights that become E4M3: to 0.3 % of what a half of x makes, where E4M3 rounds by up to 6. Half as many
// instructions a number as the one above. Below -12, where E4M3 has 0, it is 2^-12; NaN stays NaN.
__device__ __forceinline__ uint32_t exp2_of_halves(float low, float high) {
  constexpr uint32_t kLeast = 0xCA00CA00, kRounder = 0x660F660F;  // -12; 1536 + 15: a whole number that is added to it has 15 more, a half's bias, in its last five bits
  constexpr uint32_t kSquare = 0x33B233B2, kFirst = 0x39A039A0, kOne = 0x3C003C00;  // 0.2405, 0.703, 1
  const uint32_t x = ptx::max_nan_f16x2(ptx::cvt_rn_f16x2_f32(low, high), kLeast);
  const uint32_t shifted = ptx::add_rn_f16x2(x, kRounder);
  const uint32_t rest = ptx::sub_rn_f16x2(x, ptx::sub_rn_f16x2(shifted, kRounder));  // -0.5 .. 0.5
  const uint32_t y = ptx::fma_rn_f16x2(ptx::fma_rn_f16x2(rest, kSquare, kFirst), rest, kOne);
  return ptx::mul_rn_f16x2(y, shifted << 10 & 0x7C007C00);
}

// Of a row of exponentials kEighths of eight are taken by the FMA units, spread evenly, and the others by the special-function unit beside them.
template <int kEighths>
__device__ __forceinline__ constexpr bool by_polynomial(int i) {
  return (i + 1) * kEighths % 8 < kEighths;
}

// 2^x for the i-th of a row of numbers.
template <int kEighths>
__device__ __forceinline__ float exp2_of(float x, int i) {
  return by_polynomial<kEighths>(i) ? exp2_by_polynomial(x) : ptx::ex2_approx_ftz(x);
}
