// The producer warpgroup: one warp each issues the TMA loads of K, of V and of Q, by maps of four
// dimensions: column, row, head, batch. The form knows their addresses. With sequences the fourth
// warp clears V behind their ends.
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

// With sequences: the ends of sequences, from the loads of V to the warp that clears V behind them.
// A slot is written again as many ends later as V has stages, when the consumers have released the
// stage of its end.
template <class Traits, bool kHasSequences = Traits::kHasSequences>
struct EndQueue {
  __device__ __forceinline__ uint64_t* full_of(const WorkTile<Traits>&, int, int, uint64_t* full) {
    return full;
  }
  __device__ __forceinline__ void finish(const VState<Traits>&) {}
};

template <class Traits>
struct EndQueue<Traits, true> {
  unsigned count = 0;

  // The barrier of a load of V: that of its stage, or that of the end of a sequence.
  __device__ __forceinline__ uint64_t* full_of(const WorkTile<Traits>& tile, int n_block,
                                               int stage, uint64_t* full) {
    const int keys = tile.source.keys_of(n_block);
    return keys < TileSizes<Traits>::kBlockN ? push(stage, keys) : full;
  }
  // Behind the last load.
  __device__ __forceinline__ void finish(const VState<Traits>& state) {
    ptx::mbarrier_try_wait_parity(&Storage<Traits>::barriers().v_empty[state.stage],
                                  state.phase ^ 1);
    ptx::mbarrier_arrive(push(-1, 0));
  }

 private:
  __device__ __forceinline__ uint64_t* push(int stage, int keys) {
    Barriers<Traits>& barriers = Storage<Traits>::barriers();
    const unsigned slot = count++ % Traits::kVStages;
    barriers.ends[slot] = {stage, keys};
    return &barriers.end_loaded[slot];
  }
};

// One warp. Clears the rows of V behind the ends of sequences: P is 0 there, but 0 times NaN is not.
template <class Traits>
__device__ __forceinline__ void clear_ends() {
  using Sizes = OperandSizes<Traits>;
  Barriers<Traits>& barriers = Storage<Traits>::barriers();
  const unsigned lane = threadIdx.x % 32;
#pragma unroll 1
  for (VState<Traits> state;; state.advance()) {
    ptx::mbarrier_try_wait_parity(&barriers.end_loaded[state.stage], state.phase);
    typename Barriers<Traits>::End end = {};
    if (lane == 0) end = barriers.ends[state.stage];
    const int stage = uniform(end.stage), keys = max(0, static_cast<int>(uniform(end.keys)));
    if (stage < 0) return;
    unsigned char* v = Storage<Traits>::v(stage) + lane % 8 * 16;
#pragma unroll 1
    for (int row = keys + lane / 8; row < Sizes::kBlockN; row += 4) {
#pragma unroll
      for (int box = 0; box < Sizes::kBoxes; ++box) {
        *reinterpret_cast<uint4*>(v + box * Sizes::kBoxBytes + row * Sizes::kRowBytes) =
            make_uint4(0, 0, 0, 0);
      }
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&barriers.v_full[stage]);
  }
}

// One thread.
template <class Traits>
__device__ __forceinline__ void load_v(const attention::Problem<Traits>& p, const TensorMap* v_map) {
  using Storage = pingpong::Storage<Traits>;
  Barriers<Traits>& barriers = Storage::barriers();
  VState<Traits> state;
  EndQueue<Traits> ends;
#pragma unroll 1
  for (unsigned round = 0;; ++round) {
    wait_tile<Traits>(round);
    const WorkTile<Traits> tile = Storage::tile(round);
    if (tile.steps == 0) break;
#pragma unroll 1
    for (int n_block = tile.steps - 1; n_block >= 0; --n_block) {
      ptx::mbarrier_try_wait_parity(&barriers.v_empty[state.stage], state.phase ^ 1);
      issue_step_loads<Traits>(
          p, Storage::v(state.stage), v_map, n_block, tile,
          ends.full_of(tile, n_block, state.stage, &barriers.v_full[state.stage]));
      state.advance();
    }
  }
  ends.finish(state);
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
  if constexpr (Traits::kHasSequences) {
    if (warp == 3) clear_ends<Traits>();
  }
  __syncwarp();
}

}  // namespace attention::pingpong
