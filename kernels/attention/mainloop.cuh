// The mainloop of a consumer warpgroup: all steps of a work tile, from the last keys to the first.
#pragma once

#include "../include/ptx.cuh"
#include "../include/wgmma.cuh"
#include "form.cuh"
#include "gemm.cuh"
#include "kv_pipeline.cuh"
#include "query.cuh"
#include "row_state.cuh"
#include "softmax.cuh"

namespace stage7b {

// A work tile as one consumer warpgroup computes it.
struct ConsumerTile {
  const Problem& problem;
  const WorkTile& tile;
  float softmax_scale_log2;
  int consumer;
  UnmaskedKeys unmasked;
};

// Masks the scores of a step where needed, and updates the row max.
__device__ __forceinline__ void mask_and_update_row_max(float (&s)[Sizes::kScores], RowState& rows,
                                                        float (&rescale)[2],
                                                        const ConsumerTile& tile, int n_block) {
  ptx::fence_registers(s);
  if (!tile.unmasked.has(n_block)) mask_scores(s, tile.problem, tile.tile, n_block);
  update_row_max(s, rows, rescale, tile.softmax_scale_log2);
}

// Releases the steps of which no row of the warpgroup attends to a key.
__device__ __forceinline__ void skip_masked_steps(KvPipeline& kv, const ConsumerTile& tile,
                                                  int& n_block) {
  const int key_end = key_end_of(tile.problem, tile.tile, tile.consumer);
#pragma unroll 1
  for (; n_block >= 0 && n_block * Sizes::kBlockN >= key_end; --n_block) {
    kv.skip_step();
  }
}

// One step after the other. Where several consumers run, one has the tensor cores while another
// computes exponentials.
template <typename Q>
__device__ __forceinline__ void mainloop_serial(RowState& rows, float (&s)[Sizes::kScores],
                                                Probabilities& p, KvPipeline& kv, const Q& q,
                                                const ConsumerTile& tile, int n_block) {
#pragma unroll 1
  while (n_block >= 0) {
    issue_scores(s, q, kv.wait_k());
    ptx::wgmma_wait_group<0>();
    mask_and_update_row_max(s, rows, rows.rescale, tile, n_block);
    kv.release_k(rows.rescale[1]);
    exponentiate(s, rows, tile.softmax_scale_log2);
    p.pack(s);
    multiply_pv(rows, p, kv.wait_v_t());
    kv.release_v_t();
    --n_block;
    kv.skip_other_consumer(n_block);
  }
}

// P·V of one step, part by part, overlapped with the softmax of the next, n_block. The scores of
// the next step have been issued. Each part of P·V runs beside its share of the exponentials.
template <int kIndex = 0>
__device__ __forceinline__ void multiply_pv_overlapped(RowState& rows, const Probabilities& p,
                                                       uint32_t v_t, float (&s)[Sizes::kScores],
                                                       float (&rescale)[2], KvPipeline& kv,
                                                       const ConsumerTile& tile, int n_block) {
  constexpr int kShare = Sizes::kScores / Sizes::kParts;
  PvPart<kIndex> part;
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
template <typename Q>
__device__ __forceinline__ void mainloop_overlapped(RowState& rows, float (&s)[Sizes::kScores],
                                                    Probabilities& p, KvPipeline& kv, const Q& q,
                                                    const ConsumerTile& tile, int n_block) {
  if (n_block >= 0) {
    issue_scores(s, q, kv.wait_k());
    ptx::wgmma_wait_group<0>();
    mask_and_update_row_max(s, rows, rows.rescale, tile, n_block);
    kv.release_k(rows.rescale[1]);
    exponentiate(s, rows, tile.softmax_scale_log2);
    p.pack(s);
  }
#pragma unroll 1
  for (; n_block > 0; --n_block) {
    float rescale[2];  // of the next step; rows.rescale is still needed by P·V of this one
    issue_scores(s, q, kv.wait_k());
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

template <typename Q>
__device__ __forceinline__ void mainloop(RowState& rows, float (&s)[Sizes::kScores],
                                         Probabilities& p, KvPipeline& kv, const Q& q,
                                         const ConsumerTile& tile, int n_blocks) {
  int n_block = n_blocks - 1;
  if (tile.consumer > 0) kv.skip_other_consumer(n_block);
  if constexpr (knob::kSkipMasked) skip_masked_steps(kv, tile, n_block);
  if constexpr (knob::kOverlap) {
    mainloop_overlapped(rows, s, p, kv, q, tile, n_block);
  } else {
    mainloop_serial(rows, s, p, kv, q, tile, n_block);
  }
}

}  // namespace stage7b
