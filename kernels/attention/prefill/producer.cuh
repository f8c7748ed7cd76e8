// The producer warpgroup of sequences: two threads load, and all warps transpose V.
#pragma once

#include "attention/schedule.cuh"
#include "attention/shared_storage.cuh"
#include "attention/transpose.cuh"
#include "include/ptx.cuh"
#include "include/tma.cuh"

namespace attention::prefill {

// Zeros the rows of V from `keys` on, in the columns that this warp transposes. P is 0 there, but 0
// times NaN is not.
template <class Traits>
__device__ __forceinline__ void zero_rows(unsigned char* v, int keys, int warp, int lane) {
  using Sizes = TileSizes<Traits>;
#pragma unroll 1
  for (int row = keys + lane; row < Sizes::kBlockN; row += 32) {
#pragma unroll
    for (int block = 0; block < Sizes::kHeadDim / 16; block += 4) {
      unsigned char* box = v + 16 * block / Sizes::kRowBytes * Sizes::kBoxBytes;
      const int chunk = (block + warp) % (Sizes::kRowBytes / 16);
      *reinterpret_cast<uint4*>(box + swizzled_offset<Sizes::kRowBytes>(row, chunk)) =
          make_uint4(0, 0, 0, 0);
    }
  }
  __syncwarp();
}

// Behind the last step comes a stage with kEndOfSteps keys.
constexpr int kEndOfSteps = -1;

// The loads of K, or of V: its pipeline stages and their barriers.
template <class Traits>
struct Loader {
  using Sizes = TileSizes<Traits>;
  const TensorMap* map;
  unsigned char* shared;
  uint64_t *full, *empty;

  // The caller has waited for an empty stage. One thread.
  __device__ __forceinline__ void load(const Problem& p, const LoadCursor<Traits>& load,
                                       int stage) const {
    ptx::mbarrier_arrive_expect_tx(&full[stage], Sizes::kTileBytes);
    load.source.issue_load(shared + stage * Sizes::kTileBytes, map, p, load.n_block, &full[stage]);
  }
};

template <class Traits>
__device__ __forceinline__ Loader<Traits> k_loader(const SharedStorage<Traits>& smem,
                                                   const TensorMap* map) {
  return {map, smem.k, smem.barriers->k_full, smem.barriers->k_empty};
}
template <class Traits>
__device__ __forceinline__ Loader<Traits> v_loader(const SharedStorage<Traits>& smem,
                                                   const TensorMap* map) {
  return {map, smem.v, smem.barriers->v_full, smem.barriers->v_empty};
}

// Loads K, or V, of the n_block at the cursor as soon as the stage is empty. With V come its keys,
// behind the last load the end. One thread.
template <class Traits>
__device__ __forceinline__ void load_next(const SharedStorage<Traits>& smem, const Problem& p,
                                          const LoadCursor<Traits>& load,
                                          const KvState<Traits>& state,
                                          const Loader<Traits>& loader, bool is_v) {
  const int stage = state.stage;
  if (!is_v && !load.valid()) return;
  ptx::mbarrier_try_wait_parity(&loader.empty[stage], state.phase ^ 1);
  if (is_v) smem.stage_keys[stage] = load.valid() ? load.source.keys_of(load.n_block) : kEndOfSteps;
  if (load.valid()) {
    loader.load(p, load, stage);
  } else {
    ptx::mbarrier_arrive(&loader.full[stage]);
  }
}

// Transposes V of a stage. Returns false behind the last step.
template <class Traits>
__device__ __forceinline__ bool transpose_stage(const SharedStorage<Traits>& smem,
                                                const KvState<Traits>& state) {
  using Sizes = TileSizes<Traits>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  ptx::mbarrier_try_wait_parity(&smem.barriers->v_full[state.stage], state.phase);
  const int keys = smem.stage_keys[state.stage];
  if (keys == kEndOfSteps) return false;
  if (keys < Sizes::kBlockN) {
    zero_rows<Traits>(smem.v + state.stage * Sizes::kTileBytes, keys, warp, lane);
  }
  // Addresses are derived in every step: they would take registers from the next load.
  const UnrolledTranspose<Traits> unrolled(smem, ptx::opaque(threadIdx.x));
  transpose_v(smem, unrolled, state, warp, lane);
  return true;
}

// Whether the producer keeps the cursor and the reciprocals of the scheduler in registers.
// Otherwise the cursor is in shared memory, and the reciprocals are derived for each tile.
template <class Traits>
constexpr bool kCursorInRegisters = TileSizes<Traits>::kProducerRegisters >= 56;

// Advances the cursor, and loads K or V of the n_block there. One thread for each of the two.
template <class Traits>
__device__ __forceinline__ void issue_next_load(const Problem& p,
                                                const TileScheduler<Traits>& scheduler,
                                                const SharedStorage<Traits>& smem,
                                                const KvState<Traits>& state,
                                                const TensorMap* k_map, const TensorMap* v_map,
                                                LoadCursor<Traits>& in_registers) {
  const bool is_v = ptx::opaque(threadIdx.x) >= 32;
  LoadCursor<Traits>& cursor = kCursorInRegisters<Traits>
                                   ? in_registers
                                   : reinterpret_cast<LoadCursor<Traits>*>(smem.cursors)[is_v];
  LoadCursor<Traits> load = cursor;
  if (load.valid() && --load.n_block < 0) {
    load.next_tile(p, kCursorInRegisters<Traits> ? scheduler : TileScheduler<Traits>(p));
  }
  cursor = load;
  if (is_v) {
    load_next(smem, p, load, state, v_loader(smem, v_map), true);
  } else {
    load_next(smem, p, load, state, k_loader(smem, k_map), false);
  }
}

__device__ __forceinline__ bool is_loader() { return threadIdx.x % 32 == 0 && threadIdx.x < 64; }

template <class Traits>
struct Producer {
  using Sizes = TileSizes<Traits>;
  static_assert(2 * sizeof(LoadCursor<Traits>) <= Sizes::kCursorBytes);

  // The first load, before the block-wide barrier. This thread initialises its barriers; a consumer
  // thread initialises all others at the same time.
  __device__ __forceinline__ static void load_first_kv(const SharedStorage<Traits>& smem,
                                                       const Problem& p,
                                                       const LoadCursor<Traits>& load,
                                                       const TensorMap* k_map,
                                                       const TensorMap* v_map) {
    ptx::mbarrier_init(&smem.barriers->k_full[0], 1);
    ptx::mbarrier_init(&smem.barriers->v_full[0], 1);
    ptx::fence_mbarrier_init();
    if (!load.valid()) return;
    smem.stage_keys[0] = load.source.keys_of(load.n_block);
    k_loader(smem, k_map).load(p, load, 0);
    v_loader(smem, v_map).load(p, load, 0);
  }

  // The first thread of warp 0 loads K and that of warp 1 V, kStages n_blocks ahead of the
  // transpose. One thread for both delays the transpose of its warp: 2 % with head dim 256. Loads
  // before the first transpose are issued in the same loop: the code that finds the next tile is
  // long and not duplicated. With early loads the caller has issued the first one.
  __device__ __forceinline__ static void run(const Problem& p,
                                             const TileScheduler<Traits>& scheduler,
                                             const SharedStorage<Traits>& smem,
                                             const TensorMap* k_map, const TensorMap* v_map,
                                             LoadCursor<Traits>& load) {
    if (!load.valid()) return;
    KvState<Traits> state;
    if constexpr (Sizes::kEarlyLoads) {
      state.advance();
    } else {
      ++load.n_block;  // the first load advances the cursor, too
    }
    if (!kCursorInRegisters<Traits> && is_loader()) {
      reinterpret_cast<LoadCursor<Traits>*>(smem.cursors)[threadIdx.x / 32] = load;
    }
#pragma unroll 1
    for (int ahead = Sizes::kEarlyLoads;; state.advance()) {
      if (ahead < Sizes::kStages) {
        ++ahead;
      } else if (!transpose_stage(smem, {state.stage, state.phase ^ 1})) {
        return;
      }
      if (is_loader()) issue_next_load(p, scheduler, smem, state, k_map, v_map, load);
      __syncwarp();
    }
  }
};

}  // namespace attention::prefill
