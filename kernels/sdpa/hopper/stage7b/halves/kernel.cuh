// The roles of a block of kernels/fused: warpgroup 0 loads and converts, the others are consumers.
#pragma once

#include "../kernel.cuh"
#include "producer.cuh"

namespace stage7b {

// The whole producer. The first loads are issued before the block-wide barrier.
__device__ __forceinline__ void producer_loop(const Problem& p, const SharedStorage& smem,
                                              const TensorMap* k_map, const TensorMap* v_map) {
  const TileScheduler scheduler(p);
  StagingLoads loads = {LoadCursor(p, scheduler)};
  if (threadIdx.x == 0) {
#pragma unroll
    for (int slot = 0; slot < Sizes::kStaging; ++slot) {
      ptx::mbarrier_init(&smem.staging->full[slot], 1);
    }
    ptx::fence_mbarrier_init();
#pragma unroll 1
    for (int slot = 0; slot < Sizes::kStaging; slot += 2) {
      loads.issue<false>(p, scheduler, smem, k_map, slot);
      if (slot + 1 < Sizes::kStaging) loads.issue<true>(p, scheduler, smem, v_map, slot + 1);
    }
  }
  enter_producer_role();
  ConversionLoop{p, scheduler, smem, k_map, v_map, loads}.run();
}

__device__ __forceinline__ void forward_halves(const Problem& p, const TensorMap* q_map,
                                               const TensorMap* k_map, const TensorMap* v_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const SharedStorage smem(memory);
  // The shuffle tells the compiler that all lanes of a warp take the same branch.
  if (__shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0) == 0) {
    if (threadIdx.x == 0) ptx::prefetch_tensormap(k_map), ptx::prefetch_tensormap(v_map);
    if (threadIdx.x == 32) ptx::prefetch_tensormap(q_map);
    producer_loop(p, smem, k_map, v_map);
  } else {
    if (threadIdx.x == 128) init_barriers(*smem.barriers);
    write_ones(smem);
    consumer_loop(p, smem, q_map);
  }
}

}  // namespace stage7b
