// The producer warpgroup: one warp each issues the TMA loads of K, of V and of Q, by maps of four
// dimensions: column, row, head, batch.
#pragma once

#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "storage.cuh"
#include "tiles.cuh"

namespace attention::pingpong {

// One thread. Issues the loads of a step's rows of K or V, 64 columns a box.
__device__ __forceinline__ void issue_step_loads(unsigned char* shared, const TensorMap* map,
                                                 int n_block, const Tile& tile, uint64_t* full) {
  ptx::mbarrier_arrive_expect_tx(full, kTileBytes);
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    ptx::cp_async_bulk_tensor_4d(shared + box * Sizes::kBlockN * 128, map, box * 64,
                                 n_block * Sizes::kBlockN, tile.kv_head, tile.batch, full);
  }
}

// One thread. The steps of a tile are loaded from the last keys to the first. The tile is described
// to the other producers and to the consumers; one without steps ends their loops.
__device__ __forceinline__ void load_k(TileScheduler scheduler, const TensorMap* k_map) {
  Barriers& barriers = Storage::barriers();
  KState state;
#pragma unroll 1
  for (unsigned round = 0;; ++round) {
    const Tile tile = scheduler.next(round);
    Storage::tile(round) = tile;
    ptx::mbarrier_arrive(&barriers.tile_full[round % kTileSlots]);
    if (tile.steps == 0) break;
#pragma unroll 1
    for (int n_block = tile.steps - 1; n_block >= 0; --n_block) {
      ptx::mbarrier_try_wait_parity(&barriers.k_empty[state.stage], state.phase ^ 1);
      issue_step_loads(Storage::k(state.stage), k_map, n_block, tile,
                       &barriers.k_full[state.stage]);
      state.advance();
    }
  }
  ptx::mbarrier_try_wait_parity(&barriers.k_empty[state.stage], state.phase ^ 1);
  ptx::mbarrier_arrive(&barriers.k_full[state.stage]);  // the consumers wait for K before a tile
  scheduler.finish();
}

// One thread.
__device__ __forceinline__ void load_v(const TensorMap* v_map) {
  Barriers& barriers = Storage::barriers();
  VState state;
#pragma unroll 1
  for (unsigned round = 0;; ++round) {
    wait_tile(round);
    const Tile tile = Storage::tile(round);
    if (tile.steps == 0) break;
#pragma unroll 1
    for (int n_block = tile.steps - 1; n_block >= 0; --n_block) {
      ptx::mbarrier_try_wait_parity(&barriers.v_empty[state.stage], state.phase ^ 1);
      issue_step_loads(Storage::v(state.stage), v_map, n_block, tile,
                       &barriers.v_full[state.stage]);
      state.advance();
    }
  }
}

// One thread. Issues the loads of a consumer's rows: head_rows of each head. Rows beyond the last
// query are zeros; their results are not stored.
__device__ __forceinline__ void issue_query_loads(const Problem& p, const Tile& tile, int consumer,
                                                  const TensorMap* q_map, uint64_t* full) {
  ptx::mbarrier_arrive_expect_tx(full, kQBytes);
  unsigned head = tile.head;
#pragma unroll 1  // a producer thread has few registers
  for (int row = 0; row < 64; row += p.head_rows, ++head) {
#pragma unroll kBoxes <= 2 ? 2 : 1
    for (int box = 0; box < kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_4d(Storage::q(consumer) + (64 * box + row) * 128, q_map, box * 64,
                                   tile.first_query + p.head_rows * consumer, head, tile.batch,
                                   full);
    }
  }
}

// One thread.
__device__ __forceinline__ void load_q(const Problem& p, const TensorMap* q_map) {
  Barriers& barriers = Storage::barriers();
#pragma unroll 1
  for (unsigned round = 0;; ++round) {
    wait_tile(round);
    const Tile tile = Storage::tile(round);
    if (tile.steps == 0) break;
#pragma unroll 1
    for (int consumer = 0; consumer < Sizes::kConsumers; ++consumer) {
      ptx::mbarrier_try_wait_parity(&barriers.q_empty[consumer], round % 2 ^ 1);
      issue_query_loads(p, tile, consumer, q_map, &barriers.q_full[consumer]);
    }
  }
}

// The launch may overlap the end of the one before, which may write the inputs or read O: the loads
// wait for it, and everything else waits for the loads.
__device__ __forceinline__ void producer_loop(const Problem& p, const TensorMap* q_map,
                                              const TensorMap* k_map, const TensorMap* v_map) {
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    ptx::griddepcontrol_wait();
    if (warp == 0) load_k(TileScheduler(p), k_map);
    if (warp == 1) load_v(v_map);
    if (warp == 2) load_q(p, q_map);
  }
  __syncwarp();
}

}  // namespace attention::pingpong
