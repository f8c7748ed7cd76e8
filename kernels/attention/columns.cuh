// The columns of O that a lane has, as FP16 or BF16.
#pragma once

#include <cstdint>

#include "../include/output.cuh"
#include "row_state.cuh"

namespace attention {

// Stores the columns of the lane's upper (half = 0) or lower row. A lane has columns 4t .. 4t+3 of
// every 16.
template <bool kBf16, class Traits>
__device__ __forceinline__ void store_columns(const RowState<Traits>& rows, int half, float scale,
                                              uint16_t* row) {
  using Sizes = TileSizes<Traits>;
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 16; ++i) {
    constexpr int kBlocks = Sizes::kPartColumns / 16;
    const float* o = &rows.o[i / kBlocks][i % kBlocks * 8 + 2 * half];
    *reinterpret_cast<uint2*>(row + 16 * i) =
        make_uint2(pack_output<kBf16>(o[0] * scale, o[4] * scale),
                   pack_output<kBf16>(o[1] * scale, o[5] * scale));
  }
}

}  // namespace attention
