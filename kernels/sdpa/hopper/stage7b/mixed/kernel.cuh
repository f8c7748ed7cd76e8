// The roles of a block of kernels/mixed.
#pragma once

#include "../kernel.cuh"
#include "producer.cuh"

namespace stage7b {

// The barriers of the ring of Q. The thread that calls it initialises all others behind it.
__device__ __forceinline__ void init_query_barriers(QuerySlots& slots) {
#pragma unroll
  for (int slot = 0; slot < Sizes::kQSlots; ++slot) {
    ptx::mbarrier_init(&slots.full[slot], 4);
    ptx::mbarrier_init(&slots.empty[slot], 4);
  }
}

// As `forward` in ../kernel.cuh.
__device__ __forceinline__ void forward_mixed(const Problem& p, const TensorMap* k_map,
                                              const TensorMap* v_map) {
  const SharedStorage smem(memory);
  // With early loads the shuffle tells the compiler that all lanes of a warp take the same branch.
  if (!kEarlyLoads ? threadIdx.x < 128 : __shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0) == 0) {
    if (threadIdx.x == 0) ptx::prefetch_tensormap(k_map), ptx::prefetch_tensormap(v_map);
    const TileScheduler scheduler(p);
    LoadCursor load(p, scheduler);
    if (kEarlyLoads && threadIdx.x == 0) load_first_kv(smem, p, load, k_map, v_map);
    enter_producer_role();
    if (!kEarlyLoads && threadIdx.x == 0 && load.valid()) load_kv(smem, p, load, k_map, v_map);
    if constexpr (knob::kDirectV) {
      producer_mainloop_mixed_direct(p, scheduler, smem, k_map, load);
    } else {
      producer_mainloop_mixed(p, scheduler, smem, k_map, v_map, load);
    }
  } else {
    if (threadIdx.x == 128) {
      init_query_barriers(*smem.query_slots);
      init_barriers(*smem.barriers);
    }
    write_ones(smem);
    consumer_loop(p, smem, nullptr);
  }
}

}  // namespace stage7b
