// The shared memory of a block: Q, and the stages of K and V of each team. Rows are swizzled, so
// that the eight rows of an ldmatrix matrix lie in different banks.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "traits.cuh"

namespace attention::warp {

constexpr int kRowBytes = 2 * kHeadDim;                     // of Q
constexpr int kKvRowBytes = kE4m3 ? kHeadDim : kRowBytes;  // of K and V
constexpr int kChunks = kRowBytes / 16;  // of a row of Q
constexpr int kQBytes = kBlockM * kRowBytes;
constexpr int kTileBytes = kTeamKeys * kKvRowBytes;  // of K, or of V, of a team
constexpr int kSharedBytes = kQBytes + 2 * kStages * kTeams * kTileBytes;

// The chunks of 16 bytes that change places in a row of kBytes: rows of 128 bytes, or multiples of
// them, cover all banks, two rows of an odd multiple of 64, and four of an odd multiple of 32.
template <int kBytes>
constexpr int kSwizzledChunks = kBytes % 128 == 0 ? 8 : kBytes % 64 == 0 ? 4 : 2;

// What the number of a chunk is combined with in a row.
template <int kBytes = kRowBytes>
__device__ __forceinline__ int row_swizzle(int row) {
  return row / (8 / kSwizzledChunks<kBytes>) % kSwizzledChunks<kBytes>;
}
template <int kBytes = kRowBytes>
__device__ __forceinline__ int swizzled_offset(int row, int chunk) {
  return row * kBytes + (chunk ^ row_swizzle<kBytes>(row)) * 16;
}

// The warps of a team have the same keys of a step. Without teams the block is one.
__device__ __forceinline__ int team_index() {
  return kTeams == 1 ? 0 : static_cast<int>(threadIdx.x) / kTeamThreads;
}
// Index of the warp among those that divide the query rows.
__device__ __forceinline__ int row_warp() {
  const int warp = static_cast<int>(threadIdx.x) / 32;
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

// The address of a lane's row for ldmatrix, in a tile whose rows begin at multiples of 8: the
// chunk of a product is added by `chunk`.
template <int kBytes>
struct RowAddressOf {
  uint32_t row;      // of its first chunk
  uint32_t swizzle;  // of its row, in bytes

  __device__ __forceinline__ RowAddressOf(int row, int first_chunk)
      : row(row * kBytes), swizzle((first_chunk ^ row_swizzle<kBytes>(row)) * 16) {}
  // `tile` is where the tile begins, `rows` a multiple of 8, `chunk` a multiple of 2.
  __device__ __forceinline__ uint32_t at(uint32_t tile, int rows, int chunk) const {
    constexpr int kSwizzled = kSwizzledChunks<kBytes>;
    return tile + row + (swizzle ^ (chunk % kSwizzled * 16)) + chunk / kSwizzled * kSwizzled * 16 +
           rows * kBytes;
  }
};
using RowAddress = RowAddressOf<kRowBytes>;
using KvRowAddress = RowAddressOf<kKvRowBytes>;

}  // namespace attention::warp
