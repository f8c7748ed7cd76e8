// The tile scheduler: which work tiles a persistent block computes, and in which order.
#pragma once

#include "../../common/problem.cuh"
#include "../../common/ptx.cuh"
#include "shared_storage.cuh"

namespace stage7b {

// Position of a block in the sequence of all tiles. A block takes one tile of each round of
// gridDim.x tiles. Odd rounds run from the last block to the first: with a causal mask tiles get
// shorter along a round, so a block with a long tile gets a short one next. With `paired` a block
// takes two neighbouring tiles in two consecutive rounds.
struct TileIndex {
  unsigned round = 0, index;

  __device__ __forceinline__ explicit TileIndex(bool paired)
      : index(paired ? 2 * blockIdx.x : blockIdx.x) {}

  // The same position, opaque to the compiler: it derives the tile again instead of keeping it in
  // registers.
  __device__ __forceinline__ TileIndex opaque() const {
    TileIndex t = *this;
    t.index = ptx::opaque(index);
    return t;
  }

  __device__ __forceinline__ void next(bool paired) {
    ++round;
    const unsigned odd = round % 2;
    index = paired ? 2 * (round / 2 * gridDim.x + blockIdx.x) + odd
                   : round * gridDim.x + (odd ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }
};

// Division of values below 2^31 by a constant of the launch. An integer division takes about a
// hundred cycles, and every tile needs several.
struct Divisor {
  unsigned divisor, reciprocal;  // reciprocal in units of 2^-32

  __device__ __forceinline__ explicit Divisor(unsigned divisor)
      : divisor(divisor), reciprocal(~0u) {
    if (divisor != 1) reciprocal /= divisor;
  }
  __device__ __forceinline__ unsigned quotient(unsigned x) const {
    const unsigned low = __umulhi(x, reciprocal);  // at most one too small
    return low + (x - low * divisor >= divisor);
  }
};

// The order of all tiles.
//   no mask         the tiles of a head are consecutive
//   causal          longest tiles first, over all heads: the last round is short
//   causal, paired  the longest tile of a head next to its shortest, and so on: pairs of equal
//                   length, head after head
// With plain causal order each round reads K and V of all heads, which may not fit in L2. Pairs
// avoid that where heads are short and many.
struct TileScheduler {
  static constexpr unsigned kMaxPairedTiles = Sizes::kHeadDim > 64 ? 16 : 0;  // per head
  unsigned tiles;
  bool paired;
  Divisor inner;  // the faster dimension: tiles or pairs of a head, or heads
  Divisor group;  // query heads that share a head of K and V

  __device__ __forceinline__ explicit TileScheduler(const Problem& p)
      : tiles(tiles_per_head(p) * p.heads),
        paired(kMaxPairedTiles > 0 && p.causal && tiles_per_head(p) % 2 == 0 &&
               tiles_per_head(p) <= kMaxPairedTiles && tiles >= 4 * gridDim.x &&
               p.keys >= p.queries),
        inner(paired ? tiles_per_head(p) / 2 : p.causal ? p.heads : tiles_per_head(p)),
        group(p.group) {}

  // Only the last round may be incomplete.
  __device__ __forceinline__ bool has(const TileIndex& at) const { return at.index < tiles; }

  __device__ __forceinline__ WorkTile tile(const Problem& p, const TileIndex& at) const {
    const unsigned index = paired ? at.index / 2 : at.index;
    const unsigned quotient = inner.quotient(index), rest = index - quotient * inner.divisor;
    const unsigned q = p.causal && !paired ? rest : quotient;
    const unsigned order = p.causal && !paired ? quotient : rest;
    return work_tile(p, {q, group.quotient(q)},
                     paired && at.index % 2 ? 2 * inner.divisor - 1 - order : order);
  }
};

__device__ __forceinline__ int num_n_blocks(const WorkTile& tile) {
  return (tile.key_end + Sizes::kBlockN - 1) / Sizes::kBlockN;
}

// The producer's position: the n_blocks of all tiles of the block, each tile from its last keys to
// its first. With a causal mask the last n_blocks are the ones that need it. The sequence ends with
// the first tile that attends to no key: all later tiles attend to none either. (Paired tiles all
// attend to some.)
struct LoadCursor {
  TileIndex at;
  int n_block = -1, kv_head;
  KvState state;

  __device__ __forceinline__ LoadCursor(const Problem& p, const TileScheduler& scheduler)
      : at(scheduler.paired) {
    enter_tile(p, scheduler);
  }
  __device__ __forceinline__ bool valid() const { return n_block >= 0; }
  __device__ __forceinline__ void next(const Problem& p, const TileScheduler& scheduler) {
    state.advance();
    if (--n_block >= 0) return;
    at.next(scheduler.paired);
    enter_tile(p, scheduler);
  }

 private:
  __device__ __forceinline__ void enter_tile(const Problem& p, const TileScheduler& scheduler) {
    if (!scheduler.has(at)) return;
    const WorkTile tile = scheduler.tile(p, at);
    kv_head = tile.head.kv;
    n_block = num_n_blocks(tile) - 1;
  }
};

}  // namespace stage7b
