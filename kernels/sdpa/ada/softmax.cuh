// The online softmax, between the two products and all in registers: scores become P in place, and O and its sums shrink where a maximum grows.
//
// Four lanes, those of one g, hold a row of the scores: two shuffles find its maximum. Its sum is left to P V.
#pragma once

#include <cstdio>

#include "../common/exp2.cuh"
#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "block.cuh"
#include "fragments.cuh"

namespace attention {

constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr float kScaleP = kFp8Mma ? 8.0f : 0.0f;  // log2: P up to 256 uses the range of E4M3

// Scores that a row does not see become minus infinity.
__device__ __forceinline__ void mask(Scores& scores, const Problem& problem, const Tile& tile, int first_key, const Place& at) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = (at.row_warp * kRowTiles + m) * 16 + at.g + 8 * h;
      const int limit = problem.causal ? min(problem.keys, tile.visible + row) : problem.keys;
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (first_key + key_of(j, 2 * at.t + i) >= limit) scores.s[m][j][2 * h + i] = -INFINITY;
        }
      }
    }
  }
}

// Scores to P, in place; the new maxima; O and the sums scaled to them.
__device__ __forceinline__ void softmax(Scores& scores, Output& out, float scale_log2) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = out.max[m][h];
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) top = fmaxf(top, fmaxf(scores.s[m][j][2 * h], scores.s[m][j][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float base = top == -INFINITY ? 0.0f : top * scale_log2 - kScaleP;  // a row that has seen no key yet must not compute inf - inf
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& s = scores.s[m][j][2 * h + i];
          s = exp2_of<kPolynomialEighths>(fmaf(s, scale_log2, -base), i);
        }
      }
      const float shrink = ptx::ex2_approx_ftz(fmaf(out.max[m][h], scale_log2, -base - kScaleP));
#pragma unroll
      for (int n = 0; n <= kOutTiles; ++n) {
        out.o[m][n][2 * h] *= shrink;
        out.o[m][n][2 * h + 1] *= shrink;
      }
      out.max[m][h] = top;
    }
  }
}

// What comes between the two products.
__device__ __forceinline__ void scores_to_p(Scores& scores, Output& out, const Problem& problem, const Tile& tile, const Factors& factors,
                                            int first_key, const Place& at) {
  const int all_see = problem.causal ? min(problem.keys, tile.visible + at.row_warp * kRowTiles * 16) : problem.keys;
  if (first_key + kTileN > all_see) mask(scores, problem, tile, first_key, at);
  softmax(scores, out, factors.scores_log2);
  if constexpr (kDebugPrint) {
    if (tile.head.q == 0 && tile.first_query == 0 && threadIdx.x == 0) {
      printf("sdpa: keys from %d, row 0: max %g, sum %g, out[0] %g\n", first_key, out.max[0][0], row_sum(out, 0, 0), out.o[0][0][0]);
    }
  }
}

}  // namespace attention
