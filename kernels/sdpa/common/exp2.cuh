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

// 2^x as a half, for weights that become E4M3, by lines: the bits of a half, as a whole number, are (x + 15) * 2^10 where x is whole, and grow evenly from
// there to the next power of two. Moved down a little, that is at most 4 % too low or 2 too high, and right on average; E4M3, to which it is rounded, is 6
// off at most. A float in which 2^-10 is the last bit has them as its last 16; where they would be less than 0, they must be 0, as in E4M3.
constexpr float kLine = 15.0f - 0.0575f;  // + x
constexpr float kLineOrigin = 12288.0f;   // 1.5 * 2^13: the floats near it end with 2^-10
constexpr float kLineRange = 32.0f;       // what x + kLine stays below

// The float of x * factor + base, clamped by the FMA itself: to 0 .. 1, so that factor and base, which has kLine in it, come divided by kLineRange. NaN becomes 0.
__device__ __forceinline__ float line_by_saturation(float x, float factor, float base) { return ptx::fma_rn_sat(x, factor, base) + kLineOrigin / kLineRange; }

// The same clamped by a maximum: the base has kLine and kLineOrigin in it. NaN stays NaN.
__device__ __forceinline__ float line_by_maximum(float x, float factor, float base) { return ptx::max_nan(fmaf(x, factor, base), kLineOrigin); }

// The halves of two such floats.
__device__ __forceinline__ uint32_t halves_of(float low, float high) { return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x5410); }

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
