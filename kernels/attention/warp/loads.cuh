// The copies of Q, K and V from global to shared memory, in pieces of 16 bytes by all threads. Rows
// that do not exist are zeros.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "include/swizzled_rows.cuh"
#include "problem.cuh"
#include "storage.cuh"

namespace attention::warp {

// Copies at a time: their addresses take registers, of which head dim 256 has few.
constexpr int kUnrolled = kHeadDim == 256 ? 4 : 64;

// Rows [first, first + kRows) of a head, of which those before `end` exist.
template <int kRows>
__device__ __forceinline__ void copy_head(uint32_t to, const uint16_t* from, int64_t stride,
                                          unsigned first, int end) {
  copy_rows<kRows, kRowBytes, kThreads, kUnrolled>(
      to, ptx::opaque(threadIdx.x), from, 2 * stride, first,
      [&](unsigned row, unsigned) { return row < static_cast<unsigned>(end); });
}

// A piece of a row whose address is `from` plus `offset` bytes. Without such a row it is zeros.
template <int kBytes>
__device__ __forceinline__ void copy_piece(uint32_t tile, unsigned row, unsigned chunk,
                                           const void* from, int64_t offset, bool exists) {
  const char* source = static_cast<const char*>(from) + (exists ? offset + 16 * chunk : 0);
  ptx::cp_async_cg_16(tile + SwizzledRows<kBytes>::offset(row, chunk), source, exists ? 16 : 0);
}

// ---- options: packed heads, pages, head dims below HEAD_DIM ----

constexpr int kKvElementBytes = kE4m3 ? 1 : 2;

__device__ __forceinline__ void copy_placed_query(const Problem& p, const Tile& tile,
                                                  const Storage& storage) {
  const unsigned thread = ptx::opaque(threadIdx.x);
  for_pieces<kBlockM, kRowBytes, kThreads, kUnrolled>(thread, [&](int row, int chunk) {
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
  const unsigned first = n_block * kBlockN + team_index() * kTeamKeys;
  const auto thread = [] {
    const unsigned all = ptx::opaque(threadIdx.x);
    return kTeams == 1 ? all : all % kTeamThreads;
  };
  const unsigned k_chunks = p.columns * kKvElementBytes / 16;
  const unsigned v_chunks = p.o_columns * kKvElementBytes / 16;
  if (p.page_table != nullptr) {
    for_pieces<kTeamKeys, kKvRowBytes, kTeamThreads, kUnrolled>(thread(), [&](unsigned row,
                                                                            unsigned chunk) {
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
  const unsigned count = max(0, tile.key_end - tile.key_begin);
  const auto copy = [&](uint32_t to, const uint16_t* from, int64_t row_stride, unsigned chunks) {
    copy_rows<kTeamKeys, kKvRowBytes, kTeamThreads, kUnrolled>(
        to, thread(), from, row_stride * kKvElementBytes, first, [&](unsigned row, unsigned chunk) {
          return row - tile.key_begin < count && chunk < chunks;
        });
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
