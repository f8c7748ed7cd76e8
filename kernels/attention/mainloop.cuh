// The mainloop of a consumer warpgroup: all steps of a work tile, from the last keys to the first.
#pragma once

#include "../include/ptx.cuh"
#include "../include/wgmma.cuh"
#include "gemm.cuh"
#include "kv_pipeline.cuh"
#include "row_state.cuh"
#include "softmax.cuh"

namespace attention {

// A work tile as one consumer warpgroup computes it.
template <class Traits>
struct ConsumerTile {
  const Problem<Traits>& problem;
  const WorkTile<Traits>& tile;
  float softmax_scale_log2;
  int consumer;
  Mask<Traits> mask;
};

// Masks the scores of a step where needed, and updates the row max.
template <class Traits>
__device__ __forceinline__ void mask_and_update_row_max(Scores<Traits>& s, RowState<Traits>& rows,
                                                        float (&rescale)[2],
                                                        const ConsumerTile<Traits>& tile,
                                                        int n_block) {
  ptx::fence_registers(s);
  if (!tile.mask.is_unmasked(n_block)) Mask<Traits>::apply(s, tile.problem, tile.tile, n_block);
  update_row_max(s, rows, rescale, tile.softmax_scale_log2);
}

// Releases the steps of which no row of the warpgroup attends to a key.
template <class Traits>
__device__ __forceinline__ void skip_masked_steps(KvPipeline<Traits>& kv,
                                                  const ConsumerTile<Traits>& tile, int& n_block) {
  using Sizes = TileSizes<Traits>;
  const int key_end = Mask<Traits>::key_end_of(tile.problem, tile.tile, tile.consumer);
#pragma unroll 1
  for (; n_block >= 0 && n_block * Sizes::kBlockN >= key_end; --n_block) {
    kv.skip_step();
  }
}

// One step after the other. Where several consumers run, one has the tensor cores while another
// computes exponentials.
template <class Traits>
__device__ __forceinline__ void mainloop_serial(RowState<Traits>& rows, Scores<Traits>& s,
                                                Probabilities<Traits>& p, KvPipeline<Traits>& kv,
                                                const Query<Traits>& q,
                                                const ConsumerTile<Traits>& tile, int n_block) {
#pragma unroll 1
  while (n_block >= 0) {
    issue_scores<Traits>(s, q, kv.wait_k());
    ptx::wgmma_wait_group<0>();
    mask_and_update_row_max(s, rows, rows.rescale, tile, n_block);
    kv.release_k(rows.rescale[1]);
    exponentiate<0, TileSizes<Traits>::kScores>(s, rows, tile.softmax_scale_log2);
    p.pack(s);
    multiply_pv(rows, p, kv.wait_v_t());
    kv.release_v_t();
    --n_block;
    kv.skip_other_consumer(n_block);
  }
}

// P·V of one step, part by part, overlapped with the softmax of the next, n_block. The scores of
// the next step have been issued. Each part of P·V runs beside its share of the exponentials.
template <int kIndex = 0, class Traits>
__device__ __forceinline__ void multiply_pv_overlapped(RowState<Traits>& rows,
                                                       const Probabilities<Traits>& p, uint32_t v_t,
                                                       Scores<Traits>& s, float (&rescale)[2],
                                                       KvPipeline<Traits>& kv,
                                                       const ConsumerTile<Traits>& tile,
                                                       int n_block) {
  using Sizes = TileSizes<Traits>;
  constexpr int kShare = Sizes::kScores / Sizes::kParts;
  PvPart<Traits, kIndex> part;
  part.issue(p, v_t);
  if constexpr (kIndex == 0) {
    ptx::wgmma_wait_group<1>();  // for the scores
    mask_and_update_row_max(s, rows, rescale, tile, n_block);
    kv.release_k(rescale[1]);
  }
  exponentiate<kShare * kIndex, kShare * (kIndex + 1)>(s, rows, tile.softmax_scale_log2);
  ptx::wgmma_wait_group<0>();
  part.accumulate(rows);
  if constexpr (!part.kLast) {
    multiply_pv_overlapped<kIndex + 1>(rows, p, v_t, s, rescale, kv, tile, n_block);
  }
}

// P·V of a step runs while the softmax of the next step is computed.
template <class Traits>
__device__ __forceinline__ void mainloop_overlapped(RowState<Traits>& rows, Scores<Traits>& s,
                                                    Probabilities<Traits>& p,
                                                    KvPipeline<Traits>& kv, const Query<Traits>& q,
                                                    const ConsumerTile<Traits>& tile, int n_block) {
  if (n_block >= 0) {
    issue_scores<Traits>(s, q, kv.wait_k());
    ptx::wgmma_wait_group<0>();
    mask_and_update_row_max(s, rows, rows.rescale, tile, n_block);
    kv.release_k(rows.rescale[1]);
    exponentiate<0, TileSizes<Traits>::kScores>(s, rows, tile.softmax_scale_log2);
    p.pack(s);
  }
#pragma unroll 1
  for (; n_block > 0; --n_block) {
    float rescale[2];  // of the next step; rows.rescale is still needed by P·V of this one
    issue_scores<Traits>(s, q, kv.wait_k());
    multiply_pv_overlapped(rows, p, kv.wait_v_t(), s, rescale, kv, tile, n_block - 1);
    kv.release_v_t();
    rows.rescale[0] = rescale[0], rows.rescale[1] = rescale[1];
    p.pack(s);
  }
  if (n_block == 0) {
    multiply_pv(rows, p, kv.wait_v_t());
    kv.release_v_t();
  }
}

template <class Traits>
__device__ __forceinline__ void mainloop(RowState<Traits>& rows, Scores<Traits>& s,
                                         Probabilities<Traits>& p, KvPipeline<Traits>& kv,
                                         const Query<Traits>& q, const ConsumerTile<Traits>& tile,
                                         int n_blocks) {
  int n_block = n_blocks - 1;
  if (tile.consumer > 0) kv.skip_other_consumer(n_block);
  if constexpr (Traits::kSkipMasked) skip_masked_steps(kv, tile, n_block);
  if constexpr (Traits::kOverlap) {
    mainloop_overlapped(rows, s, p, kv, q, tile, n_block);
  } else {
    mainloop_serial(rows, s, p, kv, q, tile, n_block);
  }
}

}  // namespace attention
