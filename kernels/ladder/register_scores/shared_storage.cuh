// The shared memory of a block, and the position of a thread in the block.
#pragma once

#include <cstdint>

#include "tile_sizes.cuh"

namespace register_scores {

struct Position {
  int warp, key_group, row_warp;
  int lane, g, t;  // lane 4g + t
};

__device__ __forceinline__ Position thread_position() {
  Position p;
  p.warp = threadIdx.x / 32u;
  p.key_group = p.warp % Sizes::kKeyWarps;
  p.row_warp = p.warp / Sizes::kKeyWarps;
  p.lane = threadIdx.x % 32u;
  p.g = p.lane / 4;
  p.t = p.lane % 4;
  return p;
}

struct SharedStorage {
  uint8_t* stages;  // (stages, K and V, keys of a step, D) codes
  uint4* partials;  // (warps, row tiles, halves of one, chunks, lanes) of 8 FP16 of O; on stages
  float2* stats;    // (warps, rows): row max and row sum
  uint16_t* table;  // (256) the halves of all E4M3 codes
  uint64_t* full;   // (stages)
  uint64_t* empty;  // (stages)
  unsigned* ticket;
};

__device__ __forceinline__ SharedStorage shared_storage(unsigned char* memory) {
  uint64_t* barriers = reinterpret_cast<uint64_t*>(memory + Sizes::kOffsetBarriers);
  return {memory,
          reinterpret_cast<uint4*>(memory),
          reinterpret_cast<float2*>(memory + Sizes::kWarps * Sizes::kPartialBytes),
          reinterpret_cast<uint16_t*>(memory + Sizes::kOffsetTable),
          barriers,
          barriers + Sizes::kStages,
          reinterpret_cast<unsigned*>(memory + Sizes::kOffsetTicket)};
}

}  // namespace register_scores
