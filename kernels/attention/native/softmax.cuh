// The softmax step: row state, exponentials, and P in 16 bits. Mask, row max and linear
// exponentials are those of attention/softmax16.cuh.
#pragma once

#include <climits>

#include "attention/softmax16.cuh"
#include "include/output.cuh"
#include "include/ptx.cuh"
#include "include/wgmma.cuh"
#include "storage.cuh"

namespace attention::native {

// O, row max and row sum of the two query rows of a lane.
struct Rows : RowState<Traits> {
  float sums[4];  // of P: two equal ones for each row
  // The bits of the largest score that needs no new row max. As integers the bits of floats sort
  // like the floats unless they are negative: if the limit is, it is INT_MIN, and every score but a
  // negative 0, which products do not have, needs one.
  int limit[2];

  __device__ __forceinline__ void clear() {
    RowState<Traits>::clear();
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = 0.0f;
    limit[0] = limit[1] = INT_MIN;
  }
  // Keeps the compiler from moving an access to the results of P·V beyond this point.
  __device__ __forceinline__ void fence() {
#pragma unroll
    for (int part = 0; part < Sizes::kParts; ++part) ptx::fence_registers(o[part]);
    ptx::fence_registers(sums);
  }
};

using Mask = RowMask<Traits>;

// Updates the row max with the scores of a step, if one of the warp's rows exceeds its limit. Then
// rescales O and the row sums.
__device__ __forceinline__ void update_row_max(const float (&s)[Sizes::kScores], Rows& rows,
                                               float softmax_scale_log2) {
  const int upper = lane_max_bits(s, 0), lower = lane_max_bits(s, 1);
  if (!__any_sync(0xFFFFFFFF, upper > rows.limit[0] || lower > rows.limit[1])) return;
  const int bits[2] = {quad_max(upper), quad_max(lower)};
  float step_max[2] = {__int_as_float(bits[0]), __int_as_float(bits[1])}, rescale[2];
  if (!__all_sync(0xFFFFFFFF, (bits[0] | bits[1]) >= 0)) {
    step_max[0] = step_row_max(s, 0), step_max[1] = step_row_max(s, 1);
  }
  take_row_max<Traits>(rows, step_max, rescale, softmax_scale_log2);
#pragma unroll
  for (int part = 0; part < Sizes::kParts; ++part) {
#pragma unroll
    for (int i = 0; i < Sizes::kPartColumns / 2; ++i) rows.o[part][i] *= rescale[i / 2 % 2];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) rows.sums[i] *= rescale[i / 2];
}

// P (64, TILE_N) as operand A of P·V: one product per 16 keys.
struct Probabilities {
  uint32_t words[Sizes::kBlockN / 16][4];

  // P = exp2(s * softmax_scale_log2 + neg_row_max_scaled), in 16 bits.
  __device__ __forceinline__ void exponentiate(const float (&s)[Sizes::kScores], const Rows& rows,
                                               float scale) {
#pragma unroll
    for (int i = 0; i < Sizes::kScores; i += 2) {
      if (!is_linear<Traits>(i)) exponentiate_pair(s, i, rows, scale);
    }
#pragma unroll
    for (int i = 0; i < Sizes::kScores; i += 2) {
      if (is_linear<Traits>(i)) exponentiate_pair(s, i, rows, scale);
    }
  }

 private:
  __device__ __forceinline__ void exponentiate_pair(const float (&s)[Sizes::kScores], int i,
                                                    const Rows& rows, float scale) {
    const int half = i / 2 % 2;
    const float offset = rows.neg_row_max_scaled[half];
    uint32_t& word = words[i / 8][i / 2 % 4];
    if (is_linear<Traits>(i)) {
      word = LinearExp2<Traits>::pair(s[i], s[i + 1], scale, offset);
    } else {
      word = pack_output<kBf16>(ptx::ex2_approx_ftz(fmaf(s[i], scale, offset)),
                         ptx::ex2_approx_ftz(fmaf(s[i + 1], scale, offset)));
    }
  }
};

}  // namespace attention::native
