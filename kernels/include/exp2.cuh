// 2^x for x <= 0, for the softmax: on the special-function unit (MUFU), and in two approximations
// on the FMA units, which relieve it.
#pragma once

#include "ptx.cuh"

// ---- cubic polynomial: 13 bits, more than P keeps ----

// x is split into an integer, which goes into the exponent, and a fraction in -0.5 .. 0.5. The
// coefficients minimise the largest relative error of 2^fraction, with the constant term fixed at 1
// so that 2^0 is exact. For x <= -127 the result is 0 or less than 2^-126. NaN stays NaN.
__device__ __forceinline__ float exp2_cubic(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = ptx::max_nan(x, -127.0f);
  const float shifted = clamped + kRounder;
  const float fraction = clamped - (shifted - kRounder);
  float y = fmaf(fraction, 0.05500893f, 0.242211f);
  y = fmaf(y, fraction, 0.69328293f);
  y = fmaf(y, fraction, 1.0f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(shifted) << 23));
}

// ---- linear approximation: half precision, for a P that is rounded to E4M3 ----

// For an integer x the bits of the half 2^x, read as an integer, are (x + 15) * 2^10. Between
// powers of two the approximation interpolates them linearly. Shifted down by 0.0575 it is at most
// 4 % low and 2 % high, and unbiased on average; rounding to E4M3 alone costs up to 6 %.
//
// The FMA unit computes the bits: they are the low 16 bits of a float whose last bit is 2^-10.
// Where they would be negative they are clamped to 0, which is also 0 in E4M3.
constexpr float kExp2LinearBias = 15.0f - 0.0575f;  // added to x
constexpr float kExp2LinearOrigin = 12288.0f;       // 1.5 * 2^13: floats near it end with 2^-10
constexpr float kExp2LinearRange = 32.0f;           // upper bound of x + kExp2LinearBias

// The float that carries the bits of 2^(x * scale + offset), clamped by the saturating FMA. That
// clamps to 0 .. 1, so the caller divides scale and (offset + kExp2LinearBias) by kExp2LinearRange.
// NaN becomes 0.
__device__ __forceinline__ float exp2_linear_saturating(float x, float scale, float offset) {
  return ptx::fma_rn_sat(x, scale, offset) + kExp2LinearOrigin / kExp2LinearRange;
}

// The same clamped by a maximum. The caller adds kExp2LinearBias + kExp2LinearOrigin to the offset.
// NaN stays NaN.
__device__ __forceinline__ float exp2_linear_max(float x, float scale, float offset) {
  return ptx::max_nan(fmaf(x, scale, offset), kExp2LinearOrigin);
}

// The two halves that two such floats carry.
__device__ __forceinline__ uint32_t exp2_linear_halves(float low, float high) {
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x5410);
}

// Two linear segments per octave: the sum of the approximations of 2^(x-1) and 2^(x-1/2) / sqrt(2).
// The errors of the two are half a period apart and cancel but for their even harmonics: at most
// 1.1 %, 0.44 % root mean square. After rounding to E4M3 the error is 1.6 % larger than with exact
// exponentials. Takes the two halves of 2^(x-1); the half an octave up is 2^9 further in the bits.
__device__ __forceinline__ uint32_t exp2_two_segments(uint32_t halves) {
  constexpr uint32_t kHalfOctave = 0x02000200, kSqrtHalf = 0x39A839A8;  // 0.70703 twice
  return ptx::fma_rn_f16x2(halves + kHalfOctave, kSqrtHalf, halves);
}

// ---- sharing exponentials between the units ----

// Whether the FMA units compute the i-th exponential: kEighths of every eight, evenly spread.
template <int kEighths>
__device__ __forceinline__ constexpr bool exp2_on_fma(int i) {
  return (i + 1) * kEighths % 8 < kEighths;
}

// 2^x as the i-th exponential of a row, on the unit that exp2_on_fma assigns.
template <int kEighths>
__device__ __forceinline__ float exp2_mixed(float x, int i) {
  return exp2_on_fma<kEighths>(i) ? exp2_cubic(x) : ptx::ex2_approx_ftz(x);
}
