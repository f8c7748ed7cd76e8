// The softmax step of a warp: row state, factors of the scores, mask and row max. Row max and the
// log-sum-exp are those of attention/softmax16.cuh.
//
// Scores stay as the products leave them, kScoreOrigin + q·k in units of a lane's factors. A step
// has one factor of each lane, `scale`, that takes them to log2 units. So P is one FMA away:
//
//   P = exp2(s * scale + (neg_row_max_scaled - kScoreOrigin * scale))
//
// That offset is rounded by up to 0.75 * scale, less than one unit of the integer products, of
// which the rounding of Q and K costs more.
#pragma once

#include <cmath>

#include "attention/softmax16.cuh"
#include "include/problem.cuh"
#include "include/ptx.cuh"
#include "problem.cuh"
#include "storage.cuh"

namespace attention::warp8 {

// O, row max and row sum of the two rows that a lane has of 16.
struct Rows : RowMax {
  float row_sum[2];   // of the lane's own columns
  float o[kOutputs];  // four of each 8 columns, two of row g, then of row g+8

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

// The factor of the lane's rows, times the softmax scale in log2 units. With E4M3 it has that of K.
__device__ __forceinline__ float row_scale(const Problem& p, const Tile& tile) {
  if constexpr (kE4M3Qk) {
    return softmax_scale_log2(tile.descale_q[0] * tile.descale_k[0] * p.softmax_scale);
  }
  const float scale = softmax_scale_log2(p.softmax_scale);
  const int first = tile.first_query + static_cast<int>(threadIdx.x) / 32 * kWarpRows;
  if (first >= p.queries) return scale;
  return tile.descale_q[first / kFactorRows * kQFactors + threadIdx.x % 32 / 4] * scale;
}

// The scale of the lane's scores in a step, of each 64 keys.
struct ScoreScale {
  float of[kKeyGroups];

  __device__ __forceinline__ ScoreScale(const Storage& storage, int stage, float row_scale) {
#pragma unroll
    for (int i = 0; i < kKeyGroups; ++i) {
      of[i] = row_scale;
      if constexpr (!kE4M3Qk) {
        const uint32_t factor = storage.factors(stage) + 16 * i + 4 * (threadIdx.x % 4);
        // Minus infinity times 0 is NaN.
        of[i] = ptx::max_nan(of[i] * __uint_as_float(ptx::ld_shared_4(factor)), 1e-30f);
      }
    }
  }
  // Of score i of a row tile.
  __device__ __forceinline__ float at(int i) const { return of[i / (kScores / kKeyGroups)]; }
};

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

// The max of the lane's scores of a row, in log2 units.
__device__ __forceinline__ float lane_max(const float (&s)[kScores], const ScoreScale& scale,
                                          int half) {
  constexpr int kOfGroup = kScores / kKeyGroups;
  float row_max = -INFINITY;
#pragma unroll
  for (int i = 0; i < kKeyGroups; ++i) {
    float group_max;
    const auto& scores = reinterpret_cast<const float(&)[kOfGroup]>(s[i * kOfGroup]);
    if constexpr (kE4M3Qk) {
      group_max = max_of(scores[2 * half], scores[2 * half + 1]);
#pragma unroll
      for (int j = 4; j < kOfGroup; j += 4) {
        group_max = max_of(group_max, max_of(scores[j + 2 * half], scores[j + 2 * half + 1]));
      }
    } else {
      group_max = __int_as_float(lane_max_bits(scores, half));  // all but masked ones are positive
    }
    row_max = max_of(row_max, (group_max - kScoreOrigin) * scale.of[i]);
  }
  return row_max;
}

// Updates the row max with the scores of a step, if one of the warp's rows exceeds what P can hold.
// Computes the factors that rescale O, and rescales the row sums.
__device__ __forceinline__ bool update_row_max(const float (&s)[kScores], Rows& rows,
                                               const ScoreScale& scale, float (&rescale)[2]) {
  constexpr float kLimit = kMaxOffset + Traits::kGrowth;
  rescale[0] = rescale[1] = 1.0f;
  float step_max[2];
  bool within = true;  // not with NaN
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    step_max[half] = lane_max(s, scale, half);
    within = within && step_max[half] + rows.neg_row_max_scaled[half] <= kLimit;
  }
  if (__all_sync(0xFFFFFFFF, within)) return false;
#pragma unroll
  for (int half = 0; half < 2; ++half) step_max[half] = quad_max(step_max[half]);
  take_row_max<Traits>(rows, step_max, rescale, 1.0f);
#pragma unroll
  for (int half = 0; half < 2; ++half) rows.row_sum[half] *= rescale[half];
  return true;
}

}  // namespace attention::warp8
