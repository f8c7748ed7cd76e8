// The columns of O that a lane has, as FP16 or BF16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "row_state.cuh"

namespace stage7b {

// Two adjacent columns of O in one word.
template <bool kBf16>
__device__ __forceinline__ uint32_t pack_columns(float first, float second) {
  if constexpr (kBf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

// Stores the columns of the lane's upper (half = 0) or lower row. A lane has columns 4t .. 4t+3 of
// every 16.
template <bool kBf16>
__device__ __forceinline__ void store_columns(const RowState& rows, int half, float scale,
                                              uint16_t* row) {
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 16; ++i) {
    constexpr int kBlocks = Sizes::kPartColumns / 16;
    const float* o = &rows.o[i / kBlocks][i % kBlocks * 8 + 2 * half];
    *reinterpret_cast<uint2*>(row + 16 * i) =
        make_uint2(pack_columns<kBf16>(o[0] * scale, o[4] * scale),
                   pack_columns<kBf16>(o[1] * scale, o[5] * scale));
  }
}

}  // namespace stage7b
