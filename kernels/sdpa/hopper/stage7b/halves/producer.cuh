// The producer warpgroup of kernels/fused: TMA loads of K and V in 16 bits, and their conversion to
// the K and V^T in E4M3 that the consumers multiply.
//
// Tiles of K and V alternate in a ring of STAGING_TILES slots. The four warps convert a tile
// together. Each finds the largest magnitude of its part, the warps exchange them, and the largest
// gives the scale of the tile.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../../wgmma.cuh"
#include "../form.cuh"
#include "../schedule.cuh"
#include "../shared_storage.cuh"
#include "convert.cuh"
#include "tiles.cuh"

namespace stage7b {

constexpr int kProducerBarrier = 8;  // behind those of the consumers

// Issues the loads of all tiles, in their order. One thread. A mark after the last tile ends the
// loop of the converting warps.
struct StagingLoads {
  LoadCursor load;
  bool first = true;  // the next step is the first of its work tile

  // Loads the next tile, which is of V or of K, to a slot.
  template <bool kIsV>
  __device__ __forceinline__ void issue(const Problem& p, const TileScheduler& scheduler,
                                        const SharedStorage& smem, const TensorMap* map, int slot) {
    Staging& staging = *smem.staging;
    if (!load.valid()) {
      staging.mark[slot] = Staging::kEnd;
      ptx::mbarrier_arrive(&staging.full[slot]);
      return;
    }
    staging.mark[slot] = first ? Staging::kFirst : Staging::kNext;
    ptx::mbarrier_arrive_expect_tx(&staging.full[slot], Sizes::kStagedBytes);
    load.source.issue_load(smem.staged + slot * Sizes::kStagedBytes, map, p, load.n_block,
                           &staging.full[slot]);
    if constexpr (kIsV) {
      first = load.n_block == 0;
      load.next(p, scheduler);
    }
  }
};

// The producer's side of the conversion.
struct ConversionLoop {
  // Whether the registers hold K and V of a step, which then share a barrier.
  static constexpr bool kPaired =
      8 * (KTile::kUnits + VTile::kUnits) + 56 <= Sizes::kProducerRegisters;
  const Problem& p;
  const TileScheduler& scheduler;
  const SharedStorage& smem;
  const TensorMap *k_map, *v_map;
  StagingLoads& loads;
  PipelineState<Sizes::kStaging> staged;
  KvState state;
  uint32_t v_magnitude = 0;  // of the steps of the work tile until now

  __device__ __forceinline__ void run() {
    while (kPaired ? convert_paired() : convert_separately()) state.advance();
  }

 private:
  // Converts K and V of a step. Returns whether there was one.
  __device__ __forceinline__ bool convert_paired() {
    if (await() == Staging::kEnd) return false;
    const KTile k_tile = {slot_address(), converting_thread()};
    Converter<KTile> k;
    put_magnitude(false, k.magnitude(k_tile));
    const int k_slot = staged.stage;
    staged.advance();
    const bool first = await() == Staging::kFirst;
    const VTile v_tile = {slot_address(), converting_thread()};
    Converter<VTile> v;
    put_magnitude(true, v.magnitude(v_tile));
    ptx::barrier_sync(kProducerBarrier, 128);
    issue_next<false>(k_slot);
    issue_next<true>(staged.stage);
    staged.advance();
    store_k(k, k_tile, magnitude(false));
    store_v(v, v_tile, magnitude(true), first);
    return true;
  }

  __device__ __forceinline__ bool convert_separately() {
    if (await() == Staging::kEnd) return false;
    convert<KTile, false>(false);
    convert<VTile, true>(await() == Staging::kFirst);
    return true;
  }

  template <typename Tile, bool kIsV>
  __device__ __forceinline__ void convert(bool first) {
    const Tile tile = {slot_address(), converting_thread()};
    Converter<Tile> converter;
    put_magnitude(kIsV, converter.magnitude(tile));
    ptx::barrier_sync(kProducerBarrier, 128);
    if constexpr (Converter<Tile>::kHold) issue_next<kIsV>(staged.stage);
    if constexpr (kIsV) {
      store_v(converter, tile, magnitude(kIsV), first);
    } else {
      store_k(converter, tile, magnitude(kIsV));
    }
    if constexpr (!Converter<Tile>::kHold) {
      ptx::barrier_sync(kProducerBarrier, 128);
      issue_next<kIsV>(staged.stage);
    }
    staged.advance();
  }

  // Waits for the next tile and returns its mark.
  __device__ __forceinline__ int await() const {
    ptx::mbarrier_try_wait_parity(&smem.staging->full[staged.stage], staged.phase);
    return smem.staging->mark[staged.stage];
  }
  __device__ __forceinline__ uint32_t slot_address() const {
    return ptx::shared_address(smem.staged) + staged.stage * Sizes::kStagedBytes;
  }

  // Loads the next tile to the slot of a tile that all warps have read. With an even number of
  // slots both are of K, or both of V.
  template <bool kIsV>
  __device__ __forceinline__ void issue_next(int slot) {
    constexpr bool kNextIsV = Sizes::kStaging % 2 ? !kIsV : kIsV;
    if (threadIdx.x == 0) {
      loads.issue<kNextIsV>(p, scheduler, smem, kNextIsV ? v_map : k_map, slot);
    }
    __syncwarp();
  }

  // The warps exchange their largest magnitudes: each puts its own, and behind a barrier takes the
  // largest. The buffer is that of the stage. It is written again some steps later, behind another
  // barrier, so all warps have read it.
  __device__ __forceinline__ void put_magnitude(bool is_v, uint32_t of_warp) const {
    if (threadIdx.x % 32 > 0) return;
    smem.staging->magnitude[state.stage][is_v][threadIdx.x / 32] = of_warp;
  }
  __device__ __forceinline__ uint32_t magnitude(bool is_v) const {
    const uint4 all = *reinterpret_cast<const uint4*>(smem.staging->magnitude[state.stage][is_v]);
    return max(max(all.x, all.y), max(all.z, all.w));
  }

  __device__ __forceinline__ void store_k(Converter<KTile>& converter, const KTile& tile,
                                          uint32_t largest) const {
    const Scale scale(largest);
    ptx::mbarrier_try_wait_parity(&smem.barriers->k_empty[state.stage], state.phase ^ 1);
    if (threadIdx.x == 0) smem.staging->k_descale[state.stage] = scale.inverse();
    converter.convert(tile, ptx::shared_address(smem.k) + state.stage * Sizes::kTileBytes,
                      scale.pair());
    arrive(&smem.barriers->k_full[state.stage]);
  }

  // V has the largest magnitude of its work tile until now, so that its scale never grows there. O
  // has the scale of the last V: it is multiplied by the ratio of the scales, at most 1.
  __device__ __forceinline__ void store_v(Converter<VTile>& converter, const VTile& tile,
                                          uint32_t largest, bool first) {
    if (!first) largest = max(largest, v_magnitude);
    const Scale scale(largest), before(first ? largest : v_magnitude);
    v_magnitude = largest;
    ptx::mbarrier_try_wait_parity(&smem.barriers->v_t_empty[state.stage], state.phase ^ 1);
    if (threadIdx.x == 0) {
      smem.staging->v_factors[state.stage] = make_float2(scale.over(before), scale.inverse());
    }
    converter.convert(tile, ptx::shared_address(smem.v_t) + state.stage * Sizes::kVtBytes,
                      scale.pair());
    arrive(&smem.barriers->v_t_full[state.stage]);
  }

  // Makes the codes visible to wgmma.
  __device__ __forceinline__ static void arrive(uint64_t* full) {
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(full);
  }
};

}  // namespace stage7b
