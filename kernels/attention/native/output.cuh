// The stores of O and of the log-sum-exp.
#pragma once

#include <cstdint>

#include "attention/columns16.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::native {

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
    store_columns16<kBf16, Sizes::kHeadDim>(rows.o[0], half, scale,
                                            p.o + tile.o + p.o_strides.row * query, lane.t, inside);
  }
}

}  // namespace attention::native
