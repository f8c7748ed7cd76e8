// The form of kernels/fused without a producer, in clusters of two blocks: the consumers convert K
// and V, and the blocks share what they have converted.
//
// A tile has the rows of both blocks. In a round of steps every consumer first converts K or V of
// one step, and copies the codes to the other block. Then it multiplies all steps of the round. So K
// and V are loaded and converted once for the rows of both blocks.
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

namespace ptx {

// PTX ISA "mapa": the address of shared memory in another block of the cluster.
__device__ __forceinline__ uint32_t mapa(const void* shared, uint32_t rank) {
  uint32_t d;
  asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(d) : "r"(shared_address(shared)), "r"(rank));
  return d;
}

// PTX ISA "mbarrier.arrive" on a barrier of any block of the cluster.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n"
               :: "r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect_tx_cluster(uint32_t barrier,
                                                                  uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;\n"
               :: "r"(barrier), "r"(bytes) : "memory");
}

// PTX ISA "cp.async.bulk": shared memory to that of another block, whose barrier counts the bytes.
__device__ __forceinline__ void cp_async_bulk_cluster(uint32_t to, const void* from, uint32_t bytes,
                                                      uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      "\n" :: "r"(to), "r"(shared_address(from)), "r"(bytes), "r"(barrier) : "memory");
}

// PTX ISA "barrier.cluster". The relaxed form orders no memory accesses.
__device__ __forceinline__ void barrier_cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
               ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_sync_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
               ::: "memory");
}

}  // namespace ptx

namespace stage7b {

// The block that converts a stage.
__device__ __forceinline__ uint32_t owner_of(int stage) { return stage % Sizes::kCluster; }

// A barrier is initialised for one arrival where a conversion ends, and for all warps of the cluster
// where a stage is released.
__device__ __forceinline__ void init_pair_barriers(Barriers& barriers) {
  constexpr int kWarps = 4 * Sizes::kConsumers * Sizes::kCluster;
#pragma unroll
  for (int stage = 0; stage < Sizes::kStages; ++stage) {
    ptx::mbarrier_init(&barriers.k_full[stage], 1);
    ptx::mbarrier_init(&barriers.v_t_full[stage], 1);
    ptx::mbarrier_init(&barriers.k_empty[stage], kWarps);
    ptx::mbarrier_init(&barriers.v_t_empty[stage], kWarps);
  }
  ptx::fence_mbarrier_init();
}

// ---- K and V ----

// What a consumer converts: K or V of one step of each round. Its loads have a slot of their own.
struct PairConversion {
  const Problem& p;
  const TileScheduler& scheduler;
  const SharedStorage& smem;
  const TensorMap *k_map, *v_map;
  int consumer;

  __device__ __forceinline__ bool is_v() const { return consumer % 2; }
  __device__ __forceinline__ int stage() const { return consumer / 2 * 2 + cluster_rank(); }

  // One thread. The first guess of the scale suits a largest magnitude between 3.5 and 7.
  __device__ __forceinline__ void init() const {
    smem.staging->factors[is_v()][stage()].y = 64.0f;
    ptx::mbarrier_init(full(), 1);
    ptx::fence_mbarrier_init();
  }

  // Issues the load of the step that follows n_block of a tile by some steps. One thread. A mark
  // after the last step ends the conversions.
  __device__ __forceinline__ void issue_load(TileIndex at, int n_block, int steps) const {
    n_block -= steps;
    WorkTile tile = scheduler.tile(p, at);
    while (n_block < 0) {
      scheduler.next(p, at);
      if (!scheduler.has(at)) {
        smem.staging->mark[consumer] = Staging::kEnd;
        ptx::mbarrier_arrive(full());
        return;
      }
      tile = scheduler.tile(p, at);
      n_block += num_n_blocks(tile);
    }
    smem.staging->mark[consumer] = Staging::kNext;
    KvSource source;
    source.enter(p, tile);
    ptx::mbarrier_arrive_expect_tx(full(), Sizes::kStagedBytes);
    source.issue_load(smem.staged + consumer * Sizes::kStagedBytes, is_v() ? v_map : k_map, p,
                      n_block, full());
  }

  // That of the next round, if the consumer had a step in this one, which begins with n_block. All
  // warps have read the slot.
  __device__ __forceinline__ void issue_next(const TileIndex& at, int n_block) const {
    if (smem.staging->mark[consumer] != Staging::kEnd) {
      issue_load(at, n_block, Sizes::kStages + stage());
    }
  }

  // Converts the consumer's step of a round. All barriers of a round have the same phase.
  __device__ __forceinline__ void run(uint32_t phase) const {
    ptx::mbarrier_try_wait_parity(full(), phase);
    if (smem.staging->mark[consumer] == Staging::kEnd) return;
    if (is_v()) {
      convert<VTile>(smem.v_t + stage() * Sizes::kVtBytes, &smem.barriers->v_t_full[stage()],
                     &smem.barriers->v_t_empty[stage()], phase);
    } else {
      convert<KTile>(smem.k + stage() * Sizes::kTileBytes, &smem.barriers->k_full[stage()],
                     &smem.barriers->k_empty[stage()], phase);
    }
  }

 private:
  __device__ __forceinline__ uint64_t* full() const { return &smem.staging->full[consumer]; }
  __device__ __forceinline__ void sync() const { ptx::barrier_sync(1 + consumer, 128); }

  // Converts with the scale of the round before, which is right as a rule. Otherwise it converts
  // again. So no warp waits for the magnitudes of the others before it converts.
  template <typename Tile>
  __device__ __forceinline__ void convert(unsigned char* to, uint64_t* to_full, uint64_t* to_empty,
                                          uint32_t phase) const {
    constexpr bool kIsV = std::is_same_v<Tile, VTile>;
    const Tile tile = {ptx::shared_address(smem.staged) + consumer * Sizes::kStagedBytes,
                       converting_thread()};
    float4* factors = &smem.staging->factors[kIsV][stage()];
    const float guess = factors->y;
    ptx::mbarrier_try_wait_parity(to_empty, phase ^ 1);
    put_magnitude(convert_tile(tile, ptx::shared_address(to), Scale(guess).pair()));
    ptx::fence_proxy_async();
    sync();
    const uint32_t largest = magnitude();
    const Scale scale = kIsV ? Scale::of_step_v(largest) : Scale(largest);
    if (scale.value() != guess) {
      convert_tile(tile, ptx::shared_address(to), scale.pair());
      ptx::fence_proxy_async();
      sync();
    }
    if (threadIdx.x % 128 == 0) {
      *factors = make_float4(scale.inverse(), scale.value(), 0.0f, 0.0f);
      ptx::fence_proxy_async();
      publish(to, factors, to_full);
    }
    __syncwarp();
  }

  // Signals this block, and copies codes and factors to the other one.
  __device__ __forceinline__ void publish(const unsigned char* codes, const float4* factors,
                                          uint64_t* to_full) const {
    ptx::mbarrier_arrive(to_full);
    const uint32_t other = cluster_rank() ^ 1, barrier = ptx::mapa(to_full, other);
    ptx::mbarrier_arrive_expect_tx_cluster(barrier, Sizes::kTileBytes + sizeof(float4));
    ptx::cp_async_bulk_cluster(ptx::mapa(factors, other), factors, sizeof(float4), barrier);
    ptx::cp_async_bulk_cluster(ptx::mapa(codes, other), codes, Sizes::kTileBytes, barrier);
  }

  // The warps of the consumer exchange their largest magnitudes.
  __device__ __forceinline__ void put_magnitude(uint32_t of_warp) const {
    if (threadIdx.x % 32 > 0) return;
    smem.staging->magnitude[consumer][0][threadIdx.x / 32 % 4] = of_warp;
  }
  __device__ __forceinline__ uint32_t magnitude() const {
    const uint4 all = *reinterpret_cast<const uint4*>(smem.staging->magnitude[consumer][0]);
    return max(max(all.x, all.y), max(all.z, all.w));
  }
};

// The consumer side of the pipeline. A stage is released to the block that converts it.
struct PairPipeline : KvPipeline {
  using KvPipeline::KvPipeline;

  __device__ __forceinline__ void release_k(float rescale) {
    arrive(&barriers->k_empty[k_state.stage], k_state.stage, rescale);
  }
  __device__ __forceinline__ void release_v_t() {
    arrive(&barriers->v_t_empty[v_state.stage], v_state.stage, 0.0f);
    v_state.advance();
    k_state = v_state;
  }
  __device__ __forceinline__ void skip_step() {
    wait_k();
    release_k(0.0f);
    wait_v_t();
    release_v_t();
  }

 private:
  // As arrive_warp.
  __device__ __forceinline__ static void arrive(uint64_t* barrier, int stage, float computed) {
    __syncwarp();
    if (threadIdx.x % 32 == 0 && !(computed > 1.0f)) {
      ptx::mbarrier_arrive_cluster(ptx::mapa(barrier, owner_of(stage)));
    }
  }
};

// ---- consumer ----

// A consumer of the block, in all its tiles.
struct PairConsumer {
  const Problem& p;
  const TileScheduler& scheduler;
  const PairConversion& conversion;
  PairPipeline& kv;
  const TensorMap* q_map;

  // Issues the load of Q of the next tile. All warps have read Q of this one.
  __device__ __forceinline__ void load_next_query(TileIndex at) const {
    scheduler.next(p, at);
    if (scheduler.has(at)) query(at).load(p, scheduler.tile(p, at));
  }
  // Q of a tile. The phase of its barrier changes with each tile.
  __device__ __forceinline__ Query<false> query(const TileIndex& at) const {
    Query<false> q;
    q.attach(conversion.smem, conversion.consumer, q_map);
    q.phase = at.round % 2;
    return q;
  }

  // One step: as mainloop_serial has it.
  __device__ __forceinline__ void step(RowState& rows, const Query<false>& q, const TileIndex& at,
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
    multiply_pv(rows, probabilities, v_t);
    kv.release_v_t();
  }

  // All steps of a work tile, from the last keys to the first.
  __device__ __forceinline__ void mainloop(RowState& rows, const Query<false>& q,
                                           const TileIndex& at, const ConsumerTile& tile) const {
    int n_block = num_n_blocks(tile.tile) - 1;
#pragma unroll 1
    for (; n_block >= 0; --n_block) {
      if (kv.k_state.stage == 0) {
        conversion.run(kv.k_state.phase);
        if (ptx::opaque(threadIdx.x) % 128 == 0) conversion.issue_next(at, n_block);
        __syncwarp();
      }
      // No row attends to keys 63 or more behind those that all rows attend to.
      if (knob::kSkipMasked && n_block * Sizes::kBlockN >= tile.unmasked.end + 63) {
        kv.skip_step();
      } else {
        step(rows, q, at, tile, n_block);
      }
    }
  }
};

__device__ __forceinline__ void pair_loop(const Problem& p, const SharedStorage& smem,
                                          const TensorMap* q_map, const TensorMap* k_map,
                                          const TensorMap* v_map) {
  const TileScheduler scheduler(p);
  TileIndex at = scheduler.first(p);
  const int consumer = consumer_index();
  const PairConversion conversion = {p, scheduler, smem, k_map, v_map, consumer};
  KvState k_state;
  PairPipeline kv(smem, k_state);
  const PairConsumer tiles = {p, scheduler, conversion, kv, q_map};
  if (threadIdx.x % 128 == 0) {
    tiles.query(at).init_barrier();
    tiles.query(at).load(p, scheduler.tile(p, at));
    conversion.init();
    conversion.issue_load(at, num_n_blocks(scheduler.tile(p, at)) - 1, conversion.stage());
  }
  __syncwarp();
  block_sync();
  ptx::barrier_cluster_sync_relaxed();
  const int row_block = cluster_rank() * Sizes::kConsumers + consumer;
  do {
    const WorkTile tile = scheduler.tile(p, at);
    Query<false> q = tiles.query(at);
    const float scale_log2 = softmax_scale_log2(p, q.convert(), 1.0f);
    tiles.load_next_query(at);
    RowState rows;
    rows.clear();
    tiles.mainloop(rows, q, at,
                   {p, tile, scale_log2, row_block, UnmaskedKeys(p, tile, row_block)});
    const WorkTile done = scheduler.tile(p, at.opaque());
    scheduler.next(p, at);
    store_output(p, rows, done, rows.o_descale, 0);
  } while (scheduler.has(at));
  // The other block may still signal this one.
  __syncwarp();
  ptx::barrier_cluster_sync();
}

__device__ __forceinline__ void forward_pair(const Problem& p, const TensorMap* q_map,
                                             const TensorMap* k_map, const TensorMap* v_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const SharedStorage smem(memory);
  if (threadIdx.x % 128 == 0) {
    ptx::prefetch_tensormap(q_map);
    ptx::prefetch_tensormap(threadIdx.x % 256 ? v_map : k_map);
  }
  if (threadIdx.x == 32) init_pair_barriers(*smem.barriers);
  write_ones(smem);
  ptx::fence_proxy_async();  // no conversion of this block orders those of the other's stages
  pair_loop(p, smem, q_map, k_map, v_map);
}

}  // namespace stage7b
