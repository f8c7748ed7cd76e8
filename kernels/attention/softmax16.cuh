// The softmax step of the forms that multiply in 16 bits: mask, row max with a limit, and the
// linear exponentials. Their traits have kBf16: P is BF16, otherwise FP16; and kPacksHeads: the rows
// of a consumer may be of several heads.
#pragma once

#include <climits>
#include <cmath>

#include "../include/exp2.cuh"
#include "../include/ptx.cuh"
#include "online_softmax.cuh"
#include "row_state.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace attention {

// ---- mask ----

// The rows of one head among the 64 of a consumer.
template <class Traits, bool kPacksHeads = Traits::kPacksHeads>
struct HeadRows {
  static constexpr int head_rows = 64;

  __device__ __forceinline__ explicit HeadRows(const Problem<Traits>&) {}
};

template <class Traits>
struct HeadRows<Traits, true> {
  int head_rows;  // a power of two

  __device__ __forceinline__ explicit HeadRows(const Problem<Traits>& p) : head_rows(p.head_rows) {}
};

// The keys that the 64 rows of a consumer attend to. Of one tile only `end` is kept.
template <class Traits, class Lane = attention::Lane<Traits>>
struct RowMask : HeadRows<Traits> {
  using Sizes = TileSizes<Traits>;
  using HeadRows<Traits>::head_rows;
  int keys;
  int end;  // of the keys of a head's first row; with a causal mask each row attends to one more

  __device__ __forceinline__ RowMask(const Problem<Traits>& p, int causal_key_end, int consumer)
      : HeadRows<Traits>(p),
        keys(p.keys),
        end(p.causal ? causal_key_end + head_rows * consumer : p.keys) {}

  // Whether no row attends to a key of the step.
  __device__ __forceinline__ bool hides(int n_block) const {
    return n_block * Sizes::kBlockN >= min(keys, end) + 63;
  }
  // Masks the scores of a step, if a row does not attend to all its keys.
  __device__ __forceinline__ void apply(Scores<Traits>& s, int n_block) const {
    if (!cuts(n_block)) return;
    int ends[2];
    find_ends(ends, n_block);
#pragma unroll
    for (int i = 0; i < Sizes::kScores; ++i) {
      if (i / 4 * 8 + i % 2 >= ends[i / 2 % 2]) s[i] = -INFINITY;
    }
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
    const Lane lane;
    const int first_key = n_block * Sizes::kBlockN + 2 * lane.t;
    if constexpr (Traits::kPacksHeads) {
      ends[0] = min(keys, end + (lane.row & (head_rows - 1))) - first_key;
      ends[1] = min(keys, end + (lane.row + 8 & (head_rows - 1))) - first_key;
    } else {
      const int row_end = end + lane.row % 64;
      ends[0] = min(keys, row_end) - first_key, ends[1] = min(keys, row_end + 8) - first_key;
    }
  }
};

// ---- row max ----

// The row max of the two rows of a lane.
struct RowMax {
  float neg_row_max_scaled[2];  // as online_softmax.cuh stores it
  // The bits of the largest score that needs no new row max. As integers the bits of floats sort
  // like the floats unless they are negative: if the limit is, it is INT_MIN, and every score but a
  // negative 0, which products do not have, needs one.
  int limit[2];

  __device__ __forceinline__ void clear_row_max() {
    neg_row_max_scaled[0] = neg_row_max_scaled[1] = kNoRowMax;
    limit[0] = limit[1] = INT_MIN;
  }
};

// Takes the row max of a step, and computes the factors that rescale O and the row sums. It may
// grow by Traits::kGrowth, in log2 units, before they are rescaled. `rows` has the members of
// RowMax.
template <class Traits, class Rows>
__device__ __forceinline__ void take_row_max(Rows& rows, const float (&step_max)[2],
                                             float (&rescale)[2], float softmax_scale_log2) {
  constexpr float kGrowth = Traits::kGrowth;
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
}

// ---- exponentials ----

// 2^x for two scores by linear segments, as exp2.cuh has it for halves: for an integer x the bits
// of the BF16 2^x are (x + 127) * 2^7. Floats from 0.5 to 1 have one exponent, so that 16 of their
// bits are fixed point: those of 1 - (x + 127) / 512, from bit 8 on, are 2^15 - (x + 127) * 2^7.
// The saturating FMA clamps where x is less than -127. In FP16 the bias is 15, and the last bit
// 2^-10.
//
// Two segments are the sum of the approximations of 2^(x-1) and 2^(x-1/2) / sqrt(2).
template <class Traits>
struct LinearExp2 {
  static constexpr bool kBf16 = Traits::kBf16;
  static constexpr float kRange = kBf16 ? 256.0f : kExp2LinearRange;  // of x, in 16 bits
  // Two segments begin with 2^(x-1). Bits that are cut off are half a bit on average.
  static constexpr float kBias = (kBf16 ? 127.0f : 15.0f) - 0.0575f - (Traits::kExp2Segments - 1) -
                                 (kBf16 ? 0x1p-8f : 0x1p-11f);

  // P of two scores.
  __device__ __forceinline__ static uint32_t pair(float s0, float s1, float scale, float offset) {
    const uint32_t first = first_segments(s0, s1, scale, offset);
    if constexpr (Traits::kExp2Segments == 1) return first;
    return sum(first, second_segments(first));
  }

  // The bits of 2^(x-1), with one segment 2^x, for two scores.
  __device__ __forceinline__ static uint32_t first_segments(float s0, float s1, float scale,
                                                            float offset) {
    return 0x80008000 - __byte_perm(carry(s0, scale, offset), carry(s1, scale, offset), 0x6521);
  }
  // The bits of 2^(x-1/2), half an octave above those of 2^(x-1).
  __device__ __forceinline__ static uint32_t second_segments(uint32_t first) {
    return first + (kBf16 ? 0x00400040 : 0x02000200);
  }
  __device__ __forceinline__ static uint32_t sum(uint32_t first, uint32_t second) {
    constexpr uint32_t kSqrtHalf = kBf16 ? 0x3F353F35 : 0x39A839A8;  // 0.70703 twice
    if constexpr (kBf16) return ptx::fma_rn_bf16x2(second, kSqrtHalf, first);
    return ptx::fma_rn_f16x2(second, kSqrtHalf, first);
  }

 private:
  __device__ __forceinline__ static uint32_t carry(float s, float scale, float offset) {
    return __float_as_uint(ptx::fma_rn_sat(s, -scale / (2 * kRange),
                                           1.0f - (offset + kBias) / (2 * kRange)));
  }
};

}  // namespace attention
