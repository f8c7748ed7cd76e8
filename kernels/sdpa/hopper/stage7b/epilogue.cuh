// The epilogue of a work tile: merge the consumers that split the keys, normalise O, store it.
#pragma once

#include "../../common/problem.cuh"
#include "../../common/ptx.cuh"
#include "../online_softmax.cuh"
#include "../output.cuh"
#include "row_state.cuh"
#include "shared_storage.cuh"
#if STAGE7B_HALVES
#include "halves/output.cuh"
#endif

namespace stage7b {

// How ATTUNE_OUTPUTS describes the row sums: of P rounded to E4M3.
constexpr int kLseKind = 2;

// Merges the rows of two consumers with split keys. Each passes half of its columns to the other
// through shared memory, and ends with the other half merged.
//
// The buffer has room for two tiles. A slot is written again two tiles later; the barrier in
// between orders the reads of this tile before that write.
__device__ __forceinline__ void merge_split_keys(RowState& rows, const SharedStorage& smem,
                                                 int consumer, unsigned round) {
  constexpr int kHalf = Sizes::kHeadDim / 4;  // elements of O of a lane, in half of the columns
  const auto o = [&](int i) -> float& {
    return rows.o[i / (Sizes::kPartColumns / 2)][i % (Sizes::kPartColumns / 2)];
  };
  const auto slot_of = [&](int writer) {
    return smem.merge + (round % 2 * Sizes::kConsumers + writer) * Sizes::kMergeChunks * 128 +
           ptx::opaque(threadIdx.x) % 128;
  };
  float own[kHalf];
  float4* send = slot_of(consumer);
#pragma unroll
  for (int i = 0; i < kHalf; i += 4) {
    float sent[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float left = o(i + e), right = o(i + e + kHalf);
      own[i + e] = consumer > 0 ? right : left, sent[e] = consumer > 0 ? left : right;
    }
    send[i / 4 * 128] = make_float4(sent[0], sent[1], sent[2], sent[3]);
  }
  send[kHalf / 4 * 128] = make_float4(rows.neg_row_max_scaled[0], rows.neg_row_max_scaled[1],
                                      rows.row_sum[0], rows.row_sum[1]);
  ptx::barrier_sync(1, 128 * Sizes::kConsumers);
  const float4* received = slot_of(1 - consumer);
  const float4 stats = received[kHalf / 4 * 128];
  const float other_max[2] = {stats.x, stats.y}, other_sum[2] = {stats.z, stats.w};
  float rescale[2], other_rescale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float merged = fminf(rows.neg_row_max_scaled[half], other_max[half]);
    rescale[half] = ptx::ex2_approx_ftz(merged - rows.neg_row_max_scaled[half]);
    other_rescale[half] = ptx::ex2_approx_ftz(merged - other_max[half]);
    rows.neg_row_max_scaled[half] = merged;
    rows.row_sum[half] =
        fmaf(rows.row_sum[half], rescale[half], other_sum[half] * other_rescale[half]);
  }
#pragma unroll
  for (int i = 0; i < kHalf; i += 4) {
    const float4 chunk = received[i / 4 * 128];
    const float other[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      o(i + e) = fmaf(own[i + e], rescale[e / 2], other[e] * other_rescale[e / 2]);
    }
  }
}

#if !STAGE7B_HALVES

// Stores the columns of one row of a lane with USE_DIRECT_V: 16 adjacent ones of every 64.
__device__ __forceinline__ void store_adjacent(const RowState& rows, int half, float scale,
                                               uint16_t* to) {
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 32; ++i) {
    const float* o = &rows.o[i / 2][i % 2 * 16 + 2 * half];
    const auto pair = [&](int j) { return pack_output(o[4 * j] * scale, o[4 * j + 1] * scale); };
    *reinterpret_cast<uint4*>(to + i / 2 * 64 + i % 2 * 8) =
        make_uint4(pair(0), pair(1), pair(2), pair(3));
  }
}

// Stores O / row_sum, and the log-sum-exp with USE_LSE. After a merge each consumer stores its half
// of the columns, and the first one the log-sum-exp. A lane has columns 4t .. 4t+3 of every 16.
__device__ __forceinline__ void store_output(const Problem& p, const RowState& rows,
                                             const WorkTile& tile, float descale_v, int key_group) {
  constexpr int kColumns = Sizes::kHeadDim / knob::kKeyGroups;
  const Lane lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = tile.first_query + lane.row + 8 * half;
    const float row_sum = rows.row_sum[half];
    // A row that attends to no key is 0.
    const float scale = row_sum > 0.0f ? descale_v * ptx::rcp_approx_ftz(row_sum) : 0.0f;
    uint16_t* row = tile.o + static_cast<size_t>(query) * Sizes::kHeadDim + key_group * kColumns +
                    4 * lane.t;
    if (query >= p.queries) continue;
    if constexpr (knob::kLse) {
      if (lane.t == 0 && key_group == 0) {
        tile.lse[query] = log_sum_exp(row_sum, rows.neg_row_max_scaled[half]);
      }
    }
    if constexpr (knob::kDirectV) {
      store_adjacent(rows, half, scale, row + 12 * lane.t);
    } else {
#pragma unroll
      for (int i = 0; i < kColumns / 16; ++i) {
        constexpr int kBlocks = Sizes::kPartColumns / 16;
        const float* o = &rows.o[i / kBlocks][i % kBlocks * 8 + 2 * half];
        *reinterpret_cast<uint2*>(row + 16 * i) = make_uint2(
            pack_output(o[0] * scale, o[4] * scale), pack_output(o[1] * scale, o[5] * scale));
      }
    }
  }
}

#endif

}  // namespace stage7b
