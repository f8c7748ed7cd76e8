// The softmax step of a warp: row state, scores and row max. Row max, limits and the log-sum-exp
// are those of attention/softmax16.cuh.
#pragma once

#include <cmath>

#include "attention/softmax16.cuh"
#include "include/problem.cuh"
#include "include/ptx.cuh"
#include "mask.cuh"
#include "problem.cuh"

namespace attention::warp {

constexpr float kLog2e = 1.4426950408889634f;

// O, row max and row sum of the two rows that a lane has of 16.
struct Rows : RowMax {
  float row_sum[2];  // of the lane's own columns
  // Four of each 8 columns: 2t and 2t+1 of row g, then of row g+8. Over E4M3 those of each 16: even
  // columns 4t and 4t+2 first, then odd ones.
  float o[kOutputs];

  __device__ __forceinline__ void clear() {
    clear_row_max();
    row_sum[0] = row_sum[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0.0f;
  }
};

// ---- scores ----

// The scale of the scores in log2 units when `transform_scores` is done: with ALiBi they are in
// these units, and capped ones are a tanh.
__device__ __forceinline__ float scores_scale_log2(const Problem& p, const Tile& tile) {
  if constexpr (!kHasOptions) return softmax_scale_log2(p.softmax_scale);
  if (p.alibi_slopes != nullptr) return 1.0f;
  return softmax_scale_log2(p.softcap == 0.0f ? tile.score_scale : p.softcap);
}

// s = tanh(s * scale / cap), where the problem has a cap, which then scales s. The error of this
// formula is absolute, and an infinite score becomes 1.
__device__ __forceinline__ void cap_scores(float (&s)[kScores], const Problem& p,
                                           const Tile& tile) {
  if (p.softcap == 0.0f) return;
  const float scale = __fdividef(2.0f * kLog2e * tile.score_scale, p.softcap);
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const float e = ptx::ex2_approx_ftz(s[i] * scale);
    s[i] = fmaf(-2.0f, ptx::rcp_approx_ftz(e + 1.0f), 1.0f);
  }
}

// s = s * scale - slope * distance, in log2 units, if the problem has slopes. The distance is that
// of the key from the row's own: that of query i is key i + keys - queries.
__device__ __forceinline__ void add_alibi(float (&s)[kScores], const Problem& p, const Tile& tile,
                                          int row, int n_block) {
  if (p.alibi_slopes == nullptr) return;
  const float scale = kLog2e * (p.softcap == 0.0f ? tile.score_scale : p.softcap);
  const int first_key = first_key_of(n_block) + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!has_row(p, tile, row + 8 * half)) continue;
    const RowPlace at(tile, row + 8 * half);
    const float slope =
        -kLog2e * p.alibi_slopes[p.alibi_stride_batch * tile.sequence + tile.head + at.head];
    const float distance = static_cast<float>(at.query + tile.keys - tile.queries - first_key);
#pragma unroll
    for (int i = 2 * half; i < kScores; i += 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        s[i + j] = fmaf(slope, fabsf(distance - (i / 4 * 8 + j)), s[i + j] * scale);
      }
    }
  }
}

// What options do with the scores of a step before the mask.
__device__ __forceinline__ void transform_scores(float (&s)[kScores], const Problem& p,
                                                 const Tile& tile, int row, int n_block) {
  if constexpr (kHasOptions) {
    cap_scores(s, p, tile);
    add_alibi(s, p, tile, row, n_block);
  }
}

// ---- row max ----

// Updates the row max with the scores of a step, if one of the warp's rows exceeds its limit. Then
// rescales O and the row sums.
__device__ __forceinline__ void update_row_max(const float (&s)[kScores], Rows& rows,
                                               float softmax_scale_log2) {
  const int upper = lane_max_bits(s, 0), lower = lane_max_bits(s, 1);
  if (!__any_sync(0xFFFFFFFF, upper > rows.limit[0] || lower > rows.limit[1])) return;
  const float step_max[2] = {step_row_max(s, 0), step_row_max(s, 1)};
  float rescale[2];
  take_row_max<Traits>(rows, step_max, rescale, softmax_scale_log2);
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) rows.o[i] *= rescale[i / 2 % 2];
#pragma unroll
  for (int half = 0; half < 2; ++half) rows.row_sum[half] *= rescale[half];
}

}  // namespace attention::warp
