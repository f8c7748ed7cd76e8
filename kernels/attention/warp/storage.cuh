// The shared memory of a block: Q, and the stages of K and V of each team, in swizzled rows.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "include/swizzled_rows.cuh"
#include "traits.cuh"

namespace attention::warp {

constexpr int kRowBytes = 2 * kHeadDim;                     // of Q
constexpr int kKvRowBytes = kE4m3 ? kHeadDim : kRowBytes;  // of K and V
constexpr int kChunks = kRowBytes / 16;  // of a row of Q
constexpr int kQBytes = kBlockM * kRowBytes;
constexpr int kTileBytes = kTeamKeys * kKvRowBytes;  // of K, or of V, of a team
constexpr int kSharedBytes = kQBytes + 2 * kStages * kTeams * kTileBytes;

// The warps of a team have the same keys of a step. Without teams the block is one.
__device__ __forceinline__ int team_index() {
  return kTeams == 1 ? 0 : static_cast<int>(threadIdx.x) / kTeamThreads;
}
// Index of the thread's warp among those that divide the query rows.
__device__ __forceinline__ int row_warp(unsigned thread = threadIdx.x) {
  const unsigned warp = thread / 32;
  return kTeams == 1 ? warp : warp % kTeamWarps;
}

struct Storage {
  uint32_t base;   // address in the shared window
  uint32_t tiles;  // of the team

  __device__ __forceinline__ Storage() {
    extern __shared__ __align__(128) unsigned char memory[];
    base = ptx::shared_address(memory);
    tiles = base + kQBytes + team_index() * (2 * kStages * kTileBytes);
  }
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t k(int stage) const { return tiles + stage * 2 * kTileBytes; }
  __device__ __forceinline__ uint32_t v(int stage) const { return k(stage) + kTileBytes; }
};

using RowAddress = SwizzledRow<kRowBytes>;
using KvRowAddress = SwizzledRow<kKvRowBytes>;

}  // namespace attention::warp
