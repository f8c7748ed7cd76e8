// The softmax step of a warp: row state, mask and row max. Row max, limits and the log-sum-exp are
// those of attention/softmax16.cuh.
#pragma once

#include <cmath>

#include "attention/softmax16.cuh"
#include "include/ptx.cuh"
#include "problem.cuh"

namespace attention::warp {

// O, row max and row sum of the two rows that a lane has of 16.
struct Rows : RowMax {
  float row_sum[2];   // of the lane's own columns
  float o[kOutputs];  // four of each 8 columns: 2t and 2t+1 of row g, then of row g+8

  __device__ __forceinline__ void clear() {
    clear_row_max();
    row_sum[0] = row_sum[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0.0f;
  }
};

// First row of this lane in the tile, of row tile m.
__device__ __forceinline__ int lane_row(int m) {
  const int thread = threadIdx.x;
  return thread / 32 * kWarpRows + 16 * m + thread % 32 / 4;
}

// Masks the scores of a step in rows `row` and `row + 8` of the tile.
__device__ __forceinline__ void apply_mask(float (&s)[kScores], const Problem& p, const Tile& tile,
                                           int row, int n_block) {
  const int first_key = n_block * kBlockN + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row_end = tile.causal_key_end + row + 8 * half;
    const int end = (p.causal ? min(p.keys, row_end) : p.keys) - first_key;
#pragma unroll
    for (int i = 2 * half; i < kScores; i += 4) {
      if (i / 4 * 8 >= end) s[i] = -INFINITY;
      if (i / 4 * 8 + 1 >= end) s[i + 1] = -INFINITY;
    }
  }
}

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
