// The cp.async pipeline in shared memory: two or three stages, each with K and V codes of one step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace register_scores {

// Byte offset of 16-byte chunk `chunk` of a row in a staged tile.
__device__ __forceinline__ int staged_offset(int row, int chunk) {
  int position = chunk;
  if constexpr (knob::kXorSwizzle) {
    // Two rows of 64 bytes, or one of 128, cover all banks once. Rows that are read together get
    // different positions.
    position ^= Sizes::kChunks == 4 ? (row & 2) : (row & 3) << 1 | (row >> 2 & 1);
  }
  return row * Sizes::kHeadDim + position * 16;
}

// The staged codes of K (which = 0) or V (which = 1).
__device__ __forceinline__ uint8_t* staged_tile(const SharedStorage& smem, int stage, int which) {
  return smem.stages + (stage * 2 + which) * Sizes::kTileBytes;
}

// Issues cp.async for keys [first, first + kRows) of K and V to rows [row, row + kRows) of a stage,
// by kCopiers threads of which this is number `thread`. Keys beyond the last are zeros.
template <int kRows, int kCopiers>
__device__ __forceinline__ void copy_async(const SharedStorage& smem, const Problem& problem,
                                           const WorkTile& tile, int stage, int row, int first,
                                           int thread) {
  constexpr int kAllChunks = kRows * Sizes::kChunks;
#pragma unroll
  for (int begin = 0; begin < kAllChunks; begin += kCopiers) {
    const int i = begin + thread;
    if (kAllChunks % kCopiers != 0 && i >= kAllChunks) break;
    const int r = i / Sizes::kChunks, chunk = i % Sizes::kChunks, key = first + r;
    const bool exists = key < problem.keys;
    const size_t from = static_cast<size_t>(exists ? key : 0) * Sizes::kHeadDim + chunk * 16;
    const int to = staged_offset(row + r, chunk);
    ptx::cp_async_cg_16(staged_tile(smem, stage, 0) + to, tile.k + from, exists ? 16 : 0);
    ptx::cp_async_cg_16(staged_tile(smem, stage, 1) + to, tile.v + from, exists ? 16 : 0);
  }
}

}  // namespace register_scores
