// The stores of O and of the log-sum-exp of kernels/attention/mixed.
#pragma once

#include "attention/columns.cuh"
#include "attention/online_softmax.cuh"
#include "attention/row_state.cuh"
#include "include/ptx.cuh"
#include "problem.cuh"

namespace attention::mixed {

template <class Traits>
struct Output {
  using Sizes = TileSizes<Traits>;

  // Stores O / row_sum, and the log-sum-exp if it is wanted.
  __device__ __forceinline__ static void store(const Problem& p, const RowState<Traits>& rows,
                                               const WorkTile<Traits>& tile, float descale_v, int) {
    const Lane<Traits> lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.first_query + lane.row + 8 * half;
      const float row_sum = rows.row_sum[half];
      // A row that attends to no key is 0.
      const float scale = row_sum > 0.0f ? descale_v * ptx::rcp_approx_ftz(row_sum) : 0.0f;
      uint16_t* row = tile.o + static_cast<size_t>(query) * Sizes::kHeadDim + 4 * lane.t;
      if (query >= p.queries) continue;
      if (p.lse != nullptr && lane.t == 0) {
        tile.lse[query] = log_sum_exp(row_sum, rows.neg_row_max_scaled[half]);
      }
      if (p.o_bf16) {
        store_columns<true>(rows, half, scale, row);
      } else {
        store_columns<false>(rows, half, scale, row);
      }
    }
  }
};

}  // namespace attention::mixed
