// The stores of O and of the log-sum-exp of sequences.
#pragma once

#include "attention/columns.cuh"
#include "attention/online_softmax.cuh"
#include "attention/row_state.cuh"
#include "include/ptx.cuh"
#include "problem.cuh"

namespace attention::prefill {

// The sum of a row with its sink. A sink may be far above all scores, so the larger of the two is
// the new row max. Returns the factor that rescales O.
__device__ __forceinline__ float add_sink(float& row_sum, float& neg_row_max_scaled, float sink) {
  constexpr float kLog2e = 1.4426950408889634f;
  const float rescale = ::update_row_max(neg_row_max_scaled, sink, kLog2e);
  row_sum = fmaf(row_sum, rescale, ptx::ex2_approx_ftz(fmaf(sink, kLog2e, neg_row_max_scaled)));
  return rescale;
}

template <class Traits>
struct Output {
  // Stores O / row_sum, and the log-sum-exp. A row that attends to no key is 0, with a sink too.
  __device__ __forceinline__ static void store(const Problem& p, const RowState<Traits>& rows,
                                               const WorkTile& tile, float descale_v, int) {
    const Lane<Traits> lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.first_query + lane.row + 8 * half;
      if (query >= tile.queries) continue;
      float row_sum = rows.row_sum[half], neg_row_max_scaled = rows.neg_row_max_scaled[half];
      float scale = row_sum > 0.0f ? descale_v : 0.0f;
      if (p.sinks != nullptr && row_sum > 0.0f) {
        scale *= add_sink(row_sum, neg_row_max_scaled, p.sinks[tile.sequence_head]);
      }
      if (row_sum > 0.0f) scale *= ptx::rcp_approx_ftz(row_sum);
      if (p.lse != nullptr && lane.t == 0) {
        tile.lse[query] = log_sum_exp(row_sum, neg_row_max_scaled);
      }
      uint16_t* row = tile.o + p.o_strides.row * query + 4 * lane.t;
      if (p.bf16) {
        store_columns<true>(rows, half, scale, row);
      } else {
        store_columns<false>(rows, half, scale, row);
      }
    }
  }
};

}  // namespace attention::prefill
