// The TMA loads of Q, K and V.
#pragma once

#include "hopper/stage7b/form.cuh"
#include "hopper/stage7b/schedule.cuh"
#include "hopper/tma.cuh"
#include "ptx.cuh"
#include "storage.cuh"

namespace native {

using stage7b::num_n_blocks;
using stage7b::Problem;

// K and V. There is no producer, whose warp would leave the others fewer registers: the last warp
// that releases a stage loads it again.
struct KvLoads {
  const Problem& p;
  const Storage& smem;
  const TensorMap *k_map, *v_map;

  // Issues the loads of the step that follows n_block of a round by some steps, if there is one. One
  // thread.
  __device__ __forceinline__ void issue(unsigned round, int n_block, int steps, int stage) const {
    const TileScheduler scheduler = smem.schedule();
    TileIndex at = smem.at(round);
    n_block -= steps;
    WorkTile tile = scheduler.tile(p, at);
    while (n_block < 0) {
      scheduler.next(p, at);
      if (!scheduler.has(at)) return;
      tile = scheduler.tile(p, at);
      n_block += num_n_blocks(tile);
    }
    stage7b::KvSource source;
    source.enter(p, tile);
    load(source, n_block, smem.k + stage * kTileBytes, k_map, &smem.barriers->k_full[stage]);
    load(source, n_block, smem.v + stage * kTileBytes, v_map, &smem.barriers->v_full[stage]);
  }

  // Those of the first steps of the block. One thread.
  __device__ __forceinline__ void issue_first() const {
    const int n_block = num_n_blocks(smem.schedule().tile(p, smem.at(0))) - 1;
#pragma unroll 1
    for (int stage = 0; stage < Sizes::kStages; ++stage) issue(0, n_block, stage, stage);
  }

  // Releases the stage of step n_block of a round. One arrival per warp.
  __device__ __forceinline__ void release(unsigned round, int n_block, const KvState& state) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      uint64_t* empty = &smem.barriers->empty[state.stage];
      if (ptx::mbarrier_arrive_pending(empty) == 1) {
        ptx::mbarrier_try_wait_parity(empty, state.phase);  // acquires what the others released
        issue(round, n_block, Sizes::kStages, state.stage);
      }
    }
    __syncwarp();
  }

 private:
  __device__ __forceinline__ void load(const stage7b::KvSource& source, int n_block,
                                       unsigned char* tile, const TensorMap* map,
                                       uint64_t* full) const {
    ptx::mbarrier_arrive_expect_tx(full, kTileBytes);
    source.issue_load(tile, map, p, n_block, full);
  }
};

// Q (64, D) of a consumer, in shared memory.
struct Query {
  const Problem& p;
  const Storage& smem;
  const TensorMap* map;
  unsigned char* shared;
  uint64_t* full;
  int consumer;

  // Issues the loads of a round, if it has a tile. One thread; all warps have read Q of the round
  // before. Rows beyond the last query are zeros; their results are not stored.
  __device__ __forceinline__ void issue(unsigned round) const {
    const TileScheduler scheduler = smem.schedule();
    const TileIndex at = smem.at(round);
    if (!scheduler.has(at)) return;
    const WorkTile tile = scheduler.tile(p, at);
    const unsigned batch = tile.head.kv / p.kv_heads;
    const unsigned head = tile.head.q - batch * p.kv_heads * p.group;
    ptx::mbarrier_arrive_expect_tx(full, kQBytes);
    stage7b::issue_box_loads<64>(shared, map, tile.first_query + consumer * 64, head, batch, full);
  }

  // Those of the next round, once all warps have read Q of this one.
  __device__ __forceinline__ void issue_next(unsigned round) const {
    ptx::barrier_sync(1 + consumer, 128);
    if (ptx::opaque(threadIdx.x) % 128 == 0) issue(round + 1);
    __syncwarp();
  }

  // The phase of the barrier changes with each round.
  __device__ __forceinline__ void wait(unsigned round) const {
    ptx::mbarrier_try_wait_parity(full, round % 2);
  }
};

}  // namespace native
