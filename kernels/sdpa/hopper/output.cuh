// The output format of O: FP16, or BF16 with USE_BF16_OUT.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "knobs.cuh"

// Two adjacent columns of O in one word.
__device__ __forceinline__ uint32_t pack_output(float first, float second) {
  if constexpr (knob::kBf16Out) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}
