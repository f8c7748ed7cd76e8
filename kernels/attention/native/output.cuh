// The stores of O of kernels/attention/native.
#pragma once

#include <cstdint>

#include "../row_state.cuh"
#include "../../include/output.cuh"

namespace stage7b {

// Stores the columns of one row. A lane has columns 2t and 2t+1 of every eight. Neighbours exchange
// pairs, so that four lanes write 32 adjacent bytes: even lanes have columns 2t .. 2t+3 of the
// first of two blocks of eight, odd lanes 2t-2 .. 2t+1 of the second.
__device__ __forceinline__ void store_row(const RowState& rows, int half, float scale,
                                          uint16_t* row, int t, bool inside) {
  const bool odd = t % 2;
  uint16_t* to = row + (odd ? 2 * t + 6 : 2 * t);
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 8; i += 2) {
    const float* o = &rows.o[i / 8][i % 8 * 4 + 2 * half];
    const uint32_t first = pack_output<knob::kBf16Out>(o[0] * scale, o[1] * scale);
    const uint32_t second = pack_output<knob::kBf16Out>(o[4] * scale, o[5] * scale);
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFF, odd ? first : second, 1);
    const uint2 four = odd ? make_uint2(other, second) : make_uint2(first, other);
    if (inside) *reinterpret_cast<uint2*>(to + 8 * i) = four;
  }
}

}  // namespace stage7b
