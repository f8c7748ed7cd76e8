// The softmax step: mask, row max across the warps of a warpgroup, exponentials, P to shared
// memory. Queries are the columns of S^T; "row" means a row of S, one query, as everywhere else.
#pragma once

#include "../../../include/exp2.cuh"
#include "../../../include/ptx.cuh"
#include "../../online_softmax.cuh"
#include "gemm.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace stage7a {

// Query 0 of the tile attends to the keys before causal_key_end, and with a causal mask each later
// query to one more.
__device__ __forceinline__ void mask_scores(Scores& scores, const Lane& lane, int first_key,
                                            int causal_key_end, bool causal, int keys) {
#pragma unroll
  for (int i = 0; i < Sizes::kScores; ++i) {
    const int key_end =
        causal ? min(keys, causal_key_end + i / 4 * 8 + 2 * lane.t + i % 2) : keys;
    // Counted from the lane's first key; it has keys 0, 64, 128, ... from there.
    const int limit = key_end - first_key - 16 * lane.warp - lane.g - i / 2 % 2 * 8;
#pragma unroll
    for (int block = 0; block < Sizes::kKeyBlocks; ++block) {
      if (64 * block >= limit) scores.s[block][i] = -INFINITY;
    }
  }
}

// ---- reductions over keys ----

struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Queries that a lane keeps after reduce_scatter.
constexpr int kScattered = Sizes::kQueries > 8 ? Sizes::kQueries / 8 : 1;

// Reduces the values of a lane's queries with those of the seven other lanes that have the same
// queries. Each lane is left with the first kScattered of `value`; the return value is the lane's
// index of the first of them. Each step halves the queries of a lane: it sends one half and reduces
// the other. With one query left all lanes reduce it.
template <int kBit = 4, int kCount = Sizes::kQueries, typename Op>
__device__ __forceinline__ int reduce_scatter(float (&value)[Sizes::kQueries], const Lane& lane,
                                              Op op) {
  if constexpr (kBit == 0) {
    return 0;
  } else if constexpr (kCount == 1) {
    value[0] = op(value[0], __shfl_xor_sync(0xFFFFFFFF, value[0], 4 * kBit));
    return reduce_scatter<kBit / 2, 1>(value, lane, op);
  } else {
    constexpr int kHalf = kCount / 2;
    const bool upper = lane.g & kBit;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float sent = upper ? value[i] : value[i + kHalf];
      const float kept = upper ? value[i + kHalf] : value[i];
      value[i] = op(kept, __shfl_xor_sync(0xFFFFFFFF, sent, 4 * kBit));
    }
    return (upper ? kHalf : 0) + reduce_scatter<kBit / 2, kHalf>(value, lane, op);
  }
}

// Reduces over the lanes of the warp and writes the result of each query for the other warps.
template <typename Op>
__device__ __forceinline__ void publish(RowStats::PerWarp& stats, float (&value)[Sizes::kQueries],
                                        const Lane& lane, Op op) {
  const int first = reduce_scatter(value, lane, op);
#pragma unroll
  for (int i = 0; i < kScattered; ++i) stats[lane.warp][lane.query(first + i)] = value[i];
}

// The statistic of a lane's two queries in a block of eight.
__device__ __forceinline__ float2 query_pair(const float* stats, int block, const Lane& lane) {
  return *reinterpret_cast<const float2*>(stats + 8 * block + 2 * lane.t);
}

// Reduces what the four warps have published.
template <typename Op>
__device__ __forceinline__ float2 reduce_warps(const RowStats::PerWarp& stats, int block,
                                               const Lane& lane, Op op) {
  float2 all = query_pair(stats[0], block, lane);
#pragma unroll
  for (int warp = 1; warp < Sizes::kWarps; ++warp) {
    const float2 other = query_pair(stats[warp], block, lane);
    all.x = op(all.x, other.x), all.y = op(all.y, other.y);
  }
  return all;
}

// The max of a lane's own scores of each of its queries.
__device__ __forceinline__ void lane_row_max(float (&row_max)[Sizes::kQueries],
                                             const Scores& scores) {
#pragma unroll
  for (int c = 0; c < Sizes::kQueries; ++c) {
    const int i = c / 2 * 4 + c % 2;
    row_max[c] = fmaxf(scores.s[0][i], scores.s[0][i + 2]);
#pragma unroll
    for (int block = 1; block < Sizes::kKeyBlocks; ++block) {
      row_max[c] = fmaxf(row_max[c], fmaxf(scores.s[block][i], scores.s[block][i + 2]));
    }
  }
}

// ---- running state ----

// What a lane keeps of its queries from step to step.
struct RowState {
  float neg_row_max_scaled[Sizes::kQueries];  // the row max as online_softmax.cuh stores it
  float row_sum[Sizes::kQueries];             // over the lane's own keys
  float rescale[Sizes::kQueries];             // of row_sum and O, for the last step
  Output output;

  __device__ __forceinline__ RowState() {
#pragma unroll
    for (int c = 0; c < Sizes::kQueries; ++c) neg_row_max_scaled[c] = kNoRowMax, row_sum[c] = 0.0f;
#pragma unroll
    for (int i = 0; i < Sizes::kParts * Sizes::kScores; ++i) {
      output.o[i / Sizes::kScores][i % Sizes::kScores] = 0.0f;
    }
  }

  // Updates the row max with that of the step, which the warps have published.
  __device__ __forceinline__ void update_row_max(const RowStats& stats, const Lane& lane,
                                                 float softmax_scale_log2) {
#pragma unroll
    for (int j = 0; j < Sizes::kQueryBlocks; ++j) {
      const float2 step_max = reduce_warps(stats.row_max, j, lane, Max{});
      rescale[2 * j] =
          ::update_row_max(neg_row_max_scaled[2 * j], step_max.x, softmax_scale_log2);
      rescale[2 * j + 1] =
          ::update_row_max(neg_row_max_scaled[2 * j + 1], step_max.y, softmax_scale_log2);
    }
  }

  // O = O * rescale + pv.
  __device__ __forceinline__ void accumulate(const Output& pv) {
#pragma unroll
    for (int i = 0; i < Sizes::kParts * Sizes::kScores; ++i) {
      float& o = output.o[i / Sizes::kScores][i % Sizes::kScores];
      o = fmaf(o, rescale[i % Sizes::kScores / 4 * 2 + i % 2],
               pv.o[i / Sizes::kScores][i % Sizes::kScores]);
    }
  }
};

// ---- exponentials ----

// Stores the pairs of keys of one key block. Each 8x8 matrix of pairs is transposed: 8 queries by
// 16 keys.
__device__ __forceinline__ void store_p(unsigned char* chunk,
                                        const uint32_t (&words)[Sizes::kQueryBlocks]) {
  const int row = threadIdx.x % 32;
  if constexpr (Sizes::kQueryBlocks == 1) {
    ptx::stmatrix_x1_trans(chunk + row % 8 * 16, words[0]);
  } else if constexpr (Sizes::kQueryBlocks == 2) {
    ptx::stmatrix_x2_trans(chunk + row % 16 * 16, words[0], words[1]);
  } else {
#pragma unroll
    for (int j = 0; j < Sizes::kQueryBlocks; j += 4) {
      ptx::stmatrix_x4_trans(chunk + j * Sizes::kCoreBytes + row * 16, words[j], words[j + 1],
                             words[j + 2], words[j + 3]);
    }
  }
}

// P = exp2(scores * softmax_scale_log2 + neg_row_max_scaled), rounded to E4M3, to shared memory;
// and the row sums of P before rounding. In the first and only step there is no sum to rescale.
template <bool kSingleStep>
__device__ __forceinline__ void exponentiate(RowState& rows, const Scores& scores, unsigned char* p,
                                             const Lane& lane, float softmax_scale_log2) {
#pragma unroll
  for (int block = 0; block < Sizes::kKeyBlocks; ++block) {
    uint32_t words[Sizes::kQueryBlocks];
#pragma unroll
    for (int j = 0; j < Sizes::kQueryBlocks; ++j) {
      uint16_t pair[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int i = 4 * j + e, c = 2 * j + e;
        const float upper = exp2_mixed<knob::kExp2CubicEighths>(
            fmaf(scores.s[block][i], softmax_scale_log2, rows.neg_row_max_scaled[c]), block);
        const float lower = exp2_mixed<knob::kExp2CubicEighths>(
            fmaf(scores.s[block][i + 2], softmax_scale_log2, rows.neg_row_max_scaled[c]),
            block + 1);
        const float both = upper + lower;
        rows.row_sum[c] = block > 0     ? rows.row_sum[c] + both
                          : kSingleStep ? both
                                        : fmaf(rows.row_sum[c], rows.rescale[c], both);
        pair[e] = ptx::cvt_rn_satfinite_e4m3x2_f32(upper, lower);
      }
      words[j] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
    }
    store_p(p + (block / 2 * 8 + 2 * lane.warp + block % 2) * Sizes::kChunkBytes, words);
  }
}

}  // namespace stage7a
