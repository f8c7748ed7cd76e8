// The mainloops of a warp over the keys of its key group:
//
//   mainloop_global     USE_CP_ASYNC=0: operands from global memory to registers, K one step ahead
//   mainloop_pipelined  USE_CP_ASYNC=1: from the pipeline; each key group fills its own part
//   producer_mainloop,
//   consumer_mainloop   USE_WARP_SPECIALIZATION=1: from the pipeline, which producer warps fill;
//                       mbarriers for full and empty
//
// Each issues its first operand loads before it loads the scales of the head, and returns those for
// the epilogue.
#pragma once

#include <cstdint>

#include "../../include/pipeline_state.cuh"
#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "fragments.cuh"
#include "gemm.cuh"
#include "kv_stages.cuh"
#include "operands.cuh"
#include "shared_storage.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace register_scores {

using KvState = PipelineState<Sizes::kStages>;

__device__ __forceinline__ int num_steps(const WorkTile& tile) {
  return (static_cast<unsigned>(tile.key_end) + Sizes::kStepKeys - 1) / Sizes::kStepKeys;
}

// K, Q and V are requested before anything is waited for. The next K is requested when Q·K^T has
// read the last one, and the next V when P·V has.
__device__ __forceinline__ void mainloop_global(RowState& rows, Scales& scales,
                                                const Problem& problem, const WorkTile& tile,
                                                const SharedStorage& smem, const Position& at) {
  int key = at.key_group * Sizes::kBlockN;
  if (key >= tile.key_end) {
    scales = load_scales(problem, tile.head);
    return;
  }
  KFromGlobal k;
  k.load(tile.k, key, problem.keys, at);
  QCodes codes;
  codes.load(problem, tile, at);
  VFromGlobal v;
  v.load(tile.v, key, problem.keys, at);
  scales = load_scales(problem, tile.head);
  const QFragment q = codes.operands(smem);
  for (;;) {
    Scores scores;
    compute_scores(scores, q, k, smem, at);
    const int next = key + Sizes::kStepKeys;
    if (next < tile.key_end) k.load(tile.k, next, problem.keys, at);
    softmax_step(scores, rows, problem, tile, scales, key, at);
    multiply_pv(rows, scores, v, problem, tile, smem, at);
    if (next >= tile.key_end) return;
    key = next;
    v.load(tile.v, key, problem.keys, at);
  }
}

// Synchronises the threads of a key group.
__device__ __forceinline__ void key_group_sync(const Position& at) {
  if constexpr (Sizes::kRowWarps == 1) {
    __syncwarp();
  } else if constexpr (Sizes::kKeyWarps == 1) {
    __syncthreads();
  } else {
    ptx::barrier_sync(1 + at.key_group, 32 * Sizes::kRowWarps);
  }
}

// One step of a key group, with K and V in a stage of the pipeline.
__device__ __forceinline__ void compute_step(RowState& rows, const QFragment& q,
                                             const Problem& problem, const WorkTile& tile,
                                             const Scales& scales, const SharedStorage& smem,
                                             int stage, int step, const Position& at) {
  const int row = at.key_group * Sizes::kBlockN, key = step * Sizes::kStepKeys + row;
  if (key >= tile.key_end) return;
  Scores scores;
  compute_scores(scores, q, KFromShared{staged_tile(smem, stage, 0), row}, smem, at);
  softmax_step(scores, rows, problem, tile, scales, key, at);
  multiply_pv(rows, scores, VFromShared{staged_tile(smem, stage, 1), row}, problem, tile, smem, at);
}

// Each key group fills its part of the pipeline, kStages - 1 steps ahead.
__device__ __forceinline__ void mainloop_pipelined(RowState& rows, Scales& scales,
                                                   const Problem& problem, const WorkTile& tile,
                                                   const SharedStorage& smem, const Position& at) {
  const int steps = num_steps(tile), row = at.key_group * Sizes::kBlockN,
            thread = at.row_warp * 32 + at.lane;
  const auto copy = [&](int step) {
    if (step < steps) {
      copy_async<Sizes::kBlockN, 32 * Sizes::kRowWarps>(smem, problem, tile, step % Sizes::kStages,
                                                        row, step * Sizes::kStepKeys + row, thread);
    }
    ptx::cp_async_commit_group();
  };
#pragma unroll
  for (int step = 0; step < Sizes::kStages - 1; ++step) copy(step);
  QCodes codes;
  codes.load(problem, tile, at);
  scales = load_scales(problem, tile.head);
  const QFragment q = codes.operands(smem);
  for (int step = 0; step < steps; ++step) {
    ptx::cp_async_wait_group<Sizes::kStages - 2>();
    key_group_sync(at);  // this step has arrived for every thread, and the last one has been read
    copy(step + Sizes::kStages - 1);
    compute_step(rows, q, problem, tile, scales, smem, step % Sizes::kStages, step, at);
  }
  ptx::cp_async_wait_group<0>();
}

// A producer warp fills stage after stage for the whole block.
__device__ __forceinline__ void producer_mainloop(KvState& state, const Problem& problem,
                                                  const WorkTile& tile, const SharedStorage& smem) {
  const int steps = num_steps(tile);
  for (int step = 0; step < steps; ++step) {
    ptx::mbarrier_wait_parity(&smem.empty[state.stage], state.phase ^ 1);
    copy_async<Sizes::kStepKeys, 32 * knob::kProducerWarps>(
        smem, problem, tile, state.stage, 0, step * Sizes::kStepKeys,
        threadIdx.x - Sizes::kConsumerThreads);
    ptx::cp_async_mbarrier_arrive_noinc(&smem.full[state.stage]);
    state.advance();
  }
}

__device__ __forceinline__ void consumer_mainloop(KvState& state, RowState& rows, Scales& scales,
                                                  const Problem& problem, const WorkTile& tile,
                                                  const SharedStorage& smem, const Position& at) {
  const int steps = num_steps(tile);
  QCodes codes;
  codes.load(problem, tile, at);
  scales = load_scales(problem, tile.head);
  const QFragment q = codes.operands(smem);
  for (int step = 0; step < steps; ++step) {
    ptx::mbarrier_wait_parity(&smem.full[state.stage], state.phase);
    compute_step(rows, q, problem, tile, scales, smem, state.stage, step, at);
    ptx::mbarrier_arrive(&smem.empty[state.stage]);
    state.advance();
  }
}

}  // namespace register_scores
