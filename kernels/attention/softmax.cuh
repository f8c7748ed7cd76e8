// The softmax step: row max, rescale factor, exponentials, and P in E4M3.
#pragma once

#include "../include/exp2.cuh"
#include "../include/ptx.cuh"
#include "../include/wgmma.cuh"
#include "online_softmax.cuh"
#include "row_state.cuh"
#include "tile_sizes.cuh"

namespace attention {

// ---- row max ----

// NaN wins: the linear exp2 approximation loses a NaN score, so the row max must carry it.
__device__ __forceinline__ float max_of(float a, float b) { return ptx::max_nan(a, b); }
__device__ __forceinline__ int max_of(int a, int b) { return max(a, b); }

// The max over the four lanes that share a row.
template <typename T>
__device__ __forceinline__ T quad_max(T x) {
  x = max_of(x, __shfl_xor_sync(0xFFFFFFFF, x, 1));
  return max_of(x, __shfl_xor_sync(0xFFFFFFFF, x, 2));
}

// The max of a step's scores in the lane's upper (half = 0) or lower row.
template <int kScores>
__device__ __forceinline__ float step_row_max(const float (&s)[kScores], int half) {
  float row_max = max_of(s[2 * half], s[2 * half + 1]);
#pragma unroll
  for (int i = 4; i < kScores; i += 4) {
    row_max = max_of(row_max, max_of(s[i + 2 * half], s[i + 2 * half + 1]));
  }
  return quad_max(row_max);
}

// The bits of the max of the lane's own scores, valid if they are not negative. Hopper has an
// instruction for the max of three integers, but none for three floats. As integers the bits of
// floats sort like the floats while the max is not negative. If all scores are negative the order
// is wrong and the result is negative.
template <int kScores>
__device__ __forceinline__ int lane_max_bits(const float (&s)[kScores], int half) {
  constexpr int kChains = kScores % 16 ? 2 : 4;  // independent, for instruction parallelism
  int row_max[kChains];
#pragma unroll
  for (int i = 0; i < kScores / 4; ++i) {
    const int first = __float_as_int(s[4 * i + 2 * half]);
    const int second = __float_as_int(s[4 * i + 2 * half + 1]);
    int& chain = row_max[i % kChains];
    chain = i < kChains ? max(first, second) : max(max(chain, first), second);
  }
#pragma unroll
  for (int chain = 1; chain < kChains; ++chain) row_max[0] = max(row_max[0], row_max[chain]);
  return row_max[0];
}

// Those of step_row_max.
template <int kScores>
__device__ __forceinline__ int step_row_max_bits(const float (&s)[kScores], int half) {
  return quad_max(lane_max_bits(s, half));
}

// Updates the row max of both rows with the scores of a step, and computes their rescale factors.
template <class Traits>
__device__ __forceinline__ void update_row_max(const Scores<Traits>& s, RowState<Traits>& rows,
                                               float (&rescale)[2], float softmax_scale_log2) {
  using Sizes = TileSizes<Traits>;
  // Elsewhere the integer form costs registers that the variant does not have.
  constexpr bool kIntegerMax = Sizes::kHeadDim == 64 && Sizes::kConsumers != 3;
  float step_max[2];
  bool known = false;
  if constexpr (kIntegerMax) {
    const int upper = step_row_max_bits(s, 0), lower = step_row_max_bits(s, 1);
    step_max[0] = __int_as_float(upper), step_max[1] = __int_as_float(lower);
    known = __all_sync(0xFFFFFFFF, (upper | lower) >= 0);
  }
  if (!known) step_max[0] = step_row_max(s, 0), step_max[1] = step_row_max(s, 1);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rescale[half] =
        ::update_row_max(rows.neg_row_max_scaled[half], step_max[half], softmax_scale_log2);
  }
}

// ---- exponentials ----

// Whether score i takes the linear exp2 approximation. Pairs of scores share the choice, because
// the approximation packs the results of a pair as two halves in the register of the first. With
// two segments per octave, or USE_CHECKERBOARD, the choice is a checkerboard of rows and blocks of
// eight keys: every row has the same share, and with four eighths every key position too.
template <class Traits>
__device__ __forceinline__ constexpr bool is_linear(int i) {
  constexpr bool kCheckerboard = Traits::kExp2Segments == 2 || Traits::kCheckerboard;
  return exp2_on_fma<Traits::kExp2LinearEighths>(kCheckerboard ? i / 4 + i / 2 % 2 : i / 2);
}

// Added to x before the linear approximation; two segments begin with 2^(x-1).
template <class Traits>
constexpr float kLinearBias = kExp2LinearBias - (Traits::kExp2Segments - 1);

// s = P = exp2(s * softmax_scale_log2 + neg_row_max_scaled) for scores [kFirst, kEnd).
template <int kFirst, int kEnd, class Traits>
__device__ __forceinline__ void exponentiate(Scores<Traits>& s, const RowState<Traits>& rows,
                                             float softmax_scale_log2) {
  using Sizes = TileSizes<Traits>;
  // The saturating form needs one more register than D = 256 leaves.
  constexpr bool kSaturating = Sizes::kHeadDim < 256;
#pragma unroll
  for (int i = kFirst; i < kEnd; ++i) {
    const float neg_row_max_scaled = rows.neg_row_max_scaled[i / 2 % 2];
    if (!is_linear<Traits>(i)) {
      s[i] = fmaf(s[i], softmax_scale_log2, neg_row_max_scaled);
    } else if constexpr (kSaturating) {
      s[i] = exp2_linear_saturating(
          s[i], softmax_scale_log2 / kExp2LinearRange,
          fmaf(neg_row_max_scaled, 1 / kExp2LinearRange, kLinearBias<Traits> / kExp2LinearRange));
    } else {
      s[i] = exp2_linear_max(s[i], softmax_scale_log2,
                             neg_row_max_scaled + (kLinearBias<Traits> + kExp2LinearOrigin));
    }
  }
#pragma unroll
  for (int i = kFirst; i < kEnd; i += 2) {
    if (is_linear<Traits>(i)) {
      const uint32_t halves = exp2_linear_halves(s[i], s[i + 1]);
      s[i] = __uint_as_float(Traits::kExp2Segments == 2 ? exp2_two_segments(halves) : halves);
    } else {
      s[i] = ptx::ex2_approx_ftz(s[i]), s[i + 1] = ptx::ex2_approx_ftz(s[i + 1]);
    }
  }
}

// ---- P ----

// P (64, TILE_N) in E4M3, as operand A of P·V: one product per 32 keys.
template <class Traits>
struct Probabilities {
  using Sizes = TileSizes<Traits>;
  uint32_t words[Sizes::kBlockN / 32][4];

  // Rounds the exponentials that `exponentiate` left in s.
  __device__ __forceinline__ void pack(const Scores<Traits>& s) {
#pragma unroll
    for (int i = 0; i < Sizes::kBlockN / 32; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // Word r holds two keys each of two blocks of eight keys, of the upper or the lower row.
        const int first = 16 * i + r / 2 * 8 + r % 2 * 2;
        words[i][r] = round_pair(s, first) | round_pair(s, first + 4) << 16;
      }
    }
  }

 private:
  __device__ __forceinline__ static uint32_t round_pair(const Scores<Traits>& s,
                                                        int first) {
    return is_linear<Traits>(first) ? ptx::cvt_rn_satfinite_e4m3x2_f16x2(__float_as_uint(s[first]))
                            : ptx::cvt_rn_satfinite_e4m3x2_f32(s[first], s[first + 1]);
  }
};

}  // namespace attention
