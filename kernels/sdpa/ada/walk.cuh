// The walk of a warp over the keys of its group, step by step, from an O of zeros to the O of all these keys:
//
//   walk_global       USE_CP_ASYNC=0: operands from global memory to registers, K one step ahead
//   walk_ring         USE_CP_ASYNC=1: from the ring, of which each key group fills its own part
//   produce, consume  USE_WARP_SPECIALIZATION=1: from the ring, filled by warps that do nothing else, with mbarriers for full and empty
//
// Each asks for its first operands before it asks for the factors of the head, and leaves those for the end of the tile.
#pragma once

#include <cstdint>

#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "../common/ring_position.cuh"
#include "block.cuh"
#include "fragments.cuh"
#include "operands.cuh"
#include "products.cuh"
#include "ring.cuh"
#include "softmax.cuh"

namespace attention {

__device__ __forceinline__ int steps_of(const Tile& tile) { return (static_cast<unsigned>(tile.seen) + kStepKeys - 1) / kStepKeys; }

// All operands straight from global memory. K, Q and V are asked for before anything is waited for; then the next K as soon as Q K^T is done with
// the last, and the next V as soon as P V is.
__device__ __forceinline__ void walk_global(Output& out, Factors& factors, const Problem& problem, const Tile& tile, const Shared& shared,
                                            const Place& at) {
  int key = at.key_group * kTileN;
  if (key >= tile.seen) {
    factors = factors_of(problem, tile.head);
    return;
  }
  GlobalKeys keys;
  keys.load(tile.k, key, problem.keys, at);
  QueryCodes codes;
  codes.load(problem, tile, at);
  GlobalValues values;
  values.load(tile.v, key, problem.keys, at);
  factors = factors_of(problem, tile.head);
  const Query query = codes.operands(shared);
  for (;;) {
    Scores scores;
    multiply_qk(scores, query, keys, shared, at);
    const int next = key + kStepKeys;
    if (next < tile.seen) keys.load(tile.k, next, problem.keys, at);
    scores_to_p(scores, out, problem, tile, factors, key, at);
    multiply_pv(out, scores, values, problem, tile, shared, at);
    if (next >= tile.seen) return;
    key = next;
    values.load(tile.v, key, problem.keys, at);
  }
}

// The threads of a key group wait for each other.
__device__ __forceinline__ void key_group_sync(const Place& at) {
  if constexpr (kRowWarps == 1) {
    __syncwarp();
  } else if constexpr (kKeyWarps == 1) {
    __syncthreads();
  } else {
    ptx::barrier_sync(1 + at.key_group, 32 * kRowWarps);
  }
}

// One tile of keys that lies in a slot of the ring.
__device__ __forceinline__ void step_ring(Output& out, const Query& query, const Problem& problem, const Tile& tile, const Factors& factors,
                                          const Shared& shared, int slot, int step, const Place& at) {
  const int row = at.key_group * kTileN, key = step * kStepKeys + row;
  if (key >= tile.seen) return;
  Scores scores;
  multiply_qk(scores, query, RingKeys{ring_tile(shared, slot, 0), row}, shared, at);
  scores_to_p(scores, out, problem, tile, factors, key, at);
  multiply_pv(out, scores, RingValues{ring_tile(shared, slot, 1), row}, problem, tile, shared, at);
}

// Each key group fills its part of the ring itself, kSlots - 1 steps ahead.
__device__ __forceinline__ void walk_ring(Output& out, Factors& factors, const Problem& problem, const Tile& tile, const Shared& shared,
                                          const Place& at) {
  const int steps = steps_of(tile), row = at.key_group * kTileN, thread = at.row_warp * 32 + at.lane;
  const auto copy = [&](int step) {
    if (step < steps) copy_async<kTileN, 32 * kRowWarps>(shared, problem, tile, step % kSlots, row, step * kStepKeys + row, thread);
    ptx::cp_async_commit_group();
  };
#pragma unroll
  for (int step = 0; step < kSlots - 1; ++step) copy(step);
  QueryCodes codes;
  codes.load(problem, tile, at);
  factors = factors_of(problem, tile.head);
  const Query query = codes.operands(shared);
  for (int step = 0; step < steps; ++step) {
    ptx::cp_async_wait_group<kSlots - 2>();
    key_group_sync(at);  // this step's bytes have arrived for every thread, and the last step's are no longer read
    copy(step + kSlots - 1);
    step_ring(out, query, problem, tile, factors, shared, step % kSlots, step, at);
  }
  ptx::cp_async_wait_group<0>();
}

// A producer warp fills slot after slot for the whole block.
__device__ __forceinline__ void produce(RingPosition<kSlots>& position, const Problem& problem, const Tile& tile, const Shared& shared) {
  const int steps = steps_of(tile);
  for (int step = 0; step < steps; ++step) {
    ptx::mbarrier_wait_parity(&shared.empty[position.slot], position.parity ^ 1);
    copy_async<kStepKeys, 32 * kProducerWarps>(shared, problem, tile, position.slot, 0, step * kStepKeys, threadIdx.x - kConsumerThreads);
    ptx::cp_async_mbarrier_arrive_noinc(&shared.full[position.slot]);
    position.advance();
  }
}

// The other warps empty them.
__device__ __forceinline__ void consume(RingPosition<kSlots>& position, Output& out, Factors& factors, const Problem& problem, const Tile& tile,
                                        const Shared& shared, const Place& at) {
  const int steps = steps_of(tile);
  QueryCodes codes;
  codes.load(problem, tile, at);
  factors = factors_of(problem, tile.head);
  const Query query = codes.operands(shared);
  for (int step = 0; step < steps; ++step) {
    ptx::mbarrier_wait_parity(&shared.full[position.slot], position.parity);
    step_ring(out, query, problem, tile, factors, shared, position.slot, step, at);
    ptx::mbarrier_arrive(&shared.empty[position.slot]);
    position.advance();
  }
}

}  // namespace attention
