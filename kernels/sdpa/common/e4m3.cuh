// E4M3 codes to halves, exactly (every E4M3 number is a half), and numbers to codes.
#pragma once

#include "ptx.cuh"

namespace e4m3 {

// Four codes of one word to two words of two halves each, for chips without a conversion instruction (before sm_89).
//
// The seven bits of exponent and fraction, shifted into a half's exponent and fraction, are the number divided by 2^8:
// the two exponent biases are 7 and 15. The product with 2^8 is exact, subnormals included. NaN (0x7F) has no such image
// and is put in afterwards.
__device__ __forceinline__ uint2 decode4_by_bits(uint32_t codes) {
  const __half2 bias = __halves2half2(__ushort_as_half(0x5C00), __ushort_as_half(0x5C00));  // 2^8
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

// Four codes of one word, lowest byte first, to four halves.
__device__ __forceinline__ uint2 decode4(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  return ptx::cvt_rn_f16x2_e4m3x2(codes);
#else
  return decode4_by_bits(codes);
#endif
}

// The same through a table of all 256 codes in shared memory.
__device__ __forceinline__ uint2 decode4_by_table(uint32_t codes, const uint16_t* table) {
  const uint32_t h0 = table[codes & 0xFF];
  const uint32_t h1 = table[(codes >> 8) & 0xFF];
  const uint32_t h2 = table[(codes >> 16) & 0xFF];
  const uint32_t h3 = table[codes >> 24];
  return make_uint2(h0 | (h1 << 16), h2 | (h3 << 16));
}

// Four numbers from 0 to 448 to their codes, the first to the lowest byte (sm_89 and later).
__device__ __forceinline__ uint32_t encode4(float a, float b, float c, float d) {
  return ptx::cvt_rn_satfinite_e4m3x2_f32(a, b) | static_cast<uint32_t>(ptx::cvt_rn_satfinite_e4m3x2_f32(c, d)) << 16;
}

}  // namespace e4m3
