// Numbers of O in the format that is asked for.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "knobs.cuh"

// Two numbers side by side.
__device__ __forceinline__ uint32_t output_pair(float first, float second) {
  if constexpr (knob::kBf16Out) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}
