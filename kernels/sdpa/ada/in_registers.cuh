// Attention with scores and P in registers (stages 3b to 6).
//
// A block takes TILE_M query rows of one head. Its NUM_WARPS warps share out the rows, and KEY_WARPS of them the keys as well: a warp has 16 or 32
// rows, its key group every KEY_WARPS-th run of TILE_N keys. It walks them with the online softmax, all in the fragments of mma.sync:
//
//   S = Q K^T          (16, TILE_N) floats, accumulator fragments
//   P = exp2(S - max)  the same fragments, packed into the operand of the second product: no shuffle, no shared memory
//   O += P V           (16, D) floats, accumulator fragments; V has a column of ones more, which gives the sums of the rows of P as P was rounded
//
// and at the end the key groups' O, maxima and sums are merged through shared memory. With one key group there is nothing to merge.
//
// Stages, each with what it changes:
//   stage3b  (of 2)  scores and P in registers, four key groups of one warp; K and V brought by cp.async into a ring of two slots, one step ahead
//   stage3c  (of 3b) no ring: operands from global memory straight to registers; half the rows a block, twice the keys a step
//   stage4   (of 3b) a ring of three slots, two steps ahead
//   stage5   (of 3b) the ring filled by a warp that does nothing else; blocks that stay and draw tile after tile from a queue
//   stage6   (of 3b) products of E4M3 operands instead of halves
//
// Budget at TILE_M=32, TILE_N=32, D=64, 4 key groups (stage3b): ring 32 KB, merge 17 KB in its place.
//
// Headers, each built on ones above it only:
//   block.cuh      threads and shared memory
//   fragments.cuh  what a lane holds, and which number stands where
//   ring.cuh       K and V in shared memory
//   operands.cuh   Q, K and V from memory to registers
//   softmax.cuh    scores to P
//   products.cuh   Q K^T and P V, of halves or of E4M3
//   walk.cuh       these over the keys, with or without producer warps
//   merge.cuh      O of the key groups to one, and to global memory
// Here is what is left: one tile, and how a block comes by its tiles.
#pragma once

#include "../common/e4m3.cuh"
#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "../common/ring_position.cuh"
#include "block.cuh"
#include "fragments.cuh"
#include "merge.cuh"
#include "ring.cuh"
#include "walk.cuh"

namespace attention {

// The barriers stand where every warp comes by, whatever its role: __syncthreads() in a branch that only some warps take is not defined.
__device__ __forceinline__ void attend_tile(RingPosition<kSlots>& position, const Problem& problem, const Tile& tile, const Shared& shared, const Place& at) {
  const bool computes = !kWarpSpecialization || at.warp < kWarps;
  Output out;
  Factors factors;
  if (computes) {
    clear(out);
    if constexpr (kWarpSpecialization) {
      consume(position, out, factors, problem, tile, shared, at);
    } else if constexpr (kCpAsync) {
      walk_ring(out, factors, problem, tile, shared, at);
    } else {
      walk_global(out, factors, problem, tile, shared, at);
    }
  } else {
    produce(position, problem, tile, shared);
  }
  if constexpr (kKeyWarps == 1) {
    if (computes) store_alone(out, factors, problem, tile, at);
  } else {
    if constexpr (kCpAsync) __syncthreads();  // nobody reads the ring any more: the parts go in its place
    if (computes) leave_partial(out, shared, at);
    __syncthreads();
    if (computes) merge(factors, problem, tile, shared, at);
  }
}

// Tickets that blocks have drawn in this launch. The last one sets it back for the next launch.
__device__ unsigned queue;

__device__ __forceinline__ unsigned draw_ticket(const Shared& shared, unsigned tiles) {
  __syncthreads();  // the last tile is done with shared memory, and its ticket has been read
  if (threadIdx.x == 0) {
    *shared.ticket = atomicAdd(&queue, 1u);
    if (*shared.ticket == tiles + gridDim.x - 1) atomicExch(&queue, 0u);
  }
  __syncthreads();
  return *shared.ticket;
}

// The table of codes and the barriers of the ring, where there are such.
__device__ __forceinline__ void prepare(const Shared& shared) {
  if constexpr (kKvLut) {
    for (int i = threadIdx.x; i < 64; i += kThreads) {
      reinterpret_cast<uint2*>(shared.table)[i] = e4m3::decode4(0x03020100u + 0x04040404u * i);
    }
  }
  if constexpr (kWarpSpecialization) {
    if (threadIdx.x < kSlots) {
      ptx::mbarrier_init(&shared.full[threadIdx.x], 32 * kProducers);
      ptx::mbarrier_init(&shared.empty[threadIdx.x], kConsumerThreads);
    }
  }
  if constexpr (kKvLut || kWarpSpecialization) __syncthreads();
}

__device__ __forceinline__ void attend(const Problem& problem) {
  const Shared shared = shared_layout(shared_memory<kSharedBytes>());
  const Place at = place();
  prepare(shared);
  RingPosition<kSlots> position;
  if constexpr (kPersistent) {
    const unsigned a_head = tiles_a_head(problem), tiles = a_head * problem.heads;
    for (;;) {
      const unsigned ticket = draw_ticket(shared, tiles);
      if (ticket >= tiles) break;
      attend_tile(position, problem, tile_of(problem, head_of(problem, ticket / a_head), ticket % a_head), shared, at);
    }
  } else {
    const Head head = head_of_block(problem);
    if (head.q >= problem.heads) return;
    attend_tile(position, problem, tile_of(problem, head, blockIdx.x), shared, at);
  }
}

}  // namespace attention
