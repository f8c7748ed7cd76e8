// The shared memory of a block: Q, and the stages of K and V. Rows are swizzled, so that the eight
// rows of an ldmatrix matrix lie in different banks.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "traits.cuh"

namespace attention::warp {

constexpr int kRowBytes = 2 * kHeadDim;
constexpr int kChunks = kRowBytes / 16;  // of a row
constexpr int kQBytes = kBlockM * kRowBytes;
constexpr int kTileBytes = kBlockN * kRowBytes;  // of K, or of V
constexpr int kSharedBytes = kQBytes + 2 * kStages * kTileBytes;

// What the number of a chunk is combined with in a row: rows of 128 bytes, or multiples of them,
// cover all banks, and two rows of an odd multiple of 64.
__device__ __forceinline__ int row_swizzle(int row) {
  return kRowBytes % 128 == 0 ? row & 7 : row >> 1 & 3;
}
__device__ __forceinline__ int swizzled_offset(int row, int chunk) {
  return row * kRowBytes + (chunk ^ row_swizzle(row)) * 16;
}

struct Storage {
  uint32_t base;  // address in the shared window

  __device__ __forceinline__ Storage() {
    extern __shared__ __align__(128) unsigned char memory[];
    base = ptx::shared_address(memory);
  }
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t k(int stage) const {
    return base + kQBytes + stage * 2 * kTileBytes;
  }
  __device__ __forceinline__ uint32_t v(int stage) const { return k(stage) + kTileBytes; }
};

// The address of a lane's row for ldmatrix, in a tile whose rows begin at multiples of 8: the
// chunk of a product is added by `chunk`.
struct RowAddress {
  uint32_t row;      // of its first chunk
  uint32_t swizzle;  // of its row, in bytes

  __device__ __forceinline__ RowAddress(int row, int first_chunk)
      : row(row * kRowBytes), swizzle((first_chunk ^ row_swizzle(row)) * 16) {}
  // `tile` is where the tile begins, `rows` a multiple of 8, `chunk` a multiple of 2.
  __device__ __forceinline__ uint32_t at(uint32_t tile, int rows, int chunk) const {
    constexpr int kSwizzled = kRowBytes % 128 == 0 ? 8 : 4;  // chunks that change places
    return tile + row + (swizzle ^ (chunk % kSwizzled * 16)) + chunk / kSwizzled * kSwizzled * 16 +
           rows * kRowBytes;
  }
};

}  // namespace attention::warp
