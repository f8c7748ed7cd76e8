// Shared memory, the pipeline of K and V, and the layout of a tile.
#pragma once

#include "include/pipeline_state.cuh"
#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "schedule.cuh"

namespace attention::decode {

struct SharedStorage {
  alignas(1024) uint8_t k[Sizes::kStages][Sizes::kTileBytes];
  alignas(1024) uint8_t v[Sizes::kStages][Sizes::kTileBytes];
  // Results of the consumer warps. Four columns of padding put the rows of a store in other banks.
  alignas(16) float o[Sizes::kWarps][Sizes::kRows][Sizes::kHeadDim + 4];
  float row_max[Sizes::kWarps][Sizes::kRows];  // scaled, in log2 units
  float row_sum[Sizes::kWarps][Sizes::kRows];
  // Operands A of Q·K^T, by chunk and lane.
  uint4 q[Sizes::kQStaged ? Sizes::kHeadDim / 16 : 1][Sizes::kQStaged ? 32 : 1];
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
                  32 * Sizes::kHeadDim * Sizes::kQStaged + 1024);

constexpr int kConsumerBarrier = 1;

// A position in the pipeline.
using KvState = PipelineState<Sizes::kStages>;

// A tile is boxes of 64 rows and up to 128 bytes, swizzled as TMA does: 16 bytes at the same column
// of eight rows are in different banks.

// The first row of a consumer warp.
__device__ __forceinline__ uint32_t warp_offset(int warp) {
  constexpr int kWarpsOfBox = Sizes::kBoxN / Sizes::kWarpN;
  return warp / kWarpsOfBox * (Sizes::kBoxN * Sizes::kHeadDim) +
         warp % kWarpsOfBox * (Sizes::kWarpN * Sizes::kBoxBytes);
}

// A byte of row 8 * octet + row of a warp, as two terms. The first is a constant for all lanes and
// becomes the immediate offset of a load; row is below 8.
__device__ __forceinline__ constexpr uint32_t octet_offset(int octet, int byte) {
  return byte / Sizes::kBoxBytes * (Sizes::kBoxN * Sizes::kBoxBytes) + 8 * octet * Sizes::kBoxBytes;
}
__device__ __forceinline__ uint32_t row_offset(int row, int byte) {
  const int swizzle = Sizes::kBoxBytes == 128 ? row : row / 2;
  return row * Sizes::kBoxBytes + (byte % Sizes::kBoxBytes ^ swizzle << 4);
}

// The order of the keys 2t and 2t+1 in a lane's operands of P·V. Rows of 64 bytes: the even rows of
// a tile are in one half of the banks, so the odd lanes read the odd row first.
__device__ __forceinline__ int swaps_keys() {
  return Sizes::kHeadDim == 64 ? threadIdx.x % 2 : 0;
}

// Where a lane reads in the rows of its warp. The offsets are found once: ptxas would compute them
// again in every step.
struct LaneOffsets {
  uint32_t k;                            // of the row of ldmatrix; bit 6 is that of the column
  uint32_t v[Sizes::kBoxBytes / 32][2];  // of keys 2t and 2t+1

  __device__ __forceinline__ LaneOffsets() {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    k = ptx::opaque(warp_offset(warp) + row_offset(lane % 8, lane / 8 * 16));
#pragma unroll
    for (int i = 0; i < Sizes::kBoxBytes / 32; i++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int key = 2 * t + (j ^ swaps_keys());
        v[i][j] = ptx::opaque(warp_offset(warp) + row_offset(key, 32 * i + 4 * g));
      }
    }
  }
};

}  // namespace attention::decode
