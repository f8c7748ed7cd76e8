// The columns of O that a lane has after products in 16 bits: 2t and 2t+1 of every eight.
#pragma once

#include <cstdint>

#include "../include/output.cuh"

namespace attention {

// Stores the columns of the lane's upper (half = 0) or lower row. Neighbours exchange pairs, so
// that four lanes write 32 adjacent bytes: even lanes have columns 2t .. 2t+3 of the first of two
// blocks of eight, odd lanes 2t-2 .. 2t+1 of the second. With kMaskColumns only the first `columns`
// are stored, a multiple of 4.
template <bool kBf16, int kHeadDim, bool kMaskColumns = false>
__device__ __forceinline__ void store_columns16(const float* o, int half, float scale,
                                                uint16_t* row, int t, bool inside,
                                                int columns = kHeadDim) {
  const bool odd = t % 2;
  const int column = odd ? 2 * t + 6 : 2 * t;
  uint16_t* to = row + column;
#pragma unroll
  for (int i = 0; i < kHeadDim / 8; i += 2) {
    const float* pairs = &o[4 * i + 2 * half];
    const uint32_t first = pack_output<kBf16>(pairs[0] * scale, pairs[1] * scale);
    const uint32_t second = pack_output<kBf16>(pairs[4] * scale, pairs[5] * scale);
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFF, odd ? first : second, 1);
    const uint2 four = odd ? make_uint2(other, second) : make_uint2(first, other);
    if (inside && (!kMaskColumns || column + 8 * i < columns)) {
      *reinterpret_cast<uint2*>(to + 8 * i) = four;
    }
  }
}

}  // namespace attention
