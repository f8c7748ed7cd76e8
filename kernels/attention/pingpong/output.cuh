// The epilogue of a tile: normalise O, and store it and the log-sum-exp.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention/columns16.cuh"
#include "include/output.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::pingpong {

// The row sum of the lane's upper (half = 0) or lower row; 0 if the row attends to no key: the
// linear exp2 of minus infinity is more than 0.
template <class Traits>
__device__ __forceinline__ float row_sum_of(const RowResult<Traits>& result, int half) {
  float row_sum = result.sums[2 * half];
  if constexpr (!Traits::kSumColumns) {
    row_sum += result.sums[2 * half + 1];
    row_sum += __shfl_xor_sync(0xFFFFFFFF, row_sum, 1);
    row_sum += __shfl_xor_sync(0xFFFFFFFF, row_sum, 2);
  }
  return result.neg_row_max_scaled[half] == kNoRowMax ? 0.0f : row_sum;
}

template <class Traits>
struct Output {
  // Stores O / row_sum of the tile of a round, and the log-sum-exp if it is wanted.
  __device__ __forceinline__ static void store(const Problem& p, const Rows<Traits>& rows,
                                               const RowResult<Traits>& result, unsigned round,
                                               int consumer) {
    const Lane lane;
    const Tile<Traits> tile = read_tile<Traits>(round);
    const unsigned batch = uniform(tile.batch), first_head = uniform(tile.head);
    const int first_query = uniform(tile.first_query) + p.head_rows * consumer;
  #pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane.row + 8 * half, query = first_query + (row & (p.head_rows - 1));
      const unsigned head = first_head + (row >> (__ffs(p.head_rows) - 1));
      const float row_sum = row_sum_of(result, half);
      const float scale =
          row_sum > 0.0f ? ptx::rcp_approx_ftz(row_sum) : row_sum == 0.0f ? 0.0f : NAN;
      const bool inside = query < p.queries;
      if (inside && p.lse != nullptr && lane.t == 0) {
        const int64_t at = static_cast<int64_t>(batch * p.kv_heads * p.group + head) * p.queries;
        p.lse[at + query] = log_sum_exp(row_sum, result.neg_row_max_scaled[half]);
      }
      uint16_t* o = p.o + p.o_strides.batch * batch + p.o_strides.head * head;
      store_columns16<Traits::kBf16, Traits::kHeadDim>(
          rows.o, half, scale, o + p.o_strides.row * query, lane.t, inside);
    }
  }
};

}  // namespace attention::pingpong
