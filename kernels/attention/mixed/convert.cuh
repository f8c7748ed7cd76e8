// Conversion of 16-bit elements, FP16 or BF16, to E4M3 with a power of two as scale.
//
// The scale brings the largest magnitude into (224, 448], the top of E4M3. A power of two costs no
// precision: x * scale is exact, and the factors that undo it are exact too.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"

namespace attention::mixed {

// The largest magnitude of elements, as bits of their type. NaN does not count.
template <bool kBf16>
struct Magnitude {
  static constexpr int kChains = 4;  // independent, for instruction parallelism
  uint32_t pairs[kChains] = {};

  // Adds two elements; i is a constant that chooses the chain.
  __device__ __forceinline__ void add(uint32_t elements, int i) {
    pairs[i % kChains] = larger(pairs[i % kChains], elements);
  }
  __device__ __forceinline__ uint32_t of_lane() const {
    const uint32_t pair = larger(larger(pairs[0], pairs[1]), larger(pairs[2], pairs[3]));
    const uint32_t low = pair & 0x7FFF, high = pair >> 16 & 0x7FFF;
    return max(low, high);
  }

 private:
  __device__ __forceinline__ static uint32_t larger(uint32_t a, uint32_t b) {
    return ptx::max_magnitude_x2<kBf16>(a, b);
  }
};

// A scale from 2^kMinExponent to 2^kMaxExponent. The bounds keep its inverse normal, also times the
// descale factor of K. FP16 must hold the scale itself.
template <bool kBf16>
struct Scale {
  static constexpr int kMinExponent = kBf16 ? -60 : -8;
  static constexpr int kMaxExponent = kBf16 ? 60 : 15;
  int exponent;

  // Of elements up to `magnitude`. Zeros take the largest scale, infinities the smallest.
  __device__ __forceinline__ explicit Scale(uint32_t magnitude) {
    constexpr int kMantissaBits = kBf16 ? 7 : 10, kBias = kBf16 ? 127 : 15;
    // Above 1.75 times a power of two the carry gives the next one.
    const int above = (magnitude + (1 << (kMantissaBits - 2)) - 1) >> kMantissaBits;
    exponent = min(max(8 + kBias - above, kMinExponent), kMaxExponent);
  }

  __device__ __forceinline__ float inverse() const {
    return __int_as_float((127 - exponent) << 23);
  }
  // The scale twice, as a pair of elements.
  __device__ __forceinline__ uint32_t pair() const {
    return kBf16 ? (exponent + 127) * 0x00800080u : (exponent + 15) * 0x04000400u;
  }
};

// Two elements times the scale to two E4M3 codes, saturating; NaN stays NaN.
template <bool kBf16>
__device__ __forceinline__ uint32_t convert_pair(uint32_t elements, uint32_t scale) {
  const uint32_t scaled = ptx::mul_rn_x2<kBf16>(elements, scale);
  if constexpr (kBf16) {
    return ptx::cvt_rn_satfinite_e4m3x2_f32(__uint_as_float(scaled << 16),
                                            __uint_as_float(scaled & 0xFFFF0000));
  } else {
    return ptx::cvt_rn_satfinite_e4m3x2_f16x2(scaled);
  }
}

// Four elements to a word of codes.
template <bool kBf16>
__device__ __forceinline__ uint32_t convert_four(uint32_t first, uint32_t second, uint32_t scale) {
  return convert_pair<kBf16>(first, scale) | convert_pair<kBf16>(second, scale) << 16;
}

}  // namespace attention::mixed
