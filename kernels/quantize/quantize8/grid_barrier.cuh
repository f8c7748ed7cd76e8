// A barrier of all blocks of a cooperative launch, which may be passed several times.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"

struct GridBarrier {
  uint32_t* counter;  // 0 before the launch
  uint32_t passed = 0;

  __device__ void wait() {
    __syncthreads();
    passed++;
    if (threadIdx.x == 0) {
      ptx::red_release_gpu_add(counter, 1);
      while (ptx::ld_relaxed_gpu(counter) < passed * gridDim.x) {
      }
      __threadfence();  // acquires what the other blocks have written
    }
    __syncthreads();
  }
  // Behind the last wait. The last block to leave resets the counter for the next launch.
  __device__ void leave() const {
    if (threadIdx.x > 0 || passed == 0) return;
    if (ptx::atom_acq_rel_gpu_add(counter, 1) == (passed + 1) * gridDim.x - 1) *counter = 0;
  }
};
