// The shared memory of a block, and the loops over it.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "tile_sizes.cuh"

namespace shared_scores {

struct SharedStorage {
  __half* q;        // (TILE_M, D)
  __half* kv;       // (TILE_N, D) first K, then V of a step
  float* scores;    // (TILE_M, TILE_N), later P·V (TILE_M, D)
  __half* p;        // (TILE_M, TILE_N)
  uint8_t* stages;  // (stages, K and V, TILE_N, D) codes
  uint16_t* table;  // (256) the halves of all E4M3 codes
};

__device__ __forceinline__ SharedStorage shared_storage(unsigned char* memory) {
  return {reinterpret_cast<__half*>(memory),
          reinterpret_cast<__half*>(memory + Sizes::kOffsetKv),
          reinterpret_cast<float*>(memory + Sizes::kOffsetScores),
          reinterpret_cast<__half*>(memory + Sizes::kOffsetP),
          memory + Sizes::kOffsetStages,
          reinterpret_cast<uint16_t*>(memory + Sizes::kOffsetTable)};
}

// Calls work(i) for every i below kCount, split over the threads of the block. The trip count is a
// constant.
template <int kCount, typename Work>
__device__ __forceinline__ void parallel_for(Work work) {
#pragma unroll
  for (int round = 0; round < kCount / Sizes::kThreads; ++round) {
    work(round * Sizes::kThreads + threadIdx.x);
  }
  constexpr int kRest = kCount % Sizes::kThreads;
  if constexpr (kRest != 0) {
    if (threadIdx.x < kRest) work(kCount - kRest + threadIdx.x);
  }
}

}  // namespace shared_scores
