// A chunk is 8 neighbouring elements of a row in FP16 or BF16: 16 bytes, one load of a thread.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "../include/ptx.cuh"

constexpr int kChunkElements = 8;
constexpr float kLargestE4M3 = 448;

// Of Q, K or V.
struct Strides {
  long long batch, head, row;  // in elements
};

// The element types. A Pair holds two elements in 32 bits.
struct FP16 {
  using Pair = __half2;
  static __device__ Pair pair(uint32_t bits) { return *reinterpret_cast<const Pair*>(&bits); }
  static __device__ float2 floats(Pair x) { return __half22float2(x); }
  static __device__ Pair infinity() { return pair(0x7c007c00); }
};

struct BF16 {
  using Pair = __nv_bfloat162;
  static __device__ Pair pair(uint32_t bits) { return *reinterpret_cast<const Pair*>(&bits); }
  static __device__ float2 floats(Pair x) { return __bfloat1622float2(x); }
  static __device__ Pair infinity() { return pair(0x7f807f80); }
};

struct Floats {
  float v[kChunkElements];
};

template <class Type>
__device__ Floats unpack(uint4 chunk) {
  const uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
  Floats x;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 pair = Type::floats(Type::pair(words[i]));
    x.v[2 * i] = pair.x;
    x.v[2 * i + 1] = pair.y;
  }
  return x;
}

__device__ inline Floats unpack(bool bf16, uint4 chunk) {
  return bf16 ? unpack<BF16>(chunk) : unpack<FP16>(chunk);
}

// The larger of `amax` and the magnitudes of the finite elements of a chunk, for even and odd
// elements by themselves. Pairs halve the instructions of the first pass.
template <class Type>
__device__ typename Type::Pair larger_magnitudes(typename Type::Pair amax, uint4 chunk) {
  const uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const uint32_t magnitude = words[i] & 0x7fff7fff;
    const uint32_t finite = __hlt2_mask(Type::pair(magnitude), Type::infinity());
    amax = __hmax2(amax, Type::pair(magnitude & finite));
  }
  return amax;
}

// The E4M3 code of x: to nearest even, saturating at 448, NaN 0x7f. For chips without an instruction
// for it (before sm_89).
__device__ inline uint32_t e4m3_code(float x) {
  const uint32_t sign = __float_as_uint(x) >> 24 & 0x80;
  const float magnitude = fminf(fabsf(x), kLargestE4M3);
  // From 2^-6 on the code is the exponent, with another bias, and the first 3 bits of the mantissa.
  // Below it the code is a multiple of 2^-9, which the sum with 1.5 * 2^14 rounds to.
  const uint32_t bits = __float_as_uint(magnitude);
  const uint32_t normal = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - ((127 - 7) << 3);
  const uint32_t subnormal = __float_as_uint(__fadd_rn(magnitude, 24576.0f)) & 0xff;
  const uint32_t code = magnitude < 0x1p-6f ? subnormal : normal;
  return isnan(x) ? 0x7f : sign | code;
}

// The codes of two values, the first in the lower byte.
__device__ inline uint32_t e4m3_pair(float low, float high) {
#if __CUDA_ARCH__ >= 890
  return ptx::cvt_rn_satfinite_e4m3x2_f32(low, high);
#else
  return e4m3_code(low) | e4m3_code(high) << 8;
#endif
}

// E4M3 codes of x * scale. The product is rounded to FP32 first, as the reference does it.
__device__ inline uint2 e4m3_codes(Floats x, float scale) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    pairs[i] = e4m3_pair(__fmul_rn(x.v[2 * i], scale), __fmul_rn(x.v[2 * i + 1], scale));
  }
  return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}
