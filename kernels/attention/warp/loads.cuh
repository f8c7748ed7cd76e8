// The copies of Q, K and V from global to shared memory, in pieces of 16 bytes by all threads. Rows
// that do not exist are zeros.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "problem.cuh"
#include "storage.cuh"

namespace attention::warp {

// Copies at a time: their addresses take registers, of which head dim 256 has few.
constexpr int kUnrolledCopies = kHeadDim == 256 ? 4 : 64;

// Calls `copy` with the row and the chunk of each piece of kRows rows of kBytes that a thread of
// kCopiers has.
template <int kRows, int kBytes, int kCopiers, class Copy>
__device__ __forceinline__ void for_pieces(Copy copy) {
  constexpr int kChunks = kBytes / 16, kAll = kRows * kChunks;
  const int all = ptx::opaque(threadIdx.x), thread = kCopiers == kThreads ? all : all % kCopiers;
#pragma unroll kUnrolledCopies
  for (int begin = 0; begin < kAll; begin += kCopiers) {
    const int i = begin + thread;
    if (kAll % kCopiers != 0 && i >= kAll) break;
    copy(i / kChunks, i % kChunks);
  }
}

// ---- rows of one head that follow each other ----

// Copies rows [first, first + kRows) of a head, of which those before `end` exist.
template <int kRows>
__device__ __forceinline__ void copy_rows(uint32_t to, const uint16_t* from, int64_t stride,
                                          int first, int end) {
  for_pieces<kRows, kRowBytes, kThreads>([&](int row, int chunk) {
    const bool exists = first + row < end;
    const uint16_t* source = from + (exists ? first + row : 0) * stride + chunk * 8;
    ptx::cp_async_cg_16(to + swizzled_offset(row, chunk), source, exists ? 16 : 0);
  });
}

// ---- options: packed heads, pages, head dims below HEAD_DIM ----

// A piece of a row in global memory. Where there is none, of a row or of its columns, it is zeros.
template <int kBytes>
__device__ __forceinline__ void copy_piece(uint32_t tile, int row, int chunk, const void* rows,
                                           int64_t row_bytes, int columns, bool exists) {
  constexpr int kColumns = 16 * kHeadDim / kBytes;  // of a chunk
  exists &= kColumns * chunk < columns;
  const char* from = static_cast<const char*>(rows) + (exists ? row_bytes + 16 * chunk : 0);
  ptx::cp_async_cg_16(tile + swizzled_offset<kBytes>(row, chunk), from, exists ? 16 : 0);
}

__device__ __forceinline__ void copy_placed_query(const Problem& p, const Tile& tile,
                                                  const Storage& storage) {
  for_pieces<kBlockM, kRowBytes, kThreads>([&](int row, int chunk) {
    const RowPlace at(tile, row);
    const int64_t offset = p.q_strides.head * at.head + p.q_strides.row * at.query;
    copy_piece<kRowBytes>(storage.q(), row, chunk, tile.q, 2 * offset, p.columns,
                          has_row(p, tile, row));
  });
}

// Where a key is: its page, 0 without pages, and its row there. Pages have multiples of 16 keys.
struct KeyPlace {
  bool exists;
  unsigned page, row;

  __device__ __forceinline__ KeyPlace(const Problem& p, const Tile& tile, int key)
      : exists(key >= tile.key_begin && key < tile.key_end), page(0), row(key) {
    if (p.page_table == nullptr || !exists) return;
    const Divisor pages(p.page_size, tile.page_reciprocal);
    const unsigned number = pages.quotient(key);
    row = key - number * p.page_size;
    page = __ldg(p.page_table + static_cast<size_t>(tile.sequence) * p.max_pages + number);
    exists = static_cast<uint64_t>(page) * p.page_size < static_cast<unsigned>(p.total_keys);
  }
  __device__ __forceinline__ int64_t bytes(const Strides& strides) const {
    return (strides.batch * page + strides.row * row) * (kE4m3 ? 1 : 2);
  }
};

// The keys of a team in a step.
template <bool kK, bool kV>
__device__ __forceinline__ void copy_keys(const Problem& p, const Tile& tile,
                                          const Storage& storage, int n_block, int stage) {
  const int first = n_block * kBlockN + team_index() * kTeamKeys;
  for_pieces<kTeamKeys, kKvRowBytes, kTeamThreads>([&](int row, int chunk) {
    const KeyPlace at(p, tile, first + row);
    if constexpr (kK) {
      copy_piece<kKvRowBytes>(storage.k(stage), row, chunk, tile.k, at.bytes(p.k_strides),
                              p.columns, at.exists);
    }
    if constexpr (kV) {
      copy_piece<kKvRowBytes>(storage.v(stage), row, chunk, tile.v, at.bytes(p.v_strides),
                              p.o_columns, at.exists);
    }
  });
}

// ---- tiles ----

__device__ __forceinline__ void copy_query(const Problem& p, const Tile& tile,
                                           const Storage& storage) {
  if constexpr (kHasOptions) {
    copy_placed_query(p, tile, storage);
  } else {
    copy_rows<kBlockM>(storage.q(), tile.q, p.q_strides.row, tile.first_query, p.queries);
  }
}

__device__ __forceinline__ void copy_k(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  if constexpr (kHasOptions) {
    copy_keys<true, false>(p, tile, storage, n_block, stage);
  } else {
    copy_rows<kBlockN>(storage.k(stage), tile.k, p.k_strides.row, n_block * kBlockN, p.keys);
  }
}
__device__ __forceinline__ void copy_v(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  if constexpr (kHasOptions) {
    copy_keys<false, true>(p, tile, storage, n_block, stage);
  } else {
    copy_rows<kBlockN>(storage.v(stage), tile.v, p.v_strides.row, n_block * kBlockN, p.keys);
  }
}

// K and V of a step into a stage: one group, also where there is no such step, so that the groups
// of later steps can be counted.
__device__ __forceinline__ void copy_step(const Problem& p, const Tile& tile,
                                          const Storage& storage, int n_block, int stage) {
  if (n_block >= tile.first_step) {
    if constexpr (kHasOptions) {
      copy_keys<true, true>(p, tile, storage, n_block, stage);
    } else {
      copy_k(p, tile, storage, n_block, stage);
      copy_v(p, tile, storage, n_block, stage);
    }
  }
  ptx::cp_async_commit_group();
}

}  // namespace attention::warp
