// The mainloop of a block: all steps of a tile.
#pragma once

#include <cstdio>

#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "gemm.cuh"
#include "load.cuh"
#include "shared_storage.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace shared_scores {

// Prints the state of row 0 after a step.
__device__ __forceinline__ void debug_print(const RowState& rows, const WorkTile& tile, int step) {
  if (tile.head.q == 0 && tile.first_query == 0 && threadIdx.x == 0) {
    printf("sdpa: keys from %d, row 0: max %g, sum of lane 0 %g, out[0] %g\n",
           step * Sizes::kBlockN, rows.row_max[0], rows.row_sum[0], rows.o[0][0]);
  }
}

__device__ __forceinline__ void mainloop(RowState& rows, const SharedStorage& smem,
                                         const Problem& problem, const WorkTile& tile,
                                         float softmax_scale_log2, int warp, int lane, int steps) {
  const int first_row = warp * Sizes::kRows;  // of the tile
  const int keys = problem.keys;
  for (int step = 0; step < steps; ++step) {
    if constexpr (knob::kCpAsync) {
      // The stage of this copy was last read while V of step - 1 was decoded, two barriers ago.
      const int ahead = step + Sizes::kStages - 1;
      if (ahead < steps) copy_step_async(smem, tile.k, tile.v, ahead, keys);
      ptx::cp_async_commit_group();
      ptx::cp_async_wait_group<Sizes::kStages - 1>();
    }
    __syncthreads();  // K and V of this step have arrived; the last P·V has read kv
    if constexpr (knob::kWmmaPv) {
      if (step > 0) accumulate_pv(smem, rows, first_row, lane);
    }
    fill_kv(smem, tile.k, step, 0, keys);
    __syncthreads();  // K is decoded, in step 0 Q too; the last P·V has left the score buffer
    compute_scores(smem, first_row, warp, lane);
    __syncthreads();  // all scores are stored, and K has been read
    fill_kv(smem, tile.v, step, 1, keys);
    softmax_step(smem, rows, first_row, lane, step, keys, tile.causal_key_end + first_row,
                 problem.causal, softmax_scale_log2);
    if constexpr (knob::kDebugPrint) debug_print(rows, tile, step);
    __syncthreads();  // V is decoded and P stored
    multiply_pv(smem, rows, first_row, warp, lane);
  }
  if constexpr (knob::kWmmaPv) {
    __syncthreads();  // the last P·V is stored
    if (steps > 0) accumulate_pv(smem, rows, first_row, lane);
  }
  if constexpr (knob::kCpAsync) ptx::cp_async_wait_group<0>();
}

}  // namespace shared_scores
