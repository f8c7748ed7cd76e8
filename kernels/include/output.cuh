// The formats of O: FP16 or BF16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// Two adjacent columns of O in one word.
template <bool kBf16>
__device__ __forceinline__ uint32_t pack_output(float first, float second) {
  if constexpr (kBf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

// The same with the format as an argument.
__device__ __forceinline__ uint32_t pack_output(float first, float second, bool bf16) {
  return bf16 ? pack_output<true>(first, second) : pack_output<false>(first, second);
}
