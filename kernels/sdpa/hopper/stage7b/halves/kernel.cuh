// The kernel of kernels/fused: all warpgroups are consumers, which also load and convert K and V.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../../wgmma.cuh"
#include "../form.cuh"
#include "../kv_pipeline.cuh"
#include "../mainloop.cuh"
#include "../schedule.cuh"
#include "conversion.cuh"
#include "query.cuh"

namespace stage7b {

// ---- P·V ----

// The ones whose product with P is the row sum of P as it was rounded. All products use them.
__device__ __forceinline__ void write_ones(const SharedStorage& smem) {
  constexpr uint32_t kOnes = 0x38383838;  // four times 1.0 in E4M3
  if (threadIdx.x < Sizes::kOnesBytes / 16) {
    reinterpret_cast<uint4*>(smem.merge)[threadIdx.x] = make_uint4(kOnes, kOnes, kOnes, kOnes);
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
    float& o = rows.o[i / (Sizes::kPartColumns / 2)][i % (Sizes::kPartColumns / 2)];
    o = fmaf(o, rows.o_rescale[i / 2 % 2], step[i]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.row_sum[half] = fmaf(rows.row_sum[half], rows.rescale[half], sums[2 * half]);
  }
}

// ---- consumer ----

// A consumer, in all its tiles.
struct Consumer {
  const Problem& p;
  const TileScheduler& scheduler;
  const Conversion& conversion;
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
      // The last of 64 rows attends to 63 keys more than the first.
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
    const float scale_log2 = kv.step_scale(tile.softmax_scale_log2);
    ptx::wgmma_wait_group<0>();
    mask_and_update_row_max(s, rows, rows.rescale, tile, n_block, scale_log2);
    kv.release_k(rows.rescale[1]);
    exponentiate(s, rows, scale_log2);
    probabilities.pack(s);
    const uint32_t v_t = kv.wait_v_t();
    const float4 v_factors = kv.v_factors();
    rows.change_scale(v_factors.y, v_factors.x);
    multiply_pv(rows, probabilities, v_t, ptx::descriptor_address(conversion.smem.merge));
    kv.release_v_t();
  }
};

__device__ __forceinline__ void consumer_loop(const Problem& p, const SharedStorage& smem,
                                              const TensorMap* q_map, const TensorMap* k_map,
                                              const TensorMap* v_map) {
  const TileScheduler scheduler(p);
  TileIndex at = scheduler.first(p);
  const int consumer = consumer_index();
  const Conversion conversion = {p, scheduler, smem, k_map, v_map, consumer};
  KvState k_state;
  KvPipeline kv(smem, k_state);
  const Consumer tiles = {p, scheduler, conversion, kv, q_map};
  if (threadIdx.x % 128 == 0) {
    tiles.query(at).init_barrier();
    tiles.query(at).load(p, scheduler.tile(p, at));
    conversion.init();
    conversion.issue_loads(at, num_n_blocks(scheduler.tile(p, at)) - 1, consumer);
  }
  __syncwarp();
  ptx::barrier_sync(0, Sizes::kThreads);
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

__device__ __forceinline__ void forward_halves(const Problem& p, const TensorMap* q_map,
                                               const TensorMap* k_map, const TensorMap* v_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const SharedStorage smem(memory);
  if (threadIdx.x % 128 == 0) {
    ptx::prefetch_tensormap(q_map);
    ptx::prefetch_tensormap(k_map);
    ptx::prefetch_tensormap(v_map);
  }
  if (threadIdx.x == 32) init_stage_barriers(*smem.barriers);
  write_ones(smem);
  consumer_loop(p, smem, q_map, k_map, v_map);
}

}  // namespace stage7b
