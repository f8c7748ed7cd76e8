// The loads of K and V in 16 bits, and their conversion to K and V^T in E4M3.
//
// The pipeline has one stage for each consumer warpgroup. The steps of a block form rounds of that
// many. In a round every consumer first converts one step, to its own stage, and then multiplies
// all. The next K and V of a consumer are loaded to slots of its own meanwhile.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../form.cuh"
#include "../schedule.cuh"
#include "../shared_storage.cuh"
#include "convert.cuh"
#include "tiles.cuh"

namespace stage7b {

// Initialises the barriers of the stages. One thread.
__device__ __forceinline__ void init_stage_barriers(Barriers& barriers) {
#pragma unroll
  for (int stage = 0; stage < Sizes::kStages; ++stage) {
    ptx::mbarrier_init(&barriers.k_full[stage], 4);
    ptx::mbarrier_init(&barriers.k_empty[stage], 4 * Sizes::kConsumers);
    ptx::mbarrier_init(&barriers.v_t_full[stage], 4);
    ptx::mbarrier_init(&barriers.v_t_empty[stage], 4 * Sizes::kConsumers);
  }
  ptx::fence_mbarrier_init();
}

// The steps of one consumer: their loads and their conversion. Slot 0 has K and slot 1 V.
struct Conversion {
  const Problem& p;
  const TileScheduler& scheduler;
  const SharedStorage& smem;
  const TensorMap *k_map, *v_map;
  int consumer;

  // One thread. The first guess of the scales suits a largest magnitude between 3.5 and 7.
  __device__ __forceinline__ void init() const {
    smem.staging->factors[0][consumer].y = smem.staging->factors[1][consumer].y = 64.0f;
    ptx::mbarrier_init(full(0), 1);
    ptx::mbarrier_init(full(1), 1);
    ptx::fence_mbarrier_init();
  }

  // Issues the loads of the step that follows n_block of a tile by some steps. One thread. A mark
  // after the last step ends the conversions.
  __device__ __forceinline__ void issue_loads(TileIndex at, int n_block, int steps) const {
    n_block -= steps;
    WorkTile tile = scheduler.tile(p, at);
    while (n_block < 0) {
      scheduler.next(p, at);
      if (!scheduler.has(at)) {
        smem.staging->mark[consumer] = Staging::kEnd;
        ptx::mbarrier_arrive(full(0));
        return;
      }
      tile = scheduler.tile(p, at);
      n_block += num_n_blocks(tile);
    }
    smem.staging->mark[consumer] = Staging::kNext;
    KvSource source;
    source.enter(p, tile);
#pragma unroll
    for (int slot = 0; slot < 2; ++slot) {
      ptx::mbarrier_arrive_expect_tx(full(slot), Sizes::kStagedBytes);
      source.issue_load(smem.staged + (2 * consumer + slot) * Sizes::kStagedBytes,
                        slot ? v_map : k_map, p, n_block, full(slot));
    }
  }

  // Those of the next round, if the consumer had a step in this one, which begins with n_block. All
  // warps have read the slots.
  __device__ __forceinline__ void issue_next(const TileIndex& at, int n_block) const {
    if (ptx::opaque(threadIdx.x) % 128 == 0 && smem.staging->mark[consumer] != Staging::kEnd) {
      issue_loads(at, n_block, Sizes::kConsumers + consumer);
    }
    __syncwarp();
  }

  // Converts the consumer's step of a round. All barriers of a round have the same phase.
  //
  // It converts with the scales of the round before, which are right as a rule. Otherwise it
  // converts again. So no warp waits for the magnitudes of the others before it converts.
  __device__ __forceinline__ void run(uint32_t phase) const {
    Staging& staging = *smem.staging;
    ptx::mbarrier_try_wait_parity(full(0), phase);
    if (staging.mark[consumer] == Staging::kEnd) return;
    const KTile k_tile = {slot_address(0), converting_thread()};
    const VTile v_tile = {slot_address(1), converting_thread()};
    const uint32_t k = ptx::shared_address(smem.k) + consumer * Sizes::kTileBytes;
    const uint32_t v_t = ptx::shared_address(smem.v_t) + consumer * Sizes::kVtBytes;
    const float k_guess = staging.factors[0][consumer].y, v_guess = staging.factors[1][consumer].y;
    ptx::mbarrier_try_wait_parity(&smem.barriers->k_empty[consumer], phase ^ 1);
    put_magnitude(0, convert_tile(k_tile, k, Scale<>(k_guess).pair()));
    ptx::mbarrier_try_wait_parity(full(1), phase);
    ptx::mbarrier_try_wait_parity(&smem.barriers->v_t_empty[consumer], phase ^ 1);
    put_magnitude(1, convert_tile(v_tile, v_t, Scale<>(v_guess).pair()));
    sync();
    const Scale<> k_scale(magnitude(0));
    const Scale<> v_scale(magnitude(1), Scale<>::kMinVExponent, Scale<>::kMaxVExponent);
    if (k_scale.value() != k_guess || v_scale.value() != v_guess) {
      convert_tile(k_tile, k, k_scale.pair());
      convert_tile(v_tile, v_t, v_scale.pair());
      sync();  // all warps have read the slots
    }
    if (threadIdx.x % 128 == 0) {
      staging.factors[0][consumer] = make_float4(k_scale.inverse(), k_scale.value(), 0.0f, 0.0f);
      staging.factors[1][consumer] = make_float4(v_scale.inverse(), v_scale.value(), 0.0f, 0.0f);
    }
    ptx::fence_proxy_async();  // makes the codes visible to wgmma
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      ptx::mbarrier_arrive(&smem.barriers->k_full[consumer]);
      ptx::mbarrier_arrive(&smem.barriers->v_t_full[consumer]);
    }
  }

 private:
  __device__ __forceinline__ uint64_t* full(int slot) const {
    return &smem.staging->full[consumer][slot];
  }
  __device__ __forceinline__ uint32_t slot_address(int slot) const {
    return ptx::shared_address(smem.staged) + (2 * consumer + slot) * Sizes::kStagedBytes;
  }
  __device__ __forceinline__ void sync() const { ptx::barrier_sync(1 + consumer, 128); }

  // The warps of the consumer exchange their largest magnitudes. The buffer is written again in the
  // next round, after all warps have arrived on the full barriers of this one.
  __device__ __forceinline__ void put_magnitude(int is_v, uint32_t of_warp) const {
    if (threadIdx.x % 32 > 0) return;
    smem.staging->magnitude[consumer][is_v][threadIdx.x / 32 % 4] = of_warp;
  }
  __device__ __forceinline__ uint32_t magnitude(int is_v) const {
    const uint4 all = *reinterpret_cast<const uint4*>(smem.staging->magnitude[consumer][is_v]);
    return max(max(all.x, all.y), max(all.z, all.w));
  }
};

}  // namespace stage7b
