// Conversions between E4M3 codes, halves and floats. E4M3 to half is exact: every E4M3 value is a
// half.
#pragma once

#include "ptx.cuh"

namespace e4m3 {

// Decodes the four codes of a word to two words of two halves, on chips without a conversion
// instruction (before sm_89).
//
// The seven bits of exponent and mantissa, shifted into a half's exponent and mantissa, are the
// value divided by 2^8, because the exponent biases are 7 and 15. Multiplication by 2^8 is exact,
// subnormals included. NaN (0x7F) does not map this way and is patched in afterwards.
__device__ __forceinline__ uint2 decode4_bitwise(uint32_t codes) {
  const __half two_to_8 = __ushort_as_half(0x5C00);
  const __half2 bias = __halves2half2(two_to_8, two_to_8);
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // codes 2i and 2i+1 to the upper bytes of the two halves
    const uint32_t spread = __byte_perm(codes, 0, i == 0 ? 0x1404 : 0x3424);
    const uint32_t bits = (spread & 0x80008000u) | ((spread & 0x7F007F00u) >> 1);
    const __half2 value = __hmul2(*reinterpret_cast<const __half2*>(&bits), bias);
    words[i] = *reinterpret_cast<const uint32_t*>(&value);
    if (((spread & 0x7F007F00u) + 0x01000100u) & 0x80008000u) {
      if ((spread & 0x00007F00u) == 0x00007F00u) words[i] |= 0x00007FFFu;
      if ((spread & 0x7F000000u) == 0x7F000000u) words[i] |= 0x7FFF0000u;
    }
  }
  return make_uint2(words[0], words[1]);
}

// Decodes the codes in bytes 1 and 3 of a word to two FP16 or BF16 numbers, exactly. As
// decode4_bitwise, on all chips, but NaN becomes 480. The exponent bias of BF16 is 127, so that its
// factor is 2^120.
template <bool kBf16>
__device__ __forceinline__ uint32_t decode_odd(uint32_t codes) {
  constexpr uint32_t kMagnitudes = kBf16 ? 0x07F007F0 : 0x3F803F80, kZeros = 0x80008000;
  const uint32_t bits = codes & 0x80008000 | codes >> (kBf16 ? 4 : 1) & kMagnitudes;
  if constexpr (kBf16) return ptx::fma_rn_bf16x2(bits, 0x7B807B80, kZeros);
  return ptx::fma_rn_f16x2(bits, 0x5C005C00, kZeros);
}

// The same for the codes in bytes 0 and 2.
template <bool kBf16>
__device__ __forceinline__ uint32_t decode_even(uint32_t codes) {
  return decode_odd<kBf16>(codes << 8);
}

// Decodes the four codes of a word, lowest byte first.
__device__ __forceinline__ uint2 decode4(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  return ptx::cvt_rn_f16x2_e4m3x2(codes);
#else
  return decode4_bitwise(codes);
#endif
}

// As decode4, by lookup in a table of all 256 codes in shared memory.
__device__ __forceinline__ uint2 decode4_lookup(uint32_t codes, const uint16_t* table) {
  const uint32_t h0 = table[codes & 0xFF];
  const uint32_t h1 = table[(codes >> 8) & 0xFF];
  const uint32_t h2 = table[(codes >> 16) & 0xFF];
  const uint32_t h3 = table[codes >> 24];
  return make_uint2(h0 | (h1 << 16), h2 | (h3 << 16));
}

// Rounds four values in 0 .. 448 to codes, the first in the lowest byte (sm_89 and later).
__device__ __forceinline__ uint32_t encode4(float a, float b, float c, float d) {
  return ptx::cvt_rn_satfinite_e4m3x2_f32(a, b) |
         static_cast<uint32_t>(ptx::cvt_rn_satfinite_e4m3x2_f32(c, d)) << 16;
}

}  // namespace e4m3
