// The work tiles of plain tensors: their order, and the keys that a row attends to.
#pragma once

#include <cmath>

#include "../../include/problem.cuh"
#include "../row_state.cuh"
#include "../shared_storage.cuh"
#include "../tile_index.cuh"
#include "../tile_sizes.cuh"

namespace attention::dense {

// The order of all tiles.
//   no mask         the tiles of a head are consecutive
//   causal          longest tiles first, over all heads: the last round is short
//   causal, paired  the longest tile of a head next to its shortest, and so on: pairs of equal
//                   length, head after head
// With plain causal order each round reads K and V of all heads, which may not fit in L2. Pairs
// avoid that where heads are short and many.
template <class Traits>
struct TileScheduler {
  using Sizes = TileSizes<Traits>;
  static constexpr unsigned kMaxPairedTiles = Sizes::kHeadDim > 64 ? 16 : 0;  // per head
  unsigned tiles;
  bool paired;
  Divisor inner;  // the faster dimension: tiles or pairs of a head, or heads
  Divisor group;  // query heads that share a head of K and V

  __device__ __forceinline__ explicit TileScheduler(const Problem<Traits>& p)
      : tiles(of_head(p) * p.heads),
        paired(kMaxPairedTiles > 0 && p.causal && of_head(p) % 2 == 0 &&
               of_head(p) <= kMaxPairedTiles && tiles >= 4 * gridDim.x && p.keys >= p.queries),
        inner(paired ? of_head(p) / 2 : p.causal ? p.heads : of_head(p)),
        group(p.group) {}

  __device__ __forceinline__ TileIndex first(const Problem<Traits>&) const {
    return TileIndex(paired);
  }
  __device__ __forceinline__ void next(const Problem<Traits>&, TileIndex& at) const {
    at.next(paired);
  }

  // Only the last round may be incomplete.
  __device__ __forceinline__ bool has(const TileIndex& at) const { return at.index < tiles; }

  __device__ __forceinline__ WorkTile<Traits> tile(const Problem<Traits>& p,
                                                   const TileIndex& at) const {
    const unsigned index = paired ? at.index / 2 : at.index;
    const unsigned quotient = inner.quotient(index), rest = index - quotient * inner.divisor;
    const unsigned q = p.causal && !paired ? rest : quotient;
    const unsigned order = p.causal && !paired ? quotient : rest;
    return work_tile<Sizes::kBlockM, Sizes::kHeadDim>(
        p, {q, group.quotient(q)},
        paired && at.index % 2 ? 2 * inner.divisor - 1 - order : order);
  }

 private:
  __device__ __forceinline__ static unsigned of_head(const ::Problem& p) {
    return tiles_per_head<Sizes::kBlockM>(p);
  }
};

// The mask of a work tile, for one consumer.
template <class Traits>
struct Mask {
  using Sizes = TileSizes<Traits>;
  int end;  // every row attends to all keys before it

  __device__ __forceinline__ Mask(const Problem<Traits>& p, const WorkTile<Traits>& tile,
                                  int consumer)
      : end(p.causal ? min(p.keys, tile.causal_key_end + first_row<Traits>(consumer)) : p.keys) {}
  __device__ __forceinline__ bool is_unmasked(int n_block) const {
    return (n_block + 1) * Sizes::kBlockN <= end;
  }

  // Some row of a consumer attends to the last key before this; no row attends to later keys.
  __device__ __forceinline__ static int key_end_of(const Problem<Traits>& p,
                                                   const WorkTile<Traits>& tile, int consumer) {
    return p.causal ? min(p.keys, tile.causal_key_end + first_row<Traits>(consumer) + 63) : p.keys;
  }

  // Masks a lane's scores. Its two rows attend to the keys before end[0] and end[1], counted from
  // the lane's first key of the step.
  __device__ __forceinline__ static void apply(Scores<Traits>& s, const int (&end)[2]) {
#pragma unroll
    for (int i = 0; i < Sizes::kScores; ++i) {
      if (i / 4 * 8 + i % 2 >= end[i / 2 % 2]) s[i] = -INFINITY;
    }
  }

  __device__ __forceinline__ static void apply(Scores<Traits>& s, const Problem<Traits>& p,
                                               const WorkTile<Traits>& tile, int n_block) {
    const Lane<Traits> lane;
    const int key_end = p.causal ? tile.causal_key_end + lane.row : p.keys;
    const int first_key = n_block * Sizes::kBlockN + 2 * lane.t;
    const int end[2] = {min(p.keys, key_end) - first_key, min(p.keys, key_end + 8) - first_key};
    apply(s, end);
  }
};

}  // namespace attention::dense
