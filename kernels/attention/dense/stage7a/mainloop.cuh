// The mainloop of a warpgroup: all steps of a tile.
#pragma once

#include "../../../include/problem.cuh"
#include "../../../include/ptx.cuh"
#include "../../../include/wgmma.cuh"
#include "gemm.cuh"
#include "load.cuh"
#include "shared_storage.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace stage7a {

__device__ __forceinline__ int num_steps(const WorkTile& tile) {
  return (tile.key_end + Sizes::kStepKeys - 1) / Sizes::kStepKeys;
}

// K and V of the first step have been requested. q is the descriptor address of Q.
//
// The two barriers of a step order every reuse of shared memory: a warp that writes V, P or a row
// max again has passed a barrier that all warps reach after their last read of it. V has two
// stages.
template <bool kSingleStep>
__device__ __forceinline__ void mainloop(RowState& rows, KFragment& k, const Problem& problem,
                                         const WorkTile& tile, const Warpgroup& warpgroup,
                                         const Lane& lane, uint32_t q, float softmax_scale_log2,
                                         int first_key, int steps) {
  RowStats& stats = *warpgroup.stats;
  for (int step = 0; step < steps; ++step, first_key += Sizes::kStepKeys) {
    const bool last = step + 1 == steps;
    Scores scores;
    compute_scores(scores, k, q);
    if (!last) k.load<false>(tile, lane, first_key + Sizes::kStepKeys, problem.keys);
    if ((!kSingleStep && first_key + Sizes::kBlockN > problem.keys) ||
        (problem.causal && first_key + Sizes::kBlockN > tile.causal_key_end)) {
      mask_scores(scores, lane, first_key, tile.causal_key_end, problem.causal, problem.keys);
    }
    float row_max[Sizes::kQueries];
    lane_row_max(row_max, scores);
    publish(stats.row_max, row_max, lane, Max{});
    ptx::cp_async_wait_group<0>();
    warpgroup.sync();  // V has arrived, and the row max of every warp is published
    VtFragment v_t;
    v_t.load(warpgroup.v + step % 2 * Sizes::kVBytes, lane);
    rows.update_row_max(stats, lane, softmax_scale_log2);
    if (!last) {
      issue_v_load<false>(warpgroup.v + (step + 1) % 2 * Sizes::kVBytes, tile,
                          first_key + Sizes::kStepKeys, problem.keys);
    }
    exponentiate<kSingleStep>(rows, scores, warpgroup.p, lane, softmax_scale_log2);
    ptx::fence_proxy_async();
    warpgroup.sync();  // P of every warp is stored
    Output pv;
    issue_pv(pv, v_t, ptx::descriptor_address(warpgroup.p));
    if (last) {
      publish(stats.row_sum, rows.row_sum, lane, Sum{});
      if constexpr (Sizes::kWarpgroups == 1) warpgroup.sync();
    }
    wait_pv(pv);
    if constexpr (kSingleStep) {
      rows.output = pv;
    } else {
      rows.accumulate(pv);
    }
  }
}

}  // namespace stage7a
