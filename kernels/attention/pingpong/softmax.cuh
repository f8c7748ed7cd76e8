// The softmax step: row state, exponentials, row sums, and P in 16 bits. Mask, row max and linear
// exponentials are those of attention/softmax16.cuh.
#pragma once

#include "attention/softmax16.cuh"
#include "include/output.cuh"
#include "include/ptx.cuh"
#include "include/wgmma.cuh"
#include "storage.cuh"
#include "tiles.cuh"

namespace attention::pingpong {

// Position of a lane in the 64 rows of its consumer. Derived again at each use: the mainloop needs
// the registers.
struct Lane {
  int t;    // lane 4g + t of its warp
  int row;  // the lane has rows `row` and `row + 8`

  __device__ __forceinline__ Lane() {
    const unsigned thread = ptx::opaque(threadIdx.x);
    t = thread % 4, row = thread / 32 % 4 * 16 + thread % 32 / 4;
  }
};

// The mask of the tile of a round, which lane 0 has read, for one consumer.
template <class Traits>
struct Mask : RowMask<Traits, Lane> {
  __device__ __forceinline__ Mask(const Problem& p, const Tile<Traits>& tile, unsigned,
                                  int consumer)
      : RowMask<Traits, Lane>(p, uniform(tile.causal_key_end), consumer) {}
};

// The accumulators of the two query rows of a lane.
template <class Traits>
struct Rows : RowMax {
  using Sizes = TileSizes<Traits>;
  float o[Sizes::kHeadDim / 2];
  float sums[4];  // of P. By columns of ones: two equal ones for each row; else the lane's share

  __device__ __forceinline__ void clear() {
    clear_softmax();
    clear_output();
  }
  // What the softmax changes.
  __device__ __forceinline__ void clear_softmax() {
    clear_row_max();
    if constexpr (!Traits::kSumColumns) clear_sums();
  }
  // What P·V changes.
  __device__ __forceinline__ void clear_output() {
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 2; ++i) o[i] = 0.0f;
    if constexpr (Traits::kSumColumns) clear_sums();
  }
  // Keeps the compiler from moving an access to the results of P·V beyond this point.
  __device__ __forceinline__ void fence() {
    ptx::fence_registers(o);
    if constexpr (Traits::kSumColumns) ptx::fence_registers(sums);
  }
  // Rescales the results of P·V.
  __device__ __forceinline__ void rescale_output(const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 2; ++i) o[i] *= rescale[i / 2 % 2];
    if constexpr (Traits::kSumColumns) rescale_sums(rescale);
  }
  __device__ __forceinline__ void rescale_sums(const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] *= rescale[i / 2];
  }

 private:
  __device__ __forceinline__ void clear_sums() {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = 0.0f;
  }
};

// The row max and the row sums of a tile whose O is to be stored.
template <class Traits>
struct RowResult {
  using Rows = pingpong::Rows<Traits>;
  float neg_row_max_scaled[2], sums[4];

  __device__ __forceinline__ explicit RowResult(const Rows& rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) neg_row_max_scaled[i] = rows.neg_row_max_scaled[i];
    take_sums(rows);
  }
  // The row sums that P·V has completed since.
  __device__ __forceinline__ void take_sums(const Rows& rows) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = rows.sums[i];
  }
};

// s = tanh(s * scale / cap), where the problem has a cap, which then scales s. The error of this
// formula is absolute, and an infinite score becomes 1. Its factor is computed for each step: the
// main loop has no register for it.
template <class Traits>
__device__ __forceinline__ void cap_scores(Scores<Traits>& s, const attention::Problem<Traits>& p) {
  constexpr float kLog2e = 1.4426950408889634f;
  const float cap = __uint_as_float(ptx::opaque(__float_as_uint(p.softcap)));
  if (cap == 0.0f) return;
  const float scale = __fdividef(2.0f * kLog2e * p.softmax_scale, cap);
#pragma unroll
  for (int i = 0; i < TileSizes<Traits>::kScores; ++i) {
    const float e = ptx::ex2_approx_ftz(s[i] * scale);
    s[i] = fmaf(-2.0f, ptx::rcp_approx_ftz(e + 1.0f), 1.0f);
  }
}

// Updates the row max with the scores of a step, if one of the warp's rows exceeds its limit.
// Returns whether one did; otherwise the rescale factors are 1.
template <class Traits>
__device__ __forceinline__ bool update_row_max(const Scores<Traits>& s, Rows<Traits>& rows,
                                               float (&rescale)[2], float softmax_scale_log2) {
  const int upper = lane_max_bits(s, 0), lower = lane_max_bits(s, 1);
  rescale[0] = rescale[1] = 1.0f;
  if (!__any_sync(0xFFFFFFFF, upper > rows.limit[0] || lower > rows.limit[1])) return false;
  const int bits[2] = {quad_max(upper), quad_max(lower)};
  float step_max[2] = {__int_as_float(bits[0]), __int_as_float(bits[1])};
  if (!__all_sync(0xFFFFFFFF, (bits[0] | bits[1]) >= 0)) {
    step_max[0] = step_row_max(s, 0), step_max[1] = step_row_max(s, 1);
  }
  take_row_max<Traits>(rows, step_max, rescale, softmax_scale_log2);
  return true;
}

// s = exp2(s * scale + neg_row_max_scaled) but for the last operation, which `pack` has: a linear
// pair becomes the bits of its two segments. Exact exponentials come first, so that the constants
// of both kinds do not live at the same time.
template <class Traits>
__device__ __forceinline__ void exponentiate(Scores<Traits>& s, const Rows<Traits>& rows,
                                             float scale) {
  using Sizes = TileSizes<Traits>;
#pragma unroll
  for (int i = 0; i < Sizes::kScores; ++i) {
    if (!is_linear<Traits>(i)) {
      s[i] = ptx::ex2_approx_ftz(fmaf(s[i], scale, rows.neg_row_max_scaled[i / 2 % 2]));
    }
  }
#pragma unroll
  for (int i = 0; i < Sizes::kScores; i += 2) {
    if (!is_linear<Traits>(i)) continue;
    const uint32_t first = LinearExp2<Traits>::first_segments(s[i], s[i + 1], scale,
                                                              rows.neg_row_max_scaled[i / 2 % 2]);
    s[i] = __uint_as_float(first);
    s[i + 1] = __uint_as_float(LinearExp2<Traits>::second_segments(first));
  }
}

// P (64, TILE_N) as operand A of P·V: one product per 16 keys.
template <class Traits>
struct Probabilities {
  using Sizes = TileSizes<Traits>;
  using Scores = attention::Scores<Traits>;
  static constexpr bool kBf16 = Traits::kBf16;
  uint32_t words[Sizes::kBlockN / 16][4];

  // Packs the exponentials that `exponentiate` left in s. In FP16 linear ones of masked scores are
  // more than 0.
  __device__ __forceinline__ void pack(const Scores& s, const attention::Mask<Traits>& mask,
                                       int n_block) {
#pragma unroll
    for (int i = 0; i < Sizes::kScores; i += 2) words[i / 8][i / 2 % 4] = pair(s, i);
    if constexpr (!kBf16 && Traits::kExp2LinearEighths > 0) mask.clear(words, n_block);
  }
  // Real moves: ptxas must not define these registers while P·V reads them.
  __device__ __forceinline__ void copy(const Probabilities& other) {
#pragma unroll
    for (int i = 0; i < Sizes::kBlockN / 4; ++i) {
      asm volatile("mov.b32 %0, %1;\n"
                   : "=r"(words[i / 4][i % 4]) : "r"(other.words[i / 4][i % 4]) : "memory");
    }
  }
  __device__ __forceinline__ void fence() {
#pragma unroll
    for (int i = 0; i < Sizes::kBlockN / 16; ++i) ptx::fence_registers(words[i]);
  }

  // Adds P to the lane's row sums. Groups of eight pairs are summed in 16 bits: their rounding
  // errors are random and average out.
  __device__ __forceinline__ void add_to(float (&sums)[4]) const {
    constexpr int kPairs = Sizes::kBlockN / 8;  // words of a row
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int first = 0; first < kPairs; first += 8) {
        uint32_t w[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          w[i] = first + i < kPairs ? words[(first + i) / 2][(first + i) % 2 * 2 + half] : 0;
        }
#pragma unroll
        for (int step = 4; step > 0; step /= 2) {
#pragma unroll
          for (int i = 0; i < step; ++i) w[i] = add_pairs(w[i], w[i + step]);
        }
        const float2 pair = unpack(w[0]);
        sums[2 * half] += pair.x, sums[2 * half + 1] += pair.y;
      }
    }
  }

 private:
  __device__ __forceinline__ static uint32_t add_pairs(uint32_t a, uint32_t b) {
    if constexpr (kBf16) return ptx::fma_rn_bf16x2(a, kOnePair<Traits>, b);
    return ptx::fma_rn_f16x2(a, kOnePair<Traits>, b);
  }
  __device__ __forceinline__ static float2 unpack(uint32_t pair) {
    if constexpr (kBf16) {
      return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000)};
    }
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  }
  __device__ __forceinline__ static uint32_t pair(const Scores& s, int i) {
    return is_linear<Traits>(i)
               ? LinearExp2<Traits>::sum(__float_as_uint(s[i]), __float_as_uint(s[i + 1]))
               : pack_output<kBf16>(s[i], s[i + 1]);
  }
};

// Row sums by additions, where P·V has no columns of ones for them.
template <class Traits>
__device__ __forceinline__ void add_row_sums(Rows<Traits>& rows, const Probabilities<Traits>& p,
                                             bool grown, const float (&rescale)[2]) {
  if constexpr (!Traits::kSumColumns) {
    if (grown) rows.rescale_sums(rescale);
    p.add_to(rows.sums);
  }
}

}  // namespace attention::pingpong
