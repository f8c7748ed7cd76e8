// The shared memory of a block: Q, the stages of K and V, and the factors of their keys. Rows are
// swizzled, so that the eight rows of an ldmatrix matrix lie in different banks.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "traits.cuh"

namespace attention::warp8 {

constexpr int kQkRowBytes = kHeadDim;
constexpr int kVRowBytes = kE4M3Pv ? kHeadDim : 2 * kHeadDim;
constexpr int kQBytes = kBlockM * kQkRowBytes;
constexpr int kKBytes = kBlockN * kQkRowBytes;
constexpr int kStageBytes = kKBytes + kBlockN * kVRowBytes;
constexpr int kFactorBytes = 16 * kKeyGroups;  // of a stage

// Rows of kRowBytes. The chunks of 16 bytes of a row change places: chunk c lies at c XOR
// swizzle(row). Rows of 128 bytes, or multiples of them, cover all banks. Two rows of an odd
// multiple of 64 do so together, and four of an odd multiple of 32.
template <int kRowBytes>
struct RowLayout {
  static constexpr int kSwizzled = kRowBytes % 128 == 0 ? 8 : kRowBytes % 64 == 0 ? 4 : 2;
  static constexpr int kChunks = kRowBytes / 16;  // of a row

  __device__ __forceinline__ static int swizzle(int row) {
    return row / (8 / kSwizzled) % kSwizzled;
  }
  __device__ __forceinline__ static int offset(int row, int chunk) {
    return row * kRowBytes + (chunk ^ swizzle(row)) * 16;
  }
};

// The address of a lane's row for ldmatrix, in a tile whose rows begin at multiples of 8: the
// chunk of a product is added by `chunk`.
template <int kRowBytes>
struct RowAddress {
  using Layout = RowLayout<kRowBytes>;
  uint32_t row;      // of its first chunk
  uint32_t swizzle;  // of its row, in bytes

  // `first_chunk` is 0 or 1; with 1 the chunks below are even.
  __device__ __forceinline__ RowAddress(int row, int first_chunk)
      : row(row * kRowBytes), swizzle((first_chunk ^ Layout::swizzle(row)) * 16) {}
  // `tile` is where the tile begins, `rows` a multiple of 8.
  __device__ __forceinline__ uint32_t at(uint32_t tile, int rows, int chunk) const {
    constexpr int kSwizzled = Layout::kSwizzled;
    return tile + row + (swizzle ^ (chunk % kSwizzled * 16)) + chunk / kSwizzled * kSwizzled * 16 +
           rows * kRowBytes;
  }
};

struct Storage {
  uint32_t base;  // address in the shared window

  __device__ __forceinline__ Storage() {
    extern __shared__ __align__(128) unsigned char memory[];
    base = ptx::shared_address(memory);
  }
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t k(int stage) const {
    return base + kQBytes + stage * kStageBytes;
  }
  __device__ __forceinline__ uint32_t v(int stage) const { return k(stage) + kKBytes; }
  // Of K; with E4M3 there are none.
  __device__ __forceinline__ uint32_t factors(int stage) const {
    return base + kQBytes + kStages * kStageBytes + stage * kFactorBytes;
  }
};

}  // namespace attention::warp8
