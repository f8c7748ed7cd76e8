// The copies of Q, K and V from global to shared memory, in pieces of 16 bytes by all threads. Rows
// that do not exist are zeros.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "problem.cuh"
#include "storage.cuh"

namespace attention::warp {

// Calls `copy` with the row and the chunk of each piece of kRows rows of kBytes that a thread of
// kCopiers has.
template <int kRows, int kBytes, int kCopiers, class Copy>
__device__ __forceinline__ void for_pieces(Copy copy) {
  constexpr int kChunks = kBytes / 16, kAll = kRows * kChunks;
  constexpr int kUnrolled = kHeadDim == 256 ? 4 : 64;  // addresses take registers
  const int all = ptx::opaque(threadIdx.x), thread = kCopiers == kThreads ? all : all % kCopiers;
#pragma unroll kUnrolled
  for (int begin = 0; begin < kAll; begin += kCopiers) {
    const int i = begin + thread;
    if (kAll % kCopiers != 0 && i >= kAll) break;
    copy(i / kChunks, i % kChunks);
  }
}

// A piece of a row whose address is `from` plus `offset` bytes. Without such a row it is zeros.
template <int kBytes>
__device__ __forceinline__ void copy_piece(uint32_t tile, int row, int chunk, const void* from,
                                           int64_t offset, bool exists) {
  const char* source = static_cast<const char*>(from) + (exists ? offset + 16 * chunk : 0);
  ptx::cp_async_cg_16(tile + swizzled_offset<kBytes>(row, chunk), source, exists ? 16 : 0);
}

// ---- rows at equal distances ----

// Copies rows [first, first + kRows) of kBytes that are `stride` bytes apart. Those in [begin, end)
// exist. Pieces of a thread are in one chunk of rows at equal distances, so that one address leads
// to the next. Without options `begin` is 0 and all chunks exist.
template <int kRows, int kBytes, int kCopiers>
__device__ __forceinline__ void copy_rows(uint32_t to, const void* from, int64_t stride, int first,
                                          int begin, int end, int chunks) {
  constexpr int kChunks = kBytes / 16, kStep = kCopiers / kChunks;  // rows
  if constexpr (kCopiers % kChunks == 0 && kRows % kStep == 0) {
    const int all = ptx::opaque(threadIdx.x), thread = kCopiers == kThreads ? all : all % kCopiers;
    const int row = thread / kChunks, chunk = thread % kChunks;
    const unsigned count = chunk < chunks ? max(0, end - begin) : 0;
    const char* source = static_cast<const char*>(from) + (first + row) * stride + 16 * chunk;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep, source += kStep * stride) {
      const int at = first + row + i;
      const bool exists = kHasOptions ? static_cast<unsigned>(at - begin) < count : at < end;
      ptx::cp_async_cg_16(to + swizzled_offset<kBytes>(row + i, chunk), source, exists ? 16 : 0);
    }
  } else {
    for_pieces<kRows, kBytes, kCopiers>([&](int row, int chunk) {
      const int at = first + row;
      const bool exists = at >= begin && at < end && chunk < chunks;
      copy_piece<kBytes>(to, row, chunk, from, at * stride, exists);
    });
  }
}

// Rows [first, first + kRows) of a head, of which those before `end` exist.
template <int kRows>
__device__ __forceinline__ void copy_head(uint32_t to, const uint16_t* from, int64_t stride,
                                          int first, int end) {
  copy_rows<kRows, kRowBytes, kThreads>(to, from, 2 * stride, first, 0, end, kChunks);
}

// ---- options: packed heads, pages, head dims below HEAD_DIM ----

constexpr int kKvElementBytes = kE4m3 ? 1 : 2;

__device__ __forceinline__ void copy_placed_query(const Problem& p, const Tile& tile,
                                                  const Storage& storage) {
  for_pieces<kBlockM, kRowBytes, kThreads>([&](int row, int chunk) {
    const RowPlace at(tile, row);
    const int64_t offset = p.q_strides.head * at.head + p.q_strides.row * at.query;
    copy_piece<kRowBytes>(storage.q(), row, chunk, tile.q, 2 * offset,
                          8 * chunk < p.columns && has_row(p, tile, row));
  });
}

// Where a key is in pages, which have multiples of 16 keys.
struct KeyPlace {
  bool exists;
  unsigned page = 0, row = 0;

  __device__ __forceinline__ KeyPlace(const Problem& p, const Tile& tile, int key)
      : exists(key >= tile.key_begin && key < tile.key_end) {
    if (!exists) return;
    const Divisor pages(p.page_size, tile.page_reciprocal);
    const unsigned number = pages.quotient(key);
    row = key - number * p.page_size;
    page = __ldg(p.page_table + static_cast<size_t>(tile.sequence) * p.max_pages + number);
    exists = static_cast<uint64_t>(page) * p.page_size < static_cast<unsigned>(p.total_keys);
  }
  __device__ __forceinline__ int64_t offset(const Strides& strides) const {
    return (strides.batch * page + strides.row * row) * kKvElementBytes;
  }
};

// The keys of a team in a step.
template <bool kK, bool kV>
__device__ __forceinline__ void copy_keys(const Problem& p, const Tile& tile,
                                          const Storage& storage, int n_block, int stage) {
  const int first = n_block * kBlockN + team_index() * kTeamKeys;
  const int k_chunks = p.columns * kKvElementBytes / 16;
  const int v_chunks = p.o_columns * kKvElementBytes / 16;
  if (p.page_table != nullptr) {
    for_pieces<kTeamKeys, kKvRowBytes, kTeamThreads>([&](int row, int chunk) {
      const KeyPlace at(p, tile, first + row);
      if constexpr (kK) {
        copy_piece<kKvRowBytes>(storage.k(stage), row, chunk, tile.k, at.offset(p.k_strides),
                                at.exists && chunk < k_chunks);
      }
      if constexpr (kV) {
        copy_piece<kKvRowBytes>(storage.v(stage), row, chunk, tile.v, at.offset(p.v_strides),
                                at.exists && chunk < v_chunks);
      }
    });
    return;
  }
  const auto copy = [&](uint32_t to, const uint16_t* from, int64_t row_stride, int chunks) {
    copy_rows<kTeamKeys, kKvRowBytes, kTeamThreads>(to, from, row_stride * kKvElementBytes, first,
                                                    tile.key_begin, tile.key_end, chunks);
  };
  if constexpr (kK) copy(storage.k(stage), tile.k, p.k_strides.row, k_chunks);
  if constexpr (kV) copy(storage.v(stage), tile.v, p.v_strides.row, v_chunks);
}

// ---- tiles ----

__device__ __forceinline__ void copy_query(const Problem& p, const Tile& tile,
                                           const Storage& storage) {
  if constexpr (kHasOptions) {
    copy_placed_query(p, tile, storage);
  } else {
    copy_head<kBlockM>(storage.q(), tile.q, p.q_strides.row, tile.first_query, p.queries);
  }
}

__device__ __forceinline__ void copy_k(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  if constexpr (kHasOptions) {
    copy_keys<true, false>(p, tile, storage, n_block, stage);
  } else {
    copy_head<kBlockN>(storage.k(stage), tile.k, p.k_strides.row, n_block * kBlockN, p.keys);
  }
}
__device__ __forceinline__ void copy_v(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  if constexpr (kHasOptions) {
    copy_keys<false, true>(p, tile, storage, n_block, stage);
  } else {
    copy_head<kBlockN>(storage.v(stage), tile.v, p.v_strides.row, n_block * kBlockN, p.keys);
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
