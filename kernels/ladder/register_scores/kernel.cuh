// Attention with scores and P in registers (stages 3b to 6).
//
// A block computes TILE_M query rows of one head. Its NUM_WARPS warps split the rows, and KEY_WARPS
// of them the keys as well: a warp has 16 or 32 rows, and its key group every KEY_WARPS-th run of
// TILE_N keys. The online softmax stays in the fragments of mma.sync:
//
//   S = Q·K^T              (16, TILE_N) floats, accumulator fragments
//   P = exp2(S - row_max)  the same fragments, packed as operand A of P·V: no shuffle
//   O = O * rescale + P·V  (16, D) floats, accumulator fragments. V has one more column, of ones:
//                          it gives the row sums of P as P was rounded
//
// At the end O, row max and row sum of the key groups are merged through shared memory.
//
// Stages, each with its change:
//   stage3b  (from 2)   scores and P in registers; four key groups of one warp each; K and V by
//                       cp.async through two stages, one step ahead
//   stage3c  (from 3b)  no pipeline: operands from global memory to registers; half the rows per
//                       block, twice the keys per step
//   stage4   (from 3b)  three stages, two steps ahead
//   stage5   (from 3b)  a producer warp fills the pipeline; persistent blocks take tiles from a
//                       counter
//   stage6   (from 3b)  E4M3 operands instead of halves
//
// Shared memory at TILE_M=32, TILE_N=32, D=64, 4 key groups (stage3b): pipeline 32 KB, merge buffer
// 17 KB in its place.
//
// Headers, each built only on those above it:
//   tile_sizes.cuh      warps, fragments and bytes
//   shared_storage.cuh  shared memory, position of a thread
//   fragments.cuh       what a lane has, and which element is where
//   kv_stages.cuh       K and V in shared memory
//   operands.cuh        Q, K and V to registers
//   softmax.cuh         mask, row max, P
//   gemm.cuh            Q·K^T and P·V, with halves or E4M3
//   mainloop.cuh        the steps of a tile, with or without producer warps
//   epilogue.cuh        merge, normalise, store
// This file has one tile, and how a block gets its tiles.
#pragma once

#include "../../include/e4m3.cuh"
#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "epilogue.cuh"
#include "fragments.cuh"
#include "mainloop.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace register_scores {

// The barriers are where every warp passes, whatever its role: __syncthreads() in a branch that
// only some warps take is undefined.
__device__ __forceinline__ void compute_tile(KvState& state, const Problem& problem,
                                             const WorkTile& tile, const SharedStorage& smem,
                                             const Position& at) {
  const bool is_consumer = !knob::kWarpSpecialization || at.warp < Sizes::kWarps;
  RowState rows;
  Scales scales;
  if (is_consumer) {
    clear(rows);
    if constexpr (knob::kWarpSpecialization) {
      consumer_mainloop(state, rows, scales, problem, tile, smem, at);
    } else if constexpr (knob::kCpAsync) {
      mainloop_pipelined(rows, scales, problem, tile, smem, at);
    } else {
      mainloop_global(rows, scales, problem, tile, smem, at);
    }
  } else {
    producer_mainloop(state, problem, tile, smem);
  }
  if constexpr (Sizes::kKeyWarps == 1) {
    if (is_consumer) store_output(rows, scales, problem, tile, at);
  } else {
    if constexpr (knob::kCpAsync) __syncthreads();  // the merge buffer replaces the pipeline
    if (is_consumer) publish_partial(rows, smem, at);
    __syncthreads();
    if (is_consumer) merge_key_groups(scales, problem, tile, smem, at);
  }
}

// Tiles taken in this launch. The block that takes the last ticket resets it for the next launch.
__device__ unsigned tile_counter;

// The next tile of a persistent block; at least `tiles` when none is left.
__device__ __forceinline__ unsigned take_tile(const SharedStorage& smem, unsigned tiles) {
  __syncthreads();  // the last tile has finished with shared memory, and its ticket has been read
  if (threadIdx.x == 0) {
    *smem.ticket = atomicAdd(&tile_counter, 1u);
    if (*smem.ticket == tiles + gridDim.x - 1) atomicExch(&tile_counter, 0u);
  }
  __syncthreads();
  return *smem.ticket;
}

// Initialises the decode table and the barriers.
__device__ __forceinline__ void prologue(const SharedStorage& smem) {
  if constexpr (knob::kKvLut) {
    for (int i = threadIdx.x; i < 64; i += Sizes::kThreads) {
      reinterpret_cast<uint2*>(smem.table)[i] = e4m3::decode4(0x03020100u + 0x04040404u * i);
    }
  }
  if constexpr (knob::kWarpSpecialization) {
    if (threadIdx.x < Sizes::kStages) {
      ptx::mbarrier_init(&smem.full[threadIdx.x], 32 * Sizes::kProducerWarps);
      ptx::mbarrier_init(&smem.empty[threadIdx.x], Sizes::kConsumerThreads);
    }
  }
  if constexpr (knob::kKvLut || knob::kWarpSpecialization) __syncthreads();
}

__device__ __forceinline__ WorkTile tile_of(const Problem& problem, Head head, unsigned order) {
  return work_tile<Sizes::kBlockM, Sizes::kHeadDim>(problem, head, order);
}

__device__ __forceinline__ void forward(const Problem& problem) {
  const SharedStorage smem = shared_storage(shared_memory<Sizes::kSharedBytes>());
  const Position at = thread_position();
  prologue(smem);
  KvState state;
  if constexpr (knob::kPersistent) {
    const unsigned per_head = tiles_per_head<Sizes::kBlockM>(problem);
    const unsigned tiles = per_head * problem.heads;
    for (;;) {
      const unsigned tile = take_tile(smem, tiles);
      if (tile >= tiles) break;
      const Head head = head_at(problem, tile / per_head);
      compute_tile(state, problem, tile_of(problem, head, tile % per_head), smem, at);
    }
  } else {
    const Head head = block_head(problem);
    if (head.q >= problem.heads) return;
    compute_tile(state, problem, tile_of(problem, head, blockIdx.x), smem, at);
  }
}

}  // namespace register_scores
