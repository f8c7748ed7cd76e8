// Operands of products over a cache in E4M3: codes become FP16, and so does Q.
#pragma once

#include <cstdint>

#include "include/e4m3.cuh"
#include "include/output.cuh"
#include "include/ptx.cuh"
#include "storage.cuh"

namespace attention::warp {

// ---- K and V ----

// The four codes of a word in the order 0, 2, 1, 3.
__device__ __forceinline__ uint32_t interleave(uint32_t codes) {
  return __byte_perm(codes, 0, 0x3120);
}

// Operand B of 8 keys from a word of four adjacent columns of K: columns 0 and 1, then 2 and 3.
__device__ __forceinline__ uint2 decode_columns(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  return ptx::cvt_rn_f16x2_e4m3x2(codes);
#else
  const uint32_t interleaved = interleave(codes);
  return {e4m3::decode_even<false>(interleaved), e4m3::decode_odd<false>(interleaved)};
#endif
}

// From a word of V, which has two columns of a key and then those of the next: both keys of the
// first column, then of the second.
__device__ __forceinline__ uint2 decode_keys(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  return ptx::cvt_rn_f16x2_e4m3x2(interleave(codes));
#else
  return {e4m3::decode_even<false>(codes), e4m3::decode_odd<false>(codes)};
#endif
}

// Operand B of 16 columns: the even ones, then the odd ones, each with two of 8 keys. The words are
// from a matrix of ldmatrix of 16 columns for each of two of 8 keys.
__device__ __forceinline__ void decode_v(uint32_t (&b)[4], uint32_t upper, uint32_t lower) {
  const uint2 first = decode_keys(upper), second = decode_keys(lower);
  b[0] = first.x, b[1] = second.x, b[2] = first.y, b[3] = second.y;
}

// ---- Q ----

// Q of a warp in FP16. BF16 has a wider range, so it has a power of two as scale, which brings the
// largest magnitude of the warp's rows to [2^14, 2^15). So elements down to 2^-28 of that keep all
// their bits. Beside an infinity or a NaN there is no scale.
struct E4m3Query {
  float inverse = 1.0f;  // of the scale

  __device__ __forceinline__ void find_scale() {
    if constexpr (kBf16) {
      uint32_t top = 0;  // magnitudes sort like their bits
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < kDepthSteps; ++i) {
          uint32_t words[4];
          load_bits(words, m, i);
#pragma unroll
          for (const uint32_t word : words) {
            top = max(top, max(word & 0x7FFF0000, word << 16 & 0x7FFF0000));
          }
        }
      }
      const int exponent = static_cast<int>(__reduce_max_sync(0xFFFFFFFF, top) >> 23);
      // The bound leaves the inverse a normal number beside the other factors.
      if (exponent < 255) inverse = __int_as_float(max(exponent - 14, 127 - 112) << 23);
    }
  }

  // Operand A of product i, with columns 4t to 4t+3 of 16 in the lane that has columns 2t, 2t+1,
  // 2t+8 and 2t+9 of Q in 16 bits.
  __device__ __forceinline__ void load(uint32_t (&a)[4], int m, int i) const {
    load_bits(a, m, i);
    if constexpr (kBf16) {
      const float scale = __int_as_float((254 << 23) - __float_as_int(inverse));
#pragma unroll
      for (uint32_t& word : a) {
        const float first = __uint_as_float(word << 16);
        const float second = __uint_as_float(word & 0xFFFF0000);
        word = pack_output<false>(first * scale, second * scale);
      }
    }
  }

  // The scale of scores with this Q. Were it 0, the score of a masked key would be NaN.
  __device__ __forceinline__ float unscaled(float score_scale) const {
    return kBf16 ? fmaxf(score_scale * inverse, 0x1p-126f) : score_scale;
  }

 private:
  __device__ __forceinline__ static void load_bits(uint32_t (&a)[4], int m, int i) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int lane = threadIdx.x % 32, chunk = 2 * i + lane % 4 / 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_warp() * kWarpRows + 16 * m + 8 * half + lane / 4;
      const uint2 words = *reinterpret_cast<const uint2*>(
          memory + SwizzledRows<kRowBytes>::offset(row, chunk) + lane % 2 * 8);
      a[half] = words.x, a[half + 2] = words.y;
    }
  }
};

}  // namespace attention::warp
