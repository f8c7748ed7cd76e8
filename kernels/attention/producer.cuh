// The producer warpgroup: TMA loads of K and V, and the transpose of V.
#pragma once

#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "direct_v.cuh"
#include "schedule.cuh"
#include "shared_storage.cuh"
#include "transpose.cuh"

namespace attention {

template <class Traits>
__device__ __forceinline__ void issue_tile_load(unsigned char* shared, const TensorMap* map,
                                                const Problem<Traits>& p,
                                                const LoadCursor<Traits>& load, uint64_t* full) {
  using Sizes = TileSizes<Traits>;
  ptx::mbarrier_arrive_expect_tx(full, Sizes::kTileBytes);
  load.source.issue_load(shared, map, p, load.n_block, full);
}

// Loads K and V of one n_block as soon as their stage is empty. One thread.
template <class Traits>
__device__ __forceinline__ void load_kv(const SharedStorage<Traits>& smem, const Problem<Traits>& p,
                                        const LoadCursor<Traits>& load, const TensorMap* k_map,
                                        const TensorMap* v_map) {
  using Sizes = TileSizes<Traits>;
  const int stage = load.state.stage;
  const uint32_t empty_phase = load.state.phase ^ 1;
  ptx::mbarrier_try_wait_parity(&smem.barriers->k_empty[stage], empty_phase);
  issue_tile_load(smem.k + stage * Sizes::kTileBytes, k_map, p, load,
                  &smem.barriers->k_full[stage]);
  if constexpr (Traits::kDirectV) return;
  ptx::mbarrier_try_wait_parity(&smem.barriers->v_empty[stage], empty_phase);
  issue_tile_load(smem.v + stage * Sizes::kTileBytes, v_map, p, load,
                  &smem.barriers->v_full[stage]);
}

// With USE_DIRECT_V: K and V of one n_block after the other. The caller has issued the first K.
template <class Traits>
__device__ __forceinline__ void producer_mainloop_direct(const Problem<Traits>& p,
                                                         const TileScheduler<Traits>& scheduler,
                                                         const SharedStorage<Traits>& smem,
                                                         const TensorMap* k_map,
                                                         LoadCursor<Traits>& load) {
  using Sizes = TileSizes<Traits>;
  const DirectV<Traits> direct(p, smem);
  while (load.valid()) {
    if ((load.n_block + 1) * Sizes::kBlockN <= p.keys) {
      direct.template run<true>(p, smem, load);
    } else {
      direct.template run<false>(p, smem, load);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&smem.barriers->v_t_full[load.state.stage]);
    load.next(p, scheduler);
    if (threadIdx.x == 0 && load.valid()) load_kv(smem, p, load, k_map, nullptr);
    __syncwarp();
  }
}

// Thread 0 issues the loads, kStages n_blocks ahead of the transpose. The caller has issued the
// load at the cursor.
template <class Traits>
__device__ __forceinline__ void producer_mainloop(const Problem<Traits>& p,
                                                  const TileScheduler<Traits>& scheduler,
                                                  const SharedStorage<Traits>& smem,
                                                  const TensorMap* k_map, const TensorMap* v_map,
                                                  LoadCursor<Traits>& load) {
  using Sizes = TileSizes<Traits>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int pending = 0;  // n_blocks loaded and not yet transposed
  while (load.valid()) {
    ++pending;
    load.next(p, scheduler);
    if (pending == Sizes::kStages) break;
    if (threadIdx.x == 0 && load.valid()) load_kv(smem, p, load, k_map, v_map);
  }
  __syncwarp();
  const UnrolledTranspose<Traits> unrolled(smem, threadIdx.x);
  for (KvState<Traits> state; pending > 0; --pending, state.advance()) {
    transpose_v(smem, unrolled, state, warp, lane);
    if (load.valid()) {
      if (threadIdx.x == 0) load_kv(smem, p, load, k_map, v_map);
      load.next(p, scheduler);
      ++pending;
    }
    __syncwarp();
  }
}

template <class Traits>
struct Producer {
  using Sizes = TileSizes<Traits>;

  // Loads the first K and V before the block-wide barrier. This thread initialises the barriers of
  // these two loads; a consumer thread initialises all others at the same time.
  __device__ __forceinline__ static void load_first_kv(const SharedStorage<Traits>& smem,
                                                       const Problem<Traits>& p,
                                                       const LoadCursor<Traits>& load,
                                                       const TensorMap* k_map,
                                                       const TensorMap* v_map) {
    ptx::mbarrier_init(&smem.barriers->k_full[0], 1);
    ptx::mbarrier_init(&smem.barriers->v_full[0], 1);
    ptx::fence_mbarrier_init();
    if (!load.valid()) return;
    issue_tile_load(smem.k, k_map, p, load, &smem.barriers->k_full[0]);
    if constexpr (Traits::kDirectV) return;
    issue_tile_load(smem.v, v_map, p, load, &smem.barriers->v_full[0]);
  }

  // The producer after the block-wide barrier.
  __device__ __forceinline__ static void run(const Problem<Traits>& p,
                                             const TileScheduler<Traits>& scheduler,
                                             const SharedStorage<Traits>& smem,
                                             const TensorMap* k_map, const TensorMap* v_map,
                                             LoadCursor<Traits>& load) {
    if (!Sizes::kEarlyLoads && threadIdx.x == 0 && load.valid()) {
      load_kv(smem, p, load, k_map, v_map);
    }
    if constexpr (Traits::kDirectV) {
      producer_mainloop_direct(p, scheduler, smem, k_map, load);
    } else {
      producer_mainloop(p, scheduler, smem, k_map, v_map, load);
    }
  }
};

}  // namespace attention
