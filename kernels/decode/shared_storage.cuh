// Shared memory, the pipeline of K and V, and the layout of a tile.
#pragma once

#include "ptx.cuh"
#include "schedule.cuh"

struct SharedStorage {
  alignas(1024) uint8_t k[Sizes::kStages][Sizes::kTileBytes];
  alignas(1024) uint8_t v[Sizes::kStages][Sizes::kTileBytes];
  // Results of the consumer warps. Four columns of padding put the rows of a store in other banks.
  alignas(16) float o[Sizes::kWarps][Sizes::kRows][Sizes::kHeadDim + 4];
  float row_max[Sizes::kWarps][Sizes::kRows];  // scaled, in log2 units
  float row_sum[Sizes::kWarps][Sizes::kRows];
  // Operands A of Q·K^T, by warp, k-step and lane. Each lane reads its own.
  uint4 q[Sizes::kQInShared ? Sizes::kWarps * Sizes::kHeadDim : 1];
  alignas(8) uint64_t full[Sizes::kStages];
  uint64_t empty[Sizes::kStages];
  // The next head of the consumers, and the one behind it. In registers they would crowd out O.
  Cursor cursor[2];
  bool is_last;
};

// "shared" of kernel.toml, without the bytes that align the storage.
static_assert(sizeof(SharedStorage) <=
              Sizes::kStages * (2 * Sizes::kTileBytes + 16) +
                  Sizes::kTileN * (2 * Sizes::kHeadDim + 12) +
                  Sizes::kTileN * (Sizes::kHeadDim / 2) * Sizes::kQInShared + 1024);

// A position in the pipeline. `phase` is the parity of the mbarrier phase that ends when the stage
// is next filled, or next emptied.
struct PipelineState {
  int stage = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == Sizes::kStages) stage = 0, phase ^= 1;
  }
};

// A tile is boxes of 64 rows and up to 128 bytes, swizzled as TMA does: 16 bytes at the same column
// of eight rows are in different banks. The place of a byte is the sum of two functions, so that a
// lane keeps few addresses in registers.

// The first row of a consumer warp.
__device__ __forceinline__ uint32_t warp_offset(int warp) {
  constexpr int kWarpsOfBox = Sizes::kBoxN / Sizes::kWarpN;
  return warp / kWarpsOfBox * (Sizes::kBoxN * Sizes::kHeadDim) +
         warp % kWarpsOfBox * (Sizes::kWarpN * Sizes::kBoxBytes);
}

// A byte of row 8 * octet + row of a warp; row is below 8.
__device__ __forceinline__ uint32_t row_offset(int octet, int row, int byte) {
  const int swizzle = Sizes::kBoxBytes == 128 ? row : row / 2;
  return byte / Sizes::kBoxBytes * (Sizes::kBoxN * Sizes::kBoxBytes) +
         (8 * octet + row) * Sizes::kBoxBytes + (byte % Sizes::kBoxBytes ^ swizzle << 4);
}
