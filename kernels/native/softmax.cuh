// The softmax step: row max, rescale factor, exponentials, row sum, and P in 16 bits.
#pragma once

#include "common/exp2.cuh"
#include "hopper/output.cuh"
#include "hopper/stage7b/softmax.cuh"
#include "ptx.cuh"
#include "storage.cuh"

namespace native {

using stage7b::RowState;

// ---- mask ----

// The keys that the 64 rows of a consumer attend to. Of one tile only `end` is kept.
struct Mask {
  int keys;
  int end;  // of the keys of the first row; with a causal mask each row attends to one more

  __device__ __forceinline__ Mask(const stage7b::Problem& p, const WorkTile& tile, int consumer)
      : keys(p.keys), end(p.causal ? tile.causal_key_end + 64 * consumer : p.keys) {}

  // Whether no row attends to a key of the step.
  __device__ __forceinline__ bool hides(int n_block) const {
    return n_block * Sizes::kBlockN >= min(keys, end) + 63;
  }
  // Masks the scores of a step, if a row does not attend to all its keys.
  __device__ __forceinline__ void apply(float (&s)[Sizes::kScores], int n_block) const {
    if ((n_block + 1) * Sizes::kBlockN <= min(keys, end)) return;
    const stage7b::Lane lane;
    const int first_key = n_block * Sizes::kBlockN + 2 * lane.t;
    const int row_end = end + lane.row % 64;
    const int ends[2] = {min(keys, row_end) - first_key, min(keys, row_end + 8) - first_key};
    stage7b::mask_scores(s, ends);
  }
};

// ---- row max ----

// The row max may grow by this much, in log2 units, before O is rescaled. P is then up to 2^16, in
// FP16 2^15, and so are row sums, in FP32.
constexpr float kGrowth = kBf16 ? 8.0f : 7.0f;

// Updates the row max of both rows with the scores of a step, and computes their rescale factors.
__device__ __forceinline__ void update_row_max(const float (&s)[Sizes::kScores], RowState& rows,
                                               float softmax_scale_log2) {
  const int upper = stage7b::step_row_max_bits(s, 0), lower = stage7b::step_row_max_bits(s, 1);
  float step_max[2] = {__int_as_float(upper), __int_as_float(lower)};
  if (!__all_sync(0xFFFFFFFF, (upper | lower) >= 0)) {
    step_max[0] = stage7b::step_row_max(s, 0), step_max[1] = stage7b::step_row_max(s, 1);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float before = rows.neg_row_max_scaled[half];
    const float now = fmaf(-step_max[half], softmax_scale_log2, kMaxOffset);
    const bool keep = before - now <= kGrowth;  // not with NaN
    rows.neg_row_max_scaled[half] = keep ? before : now;
    rows.rescale[half] = keep ? 1.0f : ptx::ex2_approx_ftz(now - before);
  }
}

// O and the row sums times the rescale factors, where one of them is not 1.
__device__ __forceinline__ void rescale(RowState& rows) {
  if (!__any_sync(0xFFFFFFFF, rows.rescale[0] != 1.0f || rows.rescale[1] != 1.0f)) return;
#pragma unroll
  for (int part = 0; part < Sizes::kParts; ++part) {
#pragma unroll
    for (int i = 0; i < Sizes::kPartColumns / 2; ++i) rows.o[part][i] *= rows.rescale[i / 2 % 2];
  }
  rows.row_sum[0] *= rows.rescale[0], rows.row_sum[1] *= rows.rescale[1];
}

// ---- exponentials ----

// As exp2.cuh has it for halves: for an integer x the bits of the BF16 2^x are (x + 127) * 2^7. They
// are the low 16 bits of a float whose last bit is 2^-7.
struct LinearExp2 {
  static constexpr float kRange = kBf16 ? 256.0f : kExp2LinearRange;
  static constexpr float kOrigin = kBf16 ? 98304.0f : kExp2LinearOrigin;
  static constexpr float kBias =
      (kBf16 ? 127.0f - 0.0575f : kExp2LinearBias) - (knob::kExp2Segments - 1);

  __device__ __forceinline__ static float carry(float s, float scale, float offset) {
    return ptx::fma_rn_sat(s, scale / kRange, (offset + kBias) / kRange) + kOrigin / kRange;
  }
  __device__ __forceinline__ static uint32_t pair(float s0, float s1, float scale, float offset) {
    const uint32_t bits =
        exp2_linear_halves(carry(s0, scale, offset), carry(s1, scale, offset));
    if constexpr (knob::kExp2Segments == 1) return bits;
    if constexpr (!kBf16) return exp2_two_segments(bits);
    constexpr uint32_t kHalfOctave = 0x00400040, kSqrtHalf = 0x3F353F35;  // 0.70703 twice
    return ptx::fma_rn_bf16x2(bits + kHalfOctave, kSqrtHalf, bits);
  }
};

__device__ __forceinline__ float2 unpack(uint32_t pair) {
  if constexpr (kBf16) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000));
  } else {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  }
}

// P (64, TILE_N) as operand A of P·V: one product per 16 keys.
struct Probabilities {
  uint32_t words[Sizes::kBlockN / 16][4];

  // P = exp2(s * softmax_scale_log2 + neg_row_max_scaled), and its sum in the lane's columns.
  __device__ __forceinline__ void exponentiate(const float (&s)[Sizes::kScores], RowState& rows,
                                               float scale) {
#pragma unroll
    for (int i = 0; i < Sizes::kScores; i += 2) {
      if (!stage7b::is_linear(i)) exponentiate_pair(s, i, rows, scale);
    }
#pragma unroll
    for (int i = 0; i < Sizes::kScores; i += 2) {
      if (stage7b::is_linear(i)) exponentiate_pair(s, i, rows, scale);
    }
  }

 private:
  __device__ __forceinline__ void exponentiate_pair(const float (&s)[Sizes::kScores], int i,
                                                    RowState& rows, float scale) {
    const int half = i / 2 % 2;
    const float offset = rows.neg_row_max_scaled[half];
    uint32_t& word = words[i / 8][i / 2 % 4];
    float2 p;
    if (stage7b::is_linear(i)) {
      word = LinearExp2::pair(s[i], s[i + 1], scale, offset);
      p = unpack(word);
    } else {
      p.x = ptx::ex2_approx_ftz(fmaf(s[i], scale, offset));
      p.y = ptx::ex2_approx_ftz(fmaf(s[i + 1], scale, offset));
      word = pack_output(p.x, p.y);
    }
    rows.row_sum[half] += p.x + p.y;
  }
};

// The row sums over the four lanes of a row. A row that attends to no key has 0: the linear exp2 of
// minus infinity is tiny, but more than 0.
__device__ __forceinline__ void reduce_row_sums(RowState& rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float& sum = rows.row_sum[half];
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (rows.neg_row_max_scaled[half] == kNoRowMax) sum = 0.0f;
  }
}

}  // namespace native
