// The stores of O and of the log-sum-exp of sequences.
#pragma once

#include <cmath>

#include "attention/columns16.cuh"
#include "attention/pingpong/output.cuh"
#include "attention/prefill/output.cuh"
#include "tiles.cuh"

namespace attention::prefill16 {

template <class Traits>
struct Output {
  // Stores O / row_sum of the tile of a round, and the log-sum-exp. A row that attends to no key is
  // 0, with a sink too.
  __device__ __forceinline__ static void store(const Problem& p, const pingpong::Rows<Traits>& rows,
                                               const pingpong::RowResult<Traits>& result,
                                               unsigned round, int consumer) {
    using pingpong::uniform;
    const pingpong::Lane lane;
    const Tile<Traits> tile = pingpong::read_tile<Traits>(round);
    const int sequence = uniform(tile.sequence), first_row = uniform(tile.first_row);
    const unsigned head = uniform(tile.head);
    const int queries = uniform(tile.queries);
    const int first_query = uniform(tile.first_query) + 64 * consumer;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + lane.row + 8 * half;
      const bool inside = query < queries;
      float row_sum = pingpong::row_sum_of(result, half);
      float neg_row_max_scaled = result.neg_row_max_scaled[half];
      float scale = row_sum == 0.0f ? 0.0f : row_sum > 0.0f ? 1.0f : NAN;
      if (p.sinks != nullptr && row_sum > 0.0f) {
        scale = prefill::add_sink(row_sum, neg_row_max_scaled, p.sinks[head]);
      }
      if (row_sum > 0.0f) scale *= ptx::rcp_approx_ftz(row_sum);
      if (inside && p.lse != nullptr && lane.t == 0) {
        p.lse[p.lse_strides.offset(sequence, head, first_row + query)] =
            log_sum_exp(row_sum, neg_row_max_scaled);
      }
      uint16_t* o = p.o + p.o_strides.offset(sequence, head, first_row + query);
      store_columns16<Traits::kBf16, Traits::kHeadDim, true>(rows.o, half, scale, o, lane.t, inside,
                                                             p.o_columns);
    }
  }
};

}  // namespace attention::prefill16
