// The work tiles of a block and their order.
#pragma once

#include "attention/tile_sizes.cuh"
#include "problem.cuh"

namespace attention::pingpong {

// Query heads of a tile, which share a K/V head.
__device__ __forceinline__ unsigned packed_heads(const Problem& p) { return 64 / p.head_rows; }

// A work tile: 64 query rows for each consumer. They are of one head, or, where a group has several
// heads and queries are few, head_rows of each of some heads (FA3: PackGQA).
template <class Traits>
struct Tile {
  using Sizes = TileSizes<Traits>;
  unsigned head, kv_head, batch;  // the first head
  int first_query;
  int causal_key_end;  // with a causal mask row r of a head attends to the keys before this plus r
  int steps;           // 0 behind the last tile

  Tile() = default;
  // Tile number `order` of some heads in launch order, the last rows first.
  __device__ __forceinline__ Tile(const Problem& p, unsigned heads, unsigned order) {
    const unsigned first = heads * packed_heads(p), kv = first / p.group;
    batch = kv / p.kv_heads;
    kv_head = kv - batch * p.kv_heads;
    head = first - batch * p.kv_heads * p.group;
    first_query = (tiles_of_heads(p) - 1 - order) * queries_of(p);
    causal_key_end = first_query + p.keys - p.queries + 1;
    const int last = p.causal ? min(p.keys, causal_key_end + queries_of(p) - 1) : p.keys;
    steps = max(1, (last + Sizes::kBlockN - 1) / Sizes::kBlockN);  // 1 if no row sees a key
  }

  __device__ __forceinline__ static int queries_of(const Problem& p) {
    return Sizes::kConsumers * p.head_rows;
  }
  __device__ __forceinline__ static unsigned tiles_of_heads(const Problem& p) {
    return (static_cast<unsigned>(p.queries) + queries_of(p) - 1) / queries_of(p);
  }
};

// With a causal mask a block takes the next tile when it has finished one (FA3:
// DynamicPersistentTileScheduler). The longest come first, in sections of heads whose K and V fit
// in L2. Without a mask all tiles have the same length: the tiles of a head are consecutive, and a
// block takes one of each round. It does so too without counters.
template <class Traits>
struct TileScheduler {
  using Sizes = TileSizes<Traits>;
  using Tile = pingpong::Tile<Traits>;
  static constexpr unsigned kSectionBytes = 32u << 20;  // of K and V, in L2

  const Problem& p;
  unsigned all_heads, tiles_per_head, tiles;  // heads that are packed count once
  unsigned section;                           // heads

  __device__ __forceinline__ explicit TileScheduler(const Problem& p) : p(p) {
    all_heads = p.heads / packed_heads(p);
    tiles_per_head = Tile::tiles_of_heads(p);
    tiles = tiles_per_head * all_heads;
    section = all_heads;
    if (p.causal) {
      // A power of two, or 1 if no head fits.
      const unsigned fit = kSectionBytes / (4 * Sizes::kHeadDim) / p.keys;
      const unsigned kv_heads = fit > 0 ? 1u << (31 - __clz(fit)) : 1u;
      section = min(all_heads, kv_heads * (p.group / packed_heads(p)));
    }
  }

  // The tile of the next round. One thread.
  __device__ __forceinline__ Tile next(unsigned round) const {
    const unsigned index = index_of(round);
    if (index >= tiles) return {};
    unsigned head, order;
    if (p.causal) {
      const unsigned before = index / (section * tiles_per_head) * section;
      const unsigned rest = index - before * tiles_per_head;
      const unsigned heads = min(section, all_heads - before);
      order = rest / heads, head = before + rest % heads;
    } else {
      head = index / tiles_per_head, order = index % tiles_per_head;
    }
    return Tile(p, head, order);
  }
  // Behind the last tile. The last block to come here leaves zeros for the next launch.
  __device__ __forceinline__ void finish() const {
    if (!is_dynamic()) return;
    __threadfence();
    if (atomicAdd(p.counters + 1, 1) != gridDim.x - 1) return;
    atomicExch(p.counters, 0);
    atomicExch(p.counters + 1, 0);
  }

 private:
  __device__ __forceinline__ bool is_dynamic() const {
    return p.causal && p.counters != nullptr;
  }
  __device__ __forceinline__ unsigned index_of(unsigned round) const {
    const unsigned odd = round % 2;
    if (is_dynamic() && round > 0) return gridDim.x + atomicAdd(p.counters, 1);
    return round * gridDim.x + (odd ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }
};

}  // namespace attention::pingpong
