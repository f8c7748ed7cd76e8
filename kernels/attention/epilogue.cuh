// The epilogue of a work tile: merge the consumers that split the keys. The form stores O.
#pragma once

#include "../include/ptx.cuh"
#include "online_softmax.cuh"
#include "row_state.cuh"
#include "shared_storage.cuh"

namespace attention {

// Merges the rows of two consumers with split keys. Each passes half of its columns to the other
// through shared memory, and ends with the other half merged.
//
// The buffer has room for two tiles. A slot is written again two tiles later; the barrier in
// between orders the reads of this tile before that write.
template <class Traits>
__device__ __forceinline__ void merge_split_keys(RowState<Traits>& rows,
                                                 const SharedStorage<Traits>& smem, int consumer,
                                                 unsigned round) {
  using Sizes = TileSizes<Traits>;
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

}  // namespace attention
