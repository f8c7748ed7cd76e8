// The producer warpgroup: one warp each issues the TMA loads of K, of V and of Q, by maps of four
// dimensions: column, row, head, batch. The form knows their addresses.
#pragma once

#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "storage.cuh"

namespace attention::pingpong {

// One thread. Issues the loads of a step's rows of K or V, 64 columns a box.
template <class Traits>
__device__ __forceinline__ void issue_step_loads(const attention::Problem<Traits>& p, unsigned char* shared,
                                                 const TensorMap* map, int n_block,
                                                 const WorkTile<Traits>& tile, uint64_t* full) {
  ptx::mbarrier_arrive_expect_tx(full, Storage<Traits>::kTileBytes);
  Traits::Loads::issue_step(p, tile, n_block, shared, map, full);
}

// One thread. The steps of a tile are loaded from the last keys to the first. The tile is described
// to the other producers and to the consumers; one without steps ends their loops.
template <class Traits>
__device__ __forceinline__ void load_k(const attention::Problem<Traits>& p,
                                       attention::TileScheduler<Traits> scheduler,
                                       const TensorMap* k_map) {
  using Storage = pingpong::Storage<Traits>;
  Barriers<Traits>& barriers = Storage::barriers();
  KState<Traits> state;
#pragma unroll 1
  for (unsigned round = 0;; ++round) {
    const WorkTile<Traits> tile = scheduler.next(round);
    Storage::tile(round) = tile;
    ptx::mbarrier_arrive(&barriers.tile_full[round % kTileSlots]);
    if (tile.steps == 0) break;
#pragma unroll 1
    for (int n_block = tile.steps - 1; n_block >= 0; --n_block) {
      ptx::mbarrier_try_wait_parity(&barriers.k_empty[state.stage], state.phase ^ 1);
      issue_step_loads<Traits>(p, Storage::k(state.stage), k_map, n_block, tile,
                               &barriers.k_full[state.stage]);
      state.advance();
    }
  }
  ptx::mbarrier_try_wait_parity(&barriers.k_empty[state.stage], state.phase ^ 1);
  ptx::mbarrier_arrive(&barriers.k_full[state.stage]);  // the consumers wait for K before a tile
  scheduler.finish();
}

// One thread.
template <class Traits>
__device__ __forceinline__ void load_v(const attention::Problem<Traits>& p, const TensorMap* v_map) {
  using Storage = pingpong::Storage<Traits>;
  Barriers<Traits>& barriers = Storage::barriers();
  VState<Traits> state;
#pragma unroll 1
  for (unsigned round = 0;; ++round) {
    wait_tile<Traits>(round);
    const WorkTile<Traits> tile = Storage::tile(round);
    if (tile.steps == 0) break;
#pragma unroll 1
    for (int n_block = tile.steps - 1; n_block >= 0; --n_block) {
      ptx::mbarrier_try_wait_parity(&barriers.v_empty[state.stage], state.phase ^ 1);
      issue_step_loads<Traits>(p, Storage::v(state.stage), v_map, n_block, tile,
                               &barriers.v_full[state.stage]);
      state.advance();
    }
  }
}

// One thread.
template <class Traits>
__device__ __forceinline__ void load_q(const attention::Problem<Traits>& p, const TensorMap* q_map) {
  using Storage = pingpong::Storage<Traits>;
  Barriers<Traits>& barriers = Storage::barriers();
#pragma unroll 1
  for (unsigned round = 0;; ++round) {
    wait_tile<Traits>(round);
    const WorkTile<Traits> tile = Storage::tile(round);
    if (tile.steps == 0) break;
#pragma unroll 1
    for (int consumer = 0; consumer < TileSizes<Traits>::kConsumers; ++consumer) {
      ptx::mbarrier_try_wait_parity(&barriers.q_empty[consumer], round % 2 ^ 1);
      ptx::mbarrier_arrive_expect_tx(&barriers.q_full[consumer], Storage::kQBytes);
      Traits::Loads::issue_query(p, tile, consumer, q_map, &barriers.q_full[consumer]);
    }
  }
}

// The launch may overlap the end of the one before, which may write the inputs or read O: the loads
// wait for it, and everything else waits for the loads.
template <class Traits>
__device__ __forceinline__ void producer_loop(const attention::Problem<Traits>& p, const TensorMap* q_map,
                                              const TensorMap* k_map, const TensorMap* v_map) {
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) {
    ptx::griddepcontrol_wait();
    if (warp == 0) load_k<Traits>(p, attention::TileScheduler<Traits>(p), k_map);
    if (warp == 1) load_v<Traits>(p, v_map);
    if (warp == 2) load_q<Traits>(p, q_map);
  }
  __syncwarp();
}

}  // namespace attention::pingpong
