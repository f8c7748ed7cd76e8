// The softmax step: row max, rescale factor, exponentials, row sum, and P in 16 bits.
#pragma once

#include <climits>

#include "attention/softmax.cuh"
#include "include/exp2.cuh"
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

// ---- mask ----

// The keys that the 64 rows of a consumer attend to. Of one tile only `end` is kept.
struct Mask {
  int keys;
  int end;  // of the keys of the first row; with a causal mask each row attends to one more

  __device__ __forceinline__ Mask(const Problem& p, int causal_key_end, int consumer)
      : keys(p.keys), end(p.causal ? causal_key_end + 64 * consumer : p.keys) {}

  // Whether no row attends to a key of the step.
  __device__ __forceinline__ bool hides(int n_block) const {
    return n_block * Sizes::kBlockN >= min(keys, end) + 63;
  }
  // Masks the scores of a step, if a row does not attend to all its keys.
  __device__ __forceinline__ void apply(float (&s)[Sizes::kScores], int n_block) const {
    if (!cuts(n_block)) return;
    int ends[2];
    find_ends(ends, n_block);
    dense::Mask<Traits>::apply(s, ends);
  }
  // Clears the P of masked scores that are linear: in FP16 two segments of minus infinity are more
  // than 0, 2^-15.5.
  __device__ __forceinline__ void clear(uint32_t (&words)[Sizes::kBlockN / 16][4],
                                        int n_block) const {
    if (!cuts(n_block)) return;
    int ends[2];
    find_ends(ends, n_block);
#pragma unroll
    for (int i = 0; i < Sizes::kScores; i += 2) {
      if (!is_linear<Traits>(i)) continue;
      const int key = i / 4 * 8, end = ends[i / 2 % 2];
      uint32_t& word = words[i / 8][i / 2 % 4];
      if (key + 1 >= end) word = key >= end ? 0 : word & 0xFFFF;
    }
  }

 private:
  // Whether a row does not attend to all keys of the step.
  __device__ __forceinline__ bool cuts(int n_block) const {
    return (n_block + 1) * Sizes::kBlockN > min(keys, end);
  }
  // The ends of the keys of the lane's rows, counted from its first key of the step.
  __device__ __forceinline__ void find_ends(int (&ends)[2], int n_block) const {
    const Lane<Traits> lane;
    const int first_key = n_block * Sizes::kBlockN + 2 * lane.t;
    const int row_end = end + lane.row % 64;
    ends[0] = min(keys, row_end) - first_key, ends[1] = min(keys, row_end + 8) - first_key;
  }
};

// ---- row max ----

// The row max may grow by this much, in log2 units, before O is rescaled. P is then up to 2^16, in
// FP16 2^15. Row sums are in FP32, so that they do not overflow.
constexpr float kGrowth = kBf16 ? 8.0f : 7.0f;

// Takes the row max of a step, and rescales O and the row sums where it has grown too much.
__device__ __forceinline__ void take_row_max(Rows& rows, const float (&step_max)[2],
                                             float softmax_scale_log2) {
  float rescale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float before = rows.neg_row_max_scaled[half];
    float now = fmaf(-step_max[half], softmax_scale_log2, kMaxOffset);
    if (now == -INFINITY) now = NAN;  // a score is infinite, which linear exponentials would hide
    const bool keep = before - now <= kGrowth;  // not with NaN
    const float neg_row_max_scaled = keep ? before : now;
    rows.neg_row_max_scaled[half] = neg_row_max_scaled;
    rescale[half] = keep ? 1.0f : ptx::ex2_approx_ftz(now - before);
    const float limit = __fdividef(kGrowth + kMaxOffset - neg_row_max_scaled, softmax_scale_log2);
    rows.limit[half] = limit >= 0.0f ? __float_as_int(limit) : INT_MIN;
  }
#pragma unroll
  for (int part = 0; part < Sizes::kParts; ++part) {
#pragma unroll
    for (int i = 0; i < Sizes::kPartColumns / 2; ++i) rows.o[part][i] *= rescale[i / 2 % 2];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) rows.sums[i] *= rescale[i / 2];
}

// Updates the row max with the scores of a step, if one of the warp's rows exceeds its limit.
__device__ __forceinline__ void update_row_max(const float (&s)[Sizes::kScores], Rows& rows,
                                               float softmax_scale_log2) {
  const int upper = lane_max_bits(s, 0), lower = lane_max_bits(s, 1);
  if (!__any_sync(0xFFFFFFFF, upper > rows.limit[0] || lower > rows.limit[1])) return;
  const int bits[2] = {quad_max(upper), quad_max(lower)};
  float step_max[2] = {__int_as_float(bits[0]), __int_as_float(bits[1])};
  if (!__all_sync(0xFFFFFFFF, (bits[0] | bits[1]) >= 0)) {
    step_max[0] = step_row_max(s, 0), step_max[1] = step_row_max(s, 1);
  }
  take_row_max(rows, step_max, softmax_scale_log2);
}

// ---- exponentials ----

// 2^x for two scores by linear segments, as exp2.cuh has it for halves: for an integer x the bits
// of the BF16 2^x are (x + 127) * 2^7. Floats from 0.5 to 1 have one exponent, so that 16 of their
// bits are fixed point: those of 1 - (x + 127) / 512, from bit 8 on, are 2^15 - (x + 127) * 2^7.
// The saturating FMA clamps where x is less than -127. In FP16 the bias is 15, and the last bit
// 2^-10.
struct LinearExp2 {
  static constexpr float kRange = kBf16 ? 256.0f : kExp2LinearRange;  // of x, in 16 bits
  // Two segments begin with 2^(x-1). Bits that are cut off are half a bit on average.
  static constexpr float kBias = (kBf16 ? 127.0f : 15.0f) - 0.0575f - (Traits::kExp2Segments - 1) -
                                 (kBf16 ? 0x1p-8f : 0x1p-11f);

  __device__ __forceinline__ static uint32_t pair(float s0, float s1, float scale, float offset) {
    const uint32_t rest = __byte_perm(carry(s0, scale, offset), carry(s1, scale, offset), 0x6521);
    const uint32_t bits = 0x80008000 - rest;
    if constexpr (Traits::kExp2Segments == 1) return bits;
    if constexpr (!kBf16) return exp2_two_segments(bits);
    constexpr uint32_t kHalfOctave = 0x00400040, kSqrtHalf = 0x3F353F35;  // 0.70703 twice
    return ptx::fma_rn_bf16x2(bits + kHalfOctave, kSqrtHalf, bits);
  }

 private:
  __device__ __forceinline__ static uint32_t carry(float s, float scale, float offset) {
    return __float_as_uint(ptx::fma_rn_sat(s, -scale / (2 * kRange),
                                           1.0f - (offset + kBias) / (2 * kRange)));
  }
};

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
      word = LinearExp2::pair(s[i], s[i + 1], scale, offset);
    } else {
      word = pack_output<kBf16>(ptx::ex2_approx_ftz(fmaf(s[i], scale, offset)),
                         ptx::ex2_approx_ftz(fmaf(s[i + 1], scale, offset)));
    }
  }
};

}  // namespace attention::native
