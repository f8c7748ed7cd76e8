// A consumer warpgroup: for each work tile Q, the mainloop, and the epilogue.
#pragma once

#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "epilogue.cuh"
#include "kv_pipeline.cuh"
#include "mainloop.cuh"
#include "query.cuh"
#include "row_state.cuh"
#include "schedule.cuh"

namespace attention {

// The block-wide barrier. Producer and consumers reach it at different points in the code, where
// __syncthreads is undefined.
template <class Traits>
__device__ __forceinline__ void block_sync() { ptx::barrier_sync(0, TileSizes<Traits>::kThreads); }

// Waits for the barriers to be initialised, and claims the registers of the role.
template <class Traits>
__device__ __forceinline__ void enter_consumer_role() {
  using Sizes = TileSizes<Traits>;
  block_sync<Traits>();
  if constexpr (Sizes::kConsumers > 1) ptx::setmaxnreg_inc<Sizes::kConsumerRegisters>();
}

// Writes the rows of ones below V^T in every stage, once: P times them is the row sum of P as it
// was rounded. The producer's proxy fence after the block-wide barrier covers these writes too.
template <class Traits>
__device__ __forceinline__ void write_ones(const SharedStorage<Traits>& smem) {
  using Sizes = TileSizes<Traits>;
  constexpr uint32_t kOnes = 0x38383838;  // four times 1.0 in E4M3
  constexpr int kChunks = 8 * Sizes::kPanelKeys / 16;  // of 16 bytes, per panel
  constexpr int kAllChunks = Sizes::kStages * Sizes::kPanels * kChunks;
  constexpr int kThreads = Sizes::kThreads - 128;
  const auto write = [&](int i) {
    unsigned char* rows =
        smem.v_t + i / kChunks * Sizes::kPanelBytes + Sizes::kPanelKeys * Sizes::kHeadDim;
    reinterpret_cast<uint4*>(rows)[i % kChunks] = make_uint4(kOnes, kOnes, kOnes, kOnes);
  };
  const int thread = threadIdx.x - 128;
  if constexpr (Sizes::kConsumers == 1) {  // short problems: unrolled
#pragma unroll
    for (int first = 0; first < kAllChunks; first += kThreads) {
      if (first + kThreads <= kAllChunks || first + thread < kAllChunks) write(first + thread);
    }
  } else {
    // Unrolled, the compiler would keep the address of V^T in the register that these stores use,
    // and insert a move before every product.
    for (int i = thread; i < kAllChunks; i += kThreads) write(i);
  }
}

// Delays each consumer behind the one before, so that one has the tensor cores while another
// computes exponentials. All consumers take the same time per step, so the initial stagger
// persists.
template <class Traits>
__device__ __forceinline__ void stagger_start(const Problem<Traits>& p,
                                              const TileScheduler<Traits>& scheduler,
                                              const TileIndex& at,
                                              const SharedStorage<Traits>& smem, int consumer) {
  if (!scheduler.has(at) || num_n_blocks<Traits>(scheduler.tile(p, at)) == 0) return;
  ptx::mbarrier_try_wait_parity(&smem.barriers->k_full[0], 0);
  const uint32_t start = ptx::clock();
  while (ptx::clock() - start < static_cast<uint32_t>(consumer * Traits::kStaggerCycles)) {}
  __syncwarp();
}

// Issues the loads of Q of a tile, if there is one.
template <class Traits>
__device__ __forceinline__ void load_query(Query<Traits>& q, Descales<Traits>& descales,
                                           const Problem<Traits>& p,
                                           const TileScheduler<Traits>& scheduler,
                                           const TileIndex& at) {
  using Sizes = TileSizes<Traits>;
  // Without this the old values stay alive, for which a wide O leaves no registers.
  if (Sizes::kParts > 1) descales.q = descales.k = 0.0f;
  if (!scheduler.has(at)) return;
  const WorkTile<Traits> tile = scheduler.tile(p, at);
  q.load(p, tile);
  if constexpr (!Traits::kQInShared) descales.load(p, tile.head);
}

// With Q in 16 bits: issues its loads of a tile, if there is one.
template <class Traits>
__device__ __forceinline__ void stage_query(const Query<Traits>& q, const Problem<Traits>& p,
                                            const TileScheduler<Traits>& scheduler,
                                            const TileIndex& at) {
  if (scheduler.has(at)) q.stage(scheduler.tile(p, at));
}

template <class Traits>
__device__ __forceinline__ void consumer_loop(const Problem<Traits>& p,
                                              const SharedStorage<Traits>& smem,
                                              const TensorMap* q_map) {
  using Sizes = TileSizes<Traits>;
  if constexpr (!Sizes::kEarlyLoads) enter_consumer_role<Traits>();
  const TileScheduler<Traits> scheduler(p);
  TileIndex at = scheduler.first(p);
  Descales<Traits> descales;  // of the tile whose Q was loaded last
  KvState<Traits> k_state;
  KvPipeline<Traits> kv(smem, k_state);
  Query<Traits> q;
  if constexpr (Sizes::kEarlyLoads) {
    if constexpr (Traits::kQInShared || Traits::kConvertsQuery) {
      q.attach(smem, consumer_index<Traits>(), q_map);
      q.init_barrier();
    }
    if constexpr (Traits::kConvertsQuery) {
      stage_query<Traits>(q, p, scheduler, at);
      ptx::griddepcontrol_wait();  // the descale factors are from the kernel before
    }
    load_query<Traits>(q, descales, p, scheduler, at);
    enter_consumer_role<Traits>();
  }
  const int consumer = consumer_index<Traits>();
  q.attach(smem, consumer, q_map);
  if constexpr (!Sizes::kEarlyLoads) load_query<Traits>(q, descales, p, scheduler, at);
  if (Traits::kStaggerCycles > 0 && consumer > 0) {
    stagger_start<Traits>(p, scheduler, at, smem, consumer);
  }

  while (scheduler.has(at)) {
    const WorkTile<Traits> tile = scheduler.tile(p, at);
    // Here, before O occupies all registers.
    if constexpr (Traits::kQInShared) descales.load(p, tile.head);
    if constexpr (Traits::kConvertsQuery) {
      descales.q = q.convert(p);
      TileIndex ahead = at;
      scheduler.next(p, ahead);
      stage_query<Traits>(q, p, scheduler, ahead);
    }
    const float scale_log2 = softmax_scale_log2(p, descales.q, descales.k);
    const Mask<Traits> mask(p, tile, consumer);
    if constexpr (Traits::kHasSequences) Mask<Traits>::save(smem, tile);
    q.wait();
    RowState<Traits> rows;
    rows.clear();
    // The fragments of a step. They are declared here and not in the mainloop because nvcc numbers
    // registers by declaration; this order gives the measured machine code.
    Scores<Traits> s;
    Probabilities<Traits> probabilities;
    mainloop(rows, s, probabilities, kv, q, {p, tile, scale_log2, consumer, mask},
             num_n_blocks<Traits>(tile));

    // The products have read Q, so the next Q is loaded while O is stored.
    const WorkTile<Traits> done = scheduler.tile(p, at.opaque());
    const float descale_v = descales.v;
    if constexpr (Sizes::kSplitKeys) merge_split_keys(rows, smem, consumer, at.round);
    scheduler.next(p, at);
    load_query<Traits>(q, descales, p, scheduler, at);
    Traits::Output::store(p, rows, done, descale_v, Sizes::kSplitKeys ? consumer : 0);
  }
}

}  // namespace attention
