// The stores of O and of the log-sum-exp.
#pragma once

#include <cstdint>

#include "include/output.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::native {

// Stores the columns of one row. A lane has columns 2t and 2t+1 of every eight. Neighbours exchange
// pairs, so that four lanes write 32 adjacent bytes: even lanes have columns 2t .. 2t+3 of the
// first of two blocks of eight, odd lanes 2t-2 .. 2t+1 of the second.
__device__ __forceinline__ void store_row(const Rows& rows, int half, float scale,
                                          uint16_t* row, int t, bool inside) {
  const bool odd = t % 2;
  uint16_t* to = row + (odd ? 2 * t + 6 : 2 * t);
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 8; i += 2) {
    const float* o = &rows.o[i / 8][i % 8 * 4 + 2 * half];
    const uint32_t first = pack_output<kBf16>(o[0] * scale, o[1] * scale);
    const uint32_t second = pack_output<kBf16>(o[4] * scale, o[5] * scale);
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFF, odd ? first : second, 1);
    const uint2 four = odd ? make_uint2(other, second) : make_uint2(first, other);
    if (inside) *reinterpret_cast<uint2*>(to + 8 * i) = four;
  }
}

// Stores O / row_sum, and the log-sum-exp if it is wanted.
__device__ __forceinline__ void store_output(const Problem& p, const Rows& rows, const Tile& tile) {
  const Lane<Traits> lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = tile.first_query + lane.row % Sizes::kBlockM + 8 * half;
    // A row that attends to no key is 0: the linear exp2 of minus infinity is a little more than 0.
    const bool empty = rows.neg_row_max_scaled[half] == kNoRowMax;
    const float row_sum = empty ? 0.0f : rows.sums[2 * half];
    const float scale = row_sum > 0.0f ? ptx::rcp_approx_ftz(row_sum) : 0.0f;
    const bool inside = query < p.queries;
    if (inside && p.lse != nullptr && lane.t == 0) {
      p.lse[tile.lse + query] = log_sum_exp(row_sum, rows.neg_row_max_scaled[half]);
    }
    store_row(rows, half, scale, p.o + tile.o + p.o_strides.row * query, lane.t, inside);
  }
}

}  // namespace attention::native
