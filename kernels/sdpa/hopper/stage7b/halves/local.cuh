// The form of kernels/fused without a producer: the consumer warpgroups convert K and V.
//
// The pipeline has one stage for each consumer. In a round of steps every consumer first converts
// one of them, number 4r + w of the block to stage w, and then multiplies all. All warps convert, and
// while one consumer converts the others multiply. The next K and V of a consumer are loaded to
// slots of its own meanwhile.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../consumer.cuh"
#include "../form.cuh"
#include "../kernel.cuh"
#include "../kv_pipeline.cuh"
#include "../mainloop.cuh"
#include "../schedule.cuh"
#include "../shared_storage.cuh"
#include "convert.cuh"
#include "query.cuh"
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

// ---- K and V ----

// The steps of one consumer: their loads and their conversion. Slot 0 has K and slot 1 V.
struct LocalConversion {
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
        smem.staging->mark[2 * consumer] = Staging::kEnd;
        ptx::mbarrier_arrive(full(0));
        return;
      }
      tile = scheduler.tile(p, at);
      n_block += num_n_blocks(tile);
    }
    smem.staging->mark[2 * consumer] = Staging::kNext;
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
    if (ptx::opaque(threadIdx.x) % 128 == 0 &&
        smem.staging->mark[2 * consumer] != Staging::kEnd) {
      issue_loads(at, n_block, Sizes::kConsumers + consumer);
    }
    __syncwarp();
  }

  // Waits for the first K, and delays each consumer behind the one before.
  __device__ __forceinline__ void stagger_start() const {
    ptx::mbarrier_try_wait_parity(full(0), 0);
    const uint32_t start = ptx::clock();
    while (ptx::clock() - start < static_cast<uint32_t>(consumer * knob::kStaggerCycles)) {}
    __syncwarp();
  }

  // Converts the consumer's step of a round. All barriers of a round have the same phase.
  //
  // It converts with the scales of the round before, which are right as a rule. Otherwise it
  // converts again. So no warp waits for the magnitudes of the others before it converts.
  __device__ __forceinline__ void run(uint32_t phase) const {
    Staging& staging = *smem.staging;
    ptx::mbarrier_try_wait_parity(full(0), phase);
    if (staging.mark[2 * consumer] == Staging::kEnd) return;
    const KTile k_tile = {slot_address(0), converting_thread()};
    const VTile v_tile = {slot_address(1), converting_thread()};
    const uint32_t k = ptx::shared_address(smem.k) + consumer * Sizes::kTileBytes;
    const uint32_t v_t = ptx::shared_address(smem.v_t) + consumer * Sizes::kVtBytes;
    const float k_guess = staging.factors[0][consumer].y, v_guess = staging.factors[1][consumer].y;
    ptx::mbarrier_try_wait_parity(&smem.barriers->k_empty[consumer], phase ^ 1);
    put_magnitude(0, convert_tile(k_tile, k, Scale(k_guess).pair()));
    ptx::mbarrier_try_wait_parity(full(1), phase);
    ptx::mbarrier_try_wait_parity(&smem.barriers->v_t_empty[consumer], phase ^ 1);
    put_magnitude(1, convert_tile(v_tile, v_t, Scale(v_guess).pair()));
    sync();
    const Scale k_scale(magnitude(0)), v_scale = Scale::of_step_v(magnitude(1));
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
    return &smem.staging->full[2 * consumer + slot];
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

// ---- P·V ----

// The ones whose product with P is the row sum of P as it was rounded. All products use them.
__device__ __forceinline__ void write_shared_ones(const SharedStorage& smem) {
  constexpr uint32_t kOnes = 0x38383838;  // four times 1.0 in E4M3
  if (threadIdx.x < Sizes::kOnesBytes / 16) {
    reinterpret_cast<uint4*>(smem.ones)[threadIdx.x] = make_uint4(kOnes, kOnes, kOnes, kOnes);
  }
  ptx::fence_proxy_async();
}

// O = O * rescale + P·V, and the row sum with it.
__device__ __forceinline__ void multiply_pv(RowState& rows, const Probabilities& p, uint32_t v_t,
                                            uint32_t ones) {
  float step[Sizes::kHeadDim / 2], sums[4];
  ptx::discard_registers(step);
  ptx::discard_registers(sums);
  ptx::wgmma_fence();
  const uint64_t ones_operand = ptx::wgmma_descriptor(ones, 128, 256);
#pragma unroll
  for (int i = 0; i < Sizes::kBlockN / 32; ++i) {
    const uint64_t b = ptx::wgmma_descriptor_swizzled<Sizes::kPanelKeys>(v_t + 2 * i);
    ptx::wgmma_m64k32_e4m3<Sizes::kHeadDim>(step, p.words[i], b, i > 0);
    ptx::wgmma_m64k32_e4m3<8>(sums, p.words[i], ones_operand, i > 0);
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::fence_registers(step);
  ptx::fence_registers(sums);
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 2; ++i) {
    rows.o[0][i] = fmaf(rows.o[0][i], rows.o_rescale[i / 2 % 2], step[i]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.row_sum[half] = fmaf(rows.row_sum[half], rows.rescale[half], sums[2 * half]);
  }
}

// ---- consumer ----

// A consumer, in all its tiles.
struct LocalConsumer {
  const Problem& p;
  const TileScheduler& scheduler;
  const LocalConversion& conversion;
  KvPipeline& kv;
  const TensorMap* q_map;

  // Q of a tile. The phase of its barrier changes with each tile.
  __device__ __forceinline__ Query<false> query(const TileIndex& at) const {
    Query<false> q;
    q.attach(conversion.smem, conversion.consumer, q_map);
    q.phase = at.round % 2;
    return q;
  }

  // Issues the load of Q of the next tile. All warps have read Q of this one.
  __device__ __forceinline__ void load_next_query(TileIndex at) const {
    scheduler.next(p, at);
    if (scheduler.has(at)) query(at).load(p, scheduler.tile(p, at));
  }

  // All steps of a work tile, from the last keys to the first.
  __device__ __forceinline__ void mainloop(RowState& rows, const Query<false>& q,
                                           const TileIndex& at, const ConsumerTile& tile) const {
#pragma unroll 1
    for (int n_block = num_n_blocks(tile.tile) - 1; n_block >= 0; --n_block) {
      if (kv.k_state.stage == 0) {
        conversion.run(kv.k_state.phase);
        conversion.issue_next(at, n_block);
      }
      // No row attends to keys 63 or more behind those that all rows attend to.
      if (knob::kSkipMasked && n_block * Sizes::kBlockN >= tile.unmasked.end + 63) {
        kv.skip_step();
      } else {
        step(rows, q, tile, n_block);
      }
    }
  }

 private:
  // One step: as mainloop_serial has it.
  __device__ __forceinline__ void step(RowState& rows, const Query<false>& q,
                                       const ConsumerTile& tile, int n_block) const {
    float s[Sizes::kScores];
    Probabilities probabilities;
    issue_scores(s, q, kv.wait_k());
    const float scale_log2 = kv.own_step_scale(tile.softmax_scale_log2);
    ptx::wgmma_wait_group<0>();
    mask_and_update_row_max(s, rows, rows.rescale, tile, n_block, scale_log2);
    kv.release_k(rows.rescale[1]);
    exponentiate(s, rows, scale_log2);
    probabilities.pack(s);
    const uint32_t v_t = kv.wait_v_t();
    rows.enter_scale(kv.own_v_factors());
    multiply_pv(rows, probabilities, v_t, ptx::descriptor_address(conversion.smem.ones));
    kv.release_v_t();
  }
};

__device__ __forceinline__ void local_loop(const Problem& p, const SharedStorage& smem,
                                           const TensorMap* q_map, const TensorMap* k_map,
                                           const TensorMap* v_map) {
  const TileScheduler scheduler(p);
  TileIndex at = scheduler.first(p);
  const int consumer = consumer_index();
  const LocalConversion conversion = {p, scheduler, smem, k_map, v_map, consumer};
  KvState k_state;
  KvPipeline kv(smem, k_state);
  const LocalConsumer tiles = {p, scheduler, conversion, kv, q_map};
  if (threadIdx.x % 128 == 0) {
    tiles.query(at).init_barrier();
    tiles.query(at).load(p, scheduler.tile(p, at));
    conversion.init();
    conversion.issue_loads(at, num_n_blocks(scheduler.tile(p, at)) - 1, consumer);
  }
  __syncwarp();
  block_sync();
  if (knob::kStaggerCycles > 0 && consumer > 0) conversion.stagger_start();
  do {
    const WorkTile tile = scheduler.tile(p, at);
    Query<false> q = tiles.query(at);
    const float scale_log2 = softmax_scale_log2(p, q.convert(), 1.0f);
    tiles.load_next_query(at);
    RowState rows;
    rows.clear();
    tiles.mainloop(rows, q, at, {p, tile, scale_log2, consumer, UnmaskedKeys(p, tile, consumer)});
    const WorkTile done = scheduler.tile(p, at.opaque());
    scheduler.next(p, at);
    store_output(p, rows, done, rows.o_descale, 0);
  } while (scheduler.has(at));
}

__device__ __forceinline__ void forward_local(const Problem& p, const TensorMap* q_map,
                                              const TensorMap* k_map, const TensorMap* v_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const SharedStorage smem(memory);
  if (threadIdx.x % 128 == 0) {
    ptx::prefetch_tensormap(q_map);
    ptx::prefetch_tensormap(k_map);
    ptx::prefetch_tensormap(v_map);
  }
  if (threadIdx.x == 32) init_stage_barriers(*smem.barriers);
  write_shared_ones(smem);
  local_loop(p, smem, q_map, k_map, v_map);
}

}  // namespace stage7b
