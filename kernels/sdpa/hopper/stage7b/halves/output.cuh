// The stores of O and of the log-sum-exp of kernels/fused.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../online_softmax.cuh"
#include "../../output.cuh"
#include "../row_state.cuh"
#include "problem.cuh"

namespace stage7b {

// Stores O / row_sum, and the log-sum-exp if it is wanted. A lane has columns 2t and 2t+1 of every
// eight.
__device__ __forceinline__ void store_output(const Problem& p, const RowState& rows,
                                             const WorkTile& tile, float descale_v, int) {
  const Lane lane;
  uint16_t* head = p.o_of(tile.head) + 2 * lane.t;
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
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 8; ++i) {
      const float* o = &rows.o[i / 8][i % 8 * 4 + 2 * half];
      *reinterpret_cast<uint32_t*>(row + 8 * i) = pack_output(o[0] * scale, o[1] * scale);
    }
  }
}

}  // namespace stage7b
