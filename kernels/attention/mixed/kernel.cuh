// The roles of a block of kernels/attention/mixed.
#pragma once

#include "attention/kernel.cuh"

namespace stage7b {

// As `forward` in ../kernel.cuh, with a wait for the kernel before this one, which writes K and V:
// the launch may let this kernel begin early.
__device__ __forceinline__ void forward_mixed(const Problem& p, const TensorMap* q_map,
                                              const TensorMap* k_map, const TensorMap* v_map) {
  const SharedStorage smem(memory);
  // The shuffle tells the compiler that all lanes of a warp take the same branch.
  if (__shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0) == 0) {
    if (threadIdx.x == 0) ptx::prefetch_tensormap(k_map), ptx::prefetch_tensormap(v_map);
    if (threadIdx.x == 32) ptx::prefetch_tensormap(q_map);
    const TileScheduler scheduler(p);
    LoadCursor load(p, scheduler);
    ptx::griddepcontrol_wait();
    if (threadIdx.x == 0) load_first_kv(smem, p, load, k_map, v_map);
    enter_producer_role();
    producer_mainloop(p, scheduler, smem, k_map, v_map, load);
  } else {
    if (threadIdx.x == 128) init_barriers(*smem.barriers);
    write_ones(smem);
    consumer_loop(p, smem, q_map);
  }
}

}  // namespace stage7b
