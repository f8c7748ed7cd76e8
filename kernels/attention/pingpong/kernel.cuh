// The kernel: a producer warpgroup, and two consumer warpgroups with 64 query rows each.
#pragma once

#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "mainloop.cuh"
#include "producer.cuh"
#include "storage.cuh"

namespace attention::pingpong {

template <class Traits>
__device__ __forceinline__ void forward(const attention::Problem<Traits>& p, const TensorMap* q_map,
                                        const TensorMap* k_map, const TensorMap* v_map) {
  using Sizes = TileSizes<Traits>;
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x == 32) {
    ptx::prefetch_tensormap(q_map);
    ptx::prefetch_tensormap(k_map);
    ptx::prefetch_tensormap(v_map);
  }
  if (threadIdx.x == 0) Storage<Traits>::barriers().init();
  __syncwarp();
  if constexpr (Traits::kSumColumns) fill_ones<Traits>();
  __syncthreads();
  if (uniform(threadIdx.x / 128) == 0) {
    ptx::setmaxnreg_dec<Sizes::kProducerRegisters>();
    producer_loop<Traits>(p, q_map, k_map, v_map);
  } else {
    ptx::setmaxnreg_inc<Sizes::kConsumerRegisters>();
    consumer_loop<Traits>(p);
  }
}

}  // namespace attention::pingpong
