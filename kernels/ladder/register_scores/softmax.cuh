// The softmax step, in registers: scores become P in place; O and the row sums are rescaled where a
// row max grows.
//
// The four lanes of one g share a row: two shuffles give its row max. Its row sum is part of P·V.
#pragma once

#include <cstdio>

#include "../../include/exp2.cuh"
#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "fragments.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace register_scores {

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// log2 of the scale of P (FA3: Max_offset). E4M3 operands take P up to 256, to use their range.
constexpr float kMaxOffset = knob::kFp8Mma ? 8.0f : 0.0f;

__device__ __forceinline__ void mask_scores(Scores& scores, const Problem& problem,
                                            const WorkTile& tile, int first_key,
                                            const Position& at) {
#pragma unroll
  for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = (at.row_warp * Sizes::kRowTiles + m) * 16 + at.g + 8 * h;
      const int key_end =
          problem.causal ? min(problem.keys, tile.causal_key_end + row) : problem.keys;
#pragma unroll
      for (int j = 0; j < Sizes::kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (first_key + key_of(j, 2 * at.t + i) >= key_end) {
            scores.s[m][j][2 * h + i] = -INFINITY;
          }
        }
      }
    }
  }
}

// Scores to P in place; updates the row max; rescales O and the row sums.
__device__ __forceinline__ void online_softmax(Scores& scores, RowState& rows,
                                               float softmax_scale_log2) {
#pragma unroll
  for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float row_max = rows.row_max[m][h];
#pragma unroll
      for (int j = 0; j < Sizes::kScoreTiles; ++j) {
        row_max = fmaxf(row_max, fmaxf(scores.s[m][j][2 * h], scores.s[m][j][2 * h + 1]));
      }
      row_max = fmaxf(row_max, __shfl_xor_sync(kAllLanes, row_max, 1));
      row_max = fmaxf(row_max, __shfl_xor_sync(kAllLanes, row_max, 2));
      // Before its first key a row has a row max of -inf; 0 avoids inf - inf.
      const float max_scaled =
          row_max == -INFINITY ? 0.0f : row_max * softmax_scale_log2 - kMaxOffset;
#pragma unroll
      for (int j = 0; j < Sizes::kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores.s[m][j][2 * h + i];
          s = exp2_mixed<knob::kExp2CubicEighths>(fmaf(s, softmax_scale_log2, -max_scaled), i);
        }
      }
      const float rescale = ptx::ex2_approx_ftz(
          fmaf(rows.row_max[m][h], softmax_scale_log2, -max_scaled - kMaxOffset));
#pragma unroll
      for (int n = 0; n <= Sizes::kOutTiles; ++n) {
        rows.o[m][n][2 * h] *= rescale;
        rows.o[m][n][2 * h + 1] *= rescale;
      }
      rows.row_max[m][h] = row_max;
    }
  }
}

// The whole softmax step between the two products.
__device__ __forceinline__ void softmax_step(Scores& scores, RowState& rows, const Problem& problem,
                                             const WorkTile& tile, const Scales& scales,
                                             int first_key, const Position& at) {
  // Every row of the warp attends to the keys before this.
  const int unmasked_key_end =
      problem.causal
          ? min(problem.keys, tile.causal_key_end + at.row_warp * Sizes::kRowTiles * 16)
          : problem.keys;
  if (first_key + Sizes::kBlockN > unmasked_key_end) {
    mask_scores(scores, problem, tile, first_key, at);
  }
  online_softmax(scores, rows, scales.softmax_scale_log2);
  if constexpr (knob::kDebugPrint) {
    if (tile.head.q == 0 && tile.first_query == 0 && threadIdx.x == 0) {
      printf("sdpa: keys from %d, row 0: max %g, sum %g, out[0] %g\n", first_key,
             rows.row_max[0][0], rows.row_sum(0, 0), rows.o[0][0][0]);
    }
  }
}

}  // namespace register_scores
