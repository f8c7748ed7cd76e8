// The softmax step of the rows that a warp owns.
#pragma once

#include "../../include/exp2.cuh"
#include "../../include/ptx.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace shared_scores {

// What a warp keeps of its rows from step to step.
struct RowState {
  float row_max[Sizes::kRows];  // scaled, in log2 units
  float row_sum[Sizes::kRows];  // of this lane's keys
  float o[Sizes::kRows][Sizes::kColumns];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < Sizes::kRows; ++r) {
      row_max[r] = -INFINITY;
      row_sum[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < Sizes::kColumns; ++c) o[r][c] = 0.0f;
    }
  }
};

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  }
  return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

// Computes P from the scores of a step, updates row max and row sum, and rescales O. With a causal
// mask row r of the warp attends to the keys before causal_key_end + r.
__device__ __forceinline__ void softmax_step(const SharedStorage& smem, RowState& rows,
                                             int first_row, int lane, int step, int keys,
                                             int causal_key_end, bool causal,
                                             float softmax_scale_log2) {
#pragma unroll
  for (int r = 0; r < Sizes::kRows; ++r) {
    const float* scores = smem.scores + (first_row + r) * Sizes::kPitchScores;
    const int key_end = causal ? min(keys, causal_key_end + r) : keys;
    float s[Sizes::kScores];
    float row_max = -INFINITY;
#pragma unroll
    for (int c = 0; c < Sizes::kScores; ++c) {
      const int key = step * Sizes::kBlockN + lane + 32 * c;
      s[c] = key < key_end ? scores[lane + 32 * c] * softmax_scale_log2 : -INFINITY;
      row_max = fmaxf(row_max, s[c]);
    }
    row_max = fmaxf(rows.row_max[r], warp_max(row_max));
    // Before its first key a row has a row max of -inf; 0 avoids inf - inf.
    const float max_scaled = row_max == -INFINITY ? 0.0f : row_max;
    const float rescale = ptx::ex2_approx_ftz(rows.row_max[r] - max_scaled);
    rows.row_max[r] = row_max;
    rows.row_sum[r] *= rescale;
    if constexpr (knob::kFusedSoftmaxPv) __syncwarp();  // all lanes have read the scores P replaces
#pragma unroll
    for (int c = 0; c < Sizes::kScores; ++c) {
      const __half p =
          __float2half_rn(exp2_mixed<knob::kExp2CubicEighths>(s[c] - max_scaled, r + c));
      rows.row_sum[r] += __half2float(p);  // the rounded P, which P·V uses
      smem.p[(first_row + r) * Sizes::kPitchP + lane + 32 * c] = p;
    }
#pragma unroll
    for (int c = 0; c < Sizes::kColumns; ++c) rows.o[r][c] *= rescale;
  }
}

}  // namespace shared_scores
