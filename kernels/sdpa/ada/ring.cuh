// The ring in shared memory: two or three slots, each with the codes of K and of V of one step, which cp.async fills.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "block.cuh"

namespace attention {

constexpr int kChunks = kHeadDim / 16;  // 16-byte pieces of a row

// Where 16-byte piece `chunk` of a row lies in a tile of the ring.
__device__ __forceinline__ int ring_offset(int row, int chunk) {
  int place = chunk;
  if constexpr (kXorSwizzle) {
    // Two rows of 64 bytes, or one of 128, fill the banks once: rows that are read together differ in their place among those.
    place ^= kChunks == 4 ? (row & 2) : (row & 3) << 1 | (row >> 2 & 1);
  }
  return row * kHeadDim + place * 16;
}

__device__ __forceinline__ uint8_t* ring_tile(const Shared& shared, int slot, int which) {
  return shared.ring + (slot * 2 + which) * kTileBytes;
}

// Starts the copy of keys [first, first + kRows) of K and V into the rows [row, row + kRows) of a slot, by kCopiers threads of which this is the
// `thread`-th. Keys past the end arrive as zeros.
template <int kRows, int kCopiers>
__device__ __forceinline__ void copy_async(const Shared& shared, const Problem& problem, const Tile& tile, int slot, int row, int first, int thread) {
  constexpr int kAll = kRows * kChunks;
#pragma unroll
  for (int begin = 0; begin < kAll; begin += kCopiers) {
    const int piece = begin + thread;
    if (kAll % kCopiers != 0 && piece >= kAll) break;
    const int r = piece / kChunks, chunk = piece % kChunks, key = first + r;
    const bool there = key < problem.keys;
    const size_t from = static_cast<size_t>(there ? key : 0) * kHeadDim + chunk * 16;
    const int to = ring_offset(row + r, chunk);
    ptx::cp_async_cg_16(ring_tile(shared, slot, 0) + to, tile.k + from, there ? 16 : 0);
    ptx::cp_async_cg_16(ring_tile(shared, slot, 1) + to, tile.v + from, there ? 16 : 0);
  }
}

}  // namespace attention
