// Which keys the rows of a warp attend to.
#pragma once

#include <cmath>

#include "problem.cuh"
#include "storage.cuh"

namespace attention::warp {

// The first row of this lane in the tile, of row tile m. Found where it is used: the mainloop needs
// the registers.
__device__ __forceinline__ int lane_row(int m) {
  const unsigned thread = ptx::opaque(threadIdx.x);
  return row_warp(thread) * kWarpRows + 16 * m + thread % 32 / 4;
}

// The first key of the warp's team in a step.
__device__ __forceinline__ int first_key_of(int n_block) {
  return n_block * kBlockN + team_index() * kTeamKeys;
}

// The keys [begin, end) of a row.
struct Keys {
  int begin, end;
};

__device__ __forceinline__ Keys keys_of(const Problem& p, const Tile& tile, int row) {
  if constexpr (kHasOptions) {
    const int i = kPacksHeads ? RowPlace(tile, row).query : row;
    return {tile.window_begin + i, min(tile.keys, tile.causal_key_end + i)};
  } else {
    return {0, p.causal ? min(p.keys, tile.causal_key_end + row) : p.keys};
  }
}

// The keys that all rows of the warp attend to, or with kAny those that one of them does. With
// packed heads a warp may have all queries.
template <bool kAny>
__device__ __forceinline__ Keys keys_of_warp(const Problem& p, const Tile& tile) {
  const int first = kPacksHeads ? 0 : row_warp(ptx::opaque(threadIdx.x)) * kWarpRows;
  const int last = kPacksHeads ? tile.queries - 1 : first + kWarpRows - 1;
  if constexpr (kHasOptions) {
    return {tile.window_begin + (kAny ? first : last),
            min(tile.keys, tile.causal_key_end + (kAny ? last : first))};
  } else {
    return keys_of(p, tile, kAny ? last : first);
  }
}

// Whether a row of the warp does not attend to all keys of the step.
__device__ __forceinline__ bool cuts(const Problem& p, const Tile& tile, int n_block) {
  const Keys keys = keys_of_warp<false>(p, tile);
  const int first = first_key_of(n_block), end = first + kTeamKeys;
  if constexpr (kHasOptions) {
    // The keys of a tree's tokens, the last ones, need a mask.
    if (p.tree_mask != nullptr && end > tile.keys - tile.queries) return true;
    if (first < keys.begin) return true;
  }
  return end > keys.end;
}

// Whether no row of the warp attends to a key of the step.
__device__ __forceinline__ bool hides(const Problem& p, const Tile& tile, int n_block) {
  if constexpr (!kHasOptions) {
    if (!p.causal) return false;
  }
  const Keys keys = keys_of_warp<true>(p, tile);
  const int first = first_key_of(n_block);
  return first >= keys.end || kHasOptions && first + kTeamKeys <= keys.begin;
}

// Masks the tokens of a tree that are no ancestors of a row's. Token t is key keys - queries + t.
__device__ __forceinline__ void mask_tree(float (&s)[kScores], const Problem& p, const Tile& tile,
                                          int row, int half, int first_key) {
  if (p.tree_mask == nullptr || !has_row(p, tile, row)) return;
  const int query = RowPlace(tile, row).query;
  const int first = p.cu_queries == nullptr ? static_cast<int>(tile.sequence) * p.queries
                                            : Packed(p.cu_queries, tile.sequence,
                                                     p.total_queries).first;
  const uint64_t seen = p.tree_mask[first + query];
  const int first_token = first_key - (tile.keys - tile.queries);
#pragma unroll
  for (int i = 2 * half; i < kScores; i += 4) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int token = first_token + i / 4 * 8 + j;
      if (token >= 0 && token < 64 && !(seen >> token & 1)) s[i + j] = -INFINITY;
    }
  }
}

// Masks the scores of a step in rows `row` and `row + 8` of the tile.
__device__ __forceinline__ void apply_mask(float (&s)[kScores], const Problem& p, const Tile& tile,
                                           int row, int n_block) {
  const int first_key = first_key_of(n_block) + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Keys keys = keys_of(p, tile, row + 8 * half);
    const int begin = keys.begin - first_key, end = keys.end - first_key;
#pragma unroll
    for (int i = 2 * half; i < kScores; i += 4) {
      const int key = i / 4 * 8;
      if (key >= end || kHasOptions && key < begin) s[i] = -INFINITY;
      if (key + 1 >= end || kHasOptions && key + 1 < begin) s[i + 1] = -INFINITY;
    }
    if constexpr (kHasOptions) mask_tree(s, p, tile, row + 8 * half, half, first_key);
  }
}

}  // namespace attention::warp
