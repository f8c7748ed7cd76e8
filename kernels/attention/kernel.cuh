// The roles of a block: warpgroup 0 is the producer, the others are consumers.
#pragma once

#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "consumer.cuh"
#include "producer.cuh"
#include "schedule.cuh"
#include "shared_storage.cuh"

namespace attention {

// Initialises the barriers, except those that early loads have initialised. One thread.
template <class Traits>
__device__ __forceinline__ void init_barriers(Barriers<Traits>& barriers) {
  using Sizes = TileSizes<Traits>;
  constexpr int kReaders = Sizes::kSplitKeys ? 1 : Sizes::kConsumers;  // consumers of a step
#pragma unroll
  for (int stage = 0; stage < Sizes::kStages; ++stage) {
    if (stage > 0 || !Sizes::kEarlyLoads) ptx::mbarrier_init(&barriers.k_full[stage], 1);
    ptx::mbarrier_init(&barriers.k_empty[stage], 4 * kReaders);
    if (stage > 0 || !Sizes::kEarlyLoads) ptx::mbarrier_init(&barriers.v_full[stage], 1);
    ptx::mbarrier_init(&barriers.v_empty[stage], 4);
    ptx::mbarrier_init(&barriers.v_t_full[stage], 4);
    ptx::mbarrier_init(&barriers.v_t_empty[stage], 4 * kReaders);
  }
  if constexpr (Traits::kQInShared && !Sizes::kEarlyLoads) {
#pragma unroll
    for (int consumer = 0; consumer < Sizes::kConsumers; ++consumer) {
      ptx::mbarrier_init(&barriers.q_full[consumer], 1);
    }
  }
  ptx::fence_mbarrier_init();
}

// The block-wide barrier, and fewer registers for the producer.
template <class Traits>
__device__ __forceinline__ void enter_producer_role() {
  using Sizes = TileSizes<Traits>;
  block_sync<Traits>();
  if constexpr (Sizes::kConsumers > 1) ptx::setmaxnreg_dec<Sizes::kProducerRegisters>();
}

// By threads of the producer.
template <class Traits>
__device__ __forceinline__ void prefetch_tensor_maps(const TensorMap* q_map, const TensorMap* k_map,
                                                     const TensorMap* v_map) {
  if (threadIdx.x == 0) {
    if constexpr (Traits::kQInShared) ptx::prefetch_tensormap(q_map);
    ptx::prefetch_tensormap(k_map);
    ptx::prefetch_tensormap(v_map);
  }
  if constexpr (Traits::kConvertsQuery) {
    if (threadIdx.x == 32) ptx::prefetch_tensormap(q_map);
  }
}

// A consumer thread initialises the barriers: it would otherwise wait for K, while the producer
// computes the address of the first tile.
//
// Inputs are read behind griddepcontrol.wait, so that the launch may overlap the end of the one
// before, which may have written them.
template <class Traits>
__device__ __forceinline__ void forward(const Problem<Traits>& p, const TensorMap* q_map,
                                        const TensorMap* k_map, const TensorMap* v_map) {
  using Sizes = TileSizes<Traits>;
  const SharedStorage<Traits> smem(memory);
  // With early loads the shuffle tells the compiler that all lanes of a warp take the same branch.
  if (!Sizes::kEarlyLoads ? threadIdx.x < 128
                          : __shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0) == 0) {
    prefetch_tensor_maps<Traits>(q_map, k_map, v_map);
    const TileScheduler<Traits> scheduler(p);
    LoadCursor<Traits> load(p, scheduler);
    ptx::griddepcontrol_wait();
    if (Sizes::kEarlyLoads && threadIdx.x == 0) {
      Traits::Producer::load_first_kv(smem, p, load, k_map, v_map);
    }
    enter_producer_role<Traits>();
    Traits::Producer::run(p, scheduler, smem, k_map, v_map, load);
  } else {
    if (threadIdx.x == 128) init_barriers(*smem.barriers);
    write_ones(smem);
    // A consumer that converts Q waits behind its first load of Q.
    if constexpr (!Traits::kConvertsQuery) ptx::griddepcontrol_wait();
    consumer_loop(p, smem, q_map);
  }
}

}  // namespace attention
