// A consumer warpgroup: for each work tile Q, the mainloop, and the epilogue.
#pragma once

#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "epilogue.cuh"
#include "form.cuh"
#include "kv_pipeline.cuh"
#include "mainloop.cuh"
#include "query.cuh"
#include "row_state.cuh"
#include "schedule.cuh"

namespace stage7b {

// The block-wide barrier. Producer and consumers reach it at different points in the code, where
// __syncthreads is undefined.
__device__ __forceinline__ void block_sync() { ptx::barrier_sync(0, Sizes::kThreads); }

// Waits for the barriers to be initialised, and claims the registers of the role.
__device__ __forceinline__ void enter_consumer_role() {
  block_sync();
  if constexpr (Sizes::kConsumers > 1) ptx::setmaxnreg_inc<Sizes::kConsumerRegisters>();
}

// Writes the rows of ones below V^T in every stage, once: P times them is the row sum of P as it
// was rounded. The producer's proxy fence after the block-wide barrier covers these writes too.
__device__ __forceinline__ void write_ones(const SharedStorage& smem) {
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
__device__ __forceinline__ void stagger_start(const Problem& p, const TileScheduler& scheduler,
                                              const TileIndex& at, const SharedStorage& smem,
                                              int consumer) {
  if (!scheduler.has(at) || num_n_blocks(scheduler.tile(p, at)) == 0) return;
  ptx::mbarrier_try_wait_parity(&smem.barriers->k_full[0], 0);
  const uint32_t start = ptx::clock();
  while (ptx::clock() - start < static_cast<uint32_t>(consumer * knob::kStaggerCycles)) {}
  __syncwarp();
}

// Issues the loads of Q of a tile, if there is one.
template <typename Q>
__device__ __forceinline__ void load_query(Q& q, Descales& descales, const Problem& p,
                                           const TileScheduler& scheduler, const TileIndex& at) {
  // Without this the old values stay alive, for which a wide O leaves no registers.
  if (Sizes::kParts > 1) descales.q = descales.k = 0.0f;
  if (!scheduler.has(at)) return;
  const WorkTile tile = scheduler.tile(p, at);
  q.load(p, tile);
  if constexpr (!knob::kQInShared) descales.load(p, tile.head);
}

// In kernels/attention/mixed: Q to E4M3. Returns the factor that undoes its scale.
template <typename Q>
__device__ __forceinline__ float convert_query(Q& q, [[maybe_unused]] const Problem& p) {
  if constexpr (knob::kMixed) return q.convert(p);
  return 1.0f;
}

// In kernels/attention/mixed: issues the loads of Q of a tile, if there is one.
template <typename Q>
__device__ __forceinline__ void stage_query(const Q& q, const Problem& p,
                                            const TileScheduler& scheduler, const TileIndex& at) {
  if constexpr (knob::kMixed) {
    if (scheduler.has(at)) q.stage(scheduler.tile(p, at));
  }
}

__device__ __forceinline__ void consumer_loop(const Problem& p, const SharedStorage& smem,
                                              const TensorMap* q_map) {
  if constexpr (!kEarlyLoads) enter_consumer_role();
  const TileScheduler scheduler(p);
  TileIndex at = scheduler.first(p);
  Descales descales;  // of the tile whose Q was loaded last
  KvState k_state;
  KvPipeline kv(smem, k_state);
  Query<knob::kQInShared> q;
  if constexpr (kEarlyLoads) {
    if constexpr (knob::kQInShared || knob::kMixed) {
      q.attach(smem, consumer_index(), q_map);
      q.init_barrier();
    }
    if constexpr (knob::kMixed) {
      stage_query(q, p, scheduler, at);
      ptx::griddepcontrol_wait();  // the descale factors are from the kernel before
    }
    load_query(q, descales, p, scheduler, at);
    enter_consumer_role();
  }
  const int consumer = consumer_index();
  q.attach(smem, consumer, q_map);
  if constexpr (!kEarlyLoads) load_query(q, descales, p, scheduler, at);
  if (knob::kStaggerCycles > 0 && consumer > 0) stagger_start(p, scheduler, at, smem, consumer);

  while (scheduler.has(at)) {
    const WorkTile tile = scheduler.tile(p, at);
    // Here, before O occupies all registers.
    if constexpr (knob::kQInShared) descales.load(p, tile.head);
    if constexpr (knob::kMixed) {
      descales.q = convert_query(q, p);
      TileIndex ahead = at;
      scheduler.next(p, ahead);
      stage_query(q, p, scheduler, ahead);
    }
    const float scale_log2 = softmax_scale_log2(p, descales.q, descales.k);
    const UnmaskedKeys unmasked(p, tile, consumer);
    if constexpr (knob::kOptions) save_mask(smem, tile);
    q.wait();
    RowState rows;
    rows.clear();
    // The fragments of a step. They are declared here and not in the mainloop because nvcc numbers
    // registers by declaration; this order gives the measured machine code.
    float s[Sizes::kScores];
    Probabilities probabilities;
    mainloop(rows, s, probabilities, kv, q, {p, tile, scale_log2, consumer, unmasked},
             num_n_blocks(tile));

    // The products have read Q, so the next Q is loaded while O is stored.
    const WorkTile done = scheduler.tile(p, at.opaque());
    const float descale_v = descales.v;
    if constexpr (Sizes::kSplitKeys) merge_split_keys(rows, smem, consumer, at.round);
    scheduler.next(p, at);
    load_query(q, descales, p, scheduler, at);
    store_output(p, rows, done, descale_v, Sizes::kSplitKeys ? consumer : 0);
  }
}

}  // namespace stage7b
