// The stores of O and of the log-sum-exp of kernels/mixed.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../online_softmax.cuh"
#include "../columns.cuh"
#include "../row_state.cuh"
#include "problem.cuh"

namespace stage7b {

// Stores the columns of the lane's upper (half = 0) or lower row.
template <bool kIsBf16>
__device__ __forceinline__ void store_row(const RowState& rows, int half, float scale,
                                          uint16_t* row, int t) {
  if constexpr (knob::kDirectV) {
    store_adjacent<kIsBf16>(rows, half, scale, row + 16 * t);
  } else {
    store_columns<kIsBf16>(rows, half, scale, row + 4 * t);
  }
}

// Stores O / row_sum, and the log-sum-exp if it is wanted.
__device__ __forceinline__ void store_output(const Problem& p, const RowState& rows,
                                             const WorkTile& tile, float descale_v, int) {
  const Lane lane;
  uint16_t* head = p.o_of(tile.head);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = tile.first_query + lane.row + 8 * half;
    const float row_sum = rows.row_sum[half];
    // A row that attends to no key is 0.
    const float scale = row_sum > 0.0f ? descale_v * ptx::rcp_approx_ftz(row_sum) : 0.0f;
    if (query >= p.queries) continue;
    if (p.lse != nullptr && lane.t == 0) {
      tile.lse[query] = log_sum_exp(row_sum, rows.neg_row_max_scaled[half]);
    }
    uint16_t* row = head + p.o_strides.row * query;
    if (p.o_bf16) {
      store_row<true>(rows, half, scale, row, lane.t);
    } else {
      store_row<false>(rows, half, scale, row, lane.t);
    }
  }
}

}  // namespace stage7b
