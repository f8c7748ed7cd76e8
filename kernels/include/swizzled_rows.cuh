// Rows in shared memory for ldmatrix, and their copies by cp.async. Rows and chunks are unsigned:
// quotients of signed numbers take several instructions more.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"

// Rows of kBytes. The chunks of 16 bytes of a row change places: chunk c lies at c XOR swizzle(row),
// so that the eight rows of an ldmatrix matrix lie in different banks. Rows of 128 bytes, or
// multiples of them, cover all banks. Two rows of an odd multiple of 64 do so together, and four of
// an odd multiple of 32.
template <int kBytes>
struct SwizzledRows {
  static constexpr unsigned kSwizzled = kBytes % 128 == 0 ? 8 : kBytes % 64 == 0 ? 4 : 2;
  static constexpr unsigned kChunks = kBytes / 16;  // of a row

  __device__ __forceinline__ static unsigned swizzle(unsigned row) {
    return row / (8 / kSwizzled) % kSwizzled;
  }
  __device__ __forceinline__ static unsigned offset(unsigned row, unsigned chunk) {
    return row * kBytes + (chunk ^ swizzle(row)) * 16;
  }
};

// The address of a lane's row for ldmatrix, in a tile whose rows begin at multiples of 8: the
// chunk of a product is added by `chunk`.
template <int kBytes>
struct SwizzledRow {
  using Rows = SwizzledRows<kBytes>;
  uint32_t row;      // of its first chunk
  uint32_t swizzle;  // of its row, in bytes

  // `first_chunk` is 0 or 1; with 1 the chunks below are even.
  __device__ __forceinline__ SwizzledRow(unsigned row, unsigned first_chunk)
      : row(row * kBytes), swizzle((first_chunk ^ Rows::swizzle(row)) * 16) {}
  // `tile` is where the tile begins, `rows` a multiple of 8.
  __device__ __forceinline__ uint32_t at(uint32_t tile, unsigned rows, unsigned chunk) const {
    constexpr unsigned kSwizzled = Rows::kSwizzled;
    return tile + row + (swizzle ^ (chunk % kSwizzled * 16)) + chunk / kSwizzled * kSwizzled * 16 +
           rows * kBytes;
  }
};

// Calls `copy` with the row and the chunk of each piece of kRows rows of kBytes that `thread` of
// kCopiers has, kUnrolled of them at a time.
template <int kRows, int kBytes, int kCopiers, int kUnrolled, class Copy>
__device__ __forceinline__ void for_pieces(unsigned thread, Copy copy) {
  constexpr unsigned kChunks = kBytes / 16, kAll = kRows * kChunks;
#pragma unroll kUnrolled
  for (unsigned begin = 0; begin < kAll; begin += kCopiers) {
    const unsigned i = begin + thread;
    if (kAll % kCopiers != 0 && i >= kAll) break;
    copy(i / kChunks, i % kChunks);
  }
}

// Copies rows [first, first + kRows) of kBytes that are `stride` bytes apart. Pieces for which
// `exists` is false, of a row and a chunk, are zeros. Where a thread has pieces of one chunk and of
// rows at equal distances, one address leads to the next.
template <int kRows, int kBytes, int kCopiers, int kUnrolled, class Exists>
__device__ __forceinline__ void copy_rows(uint32_t to, unsigned thread, const void* from,
                                          int64_t stride, unsigned first, Exists exists) {
  using Rows = SwizzledRows<kBytes>;
  constexpr unsigned kStep = kCopiers / Rows::kChunks;  // rows
  const char* const rows = static_cast<const char*>(from);
  if constexpr (kCopiers % Rows::kChunks == 0 && kRows % kStep == 0) {
    const unsigned row = thread / Rows::kChunks, chunk = thread % Rows::kChunks;
    const char* source = rows + (first + row) * stride + 16 * chunk;
#pragma unroll
    for (unsigned i = 0; i < kRows; i += kStep, source += kStep * stride) {
      ptx::cp_async_cg_16(to + Rows::offset(row + i, chunk), source,
                          exists(first + row + i, chunk) ? 16 : 0);
    }
  } else {
    for_pieces<kRows, kBytes, kCopiers, kUnrolled>(thread, [&](unsigned row, unsigned chunk) {
      const bool copied = exists(first + row, chunk);
      const char* source = rows + (copied ? (first + row) * stride + 16 * chunk : 0);
      ptx::cp_async_cg_16(to + Rows::offset(row, chunk), source, copied ? 16 : 0);
    });
  }
}
