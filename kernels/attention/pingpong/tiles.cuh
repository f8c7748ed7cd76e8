// The work tiles of a block and their order.
#pragma once

#include <type_traits>

#include "attention/dense/tiles.cuh"
#include "attention/tile_index.cuh"
#include "traits.cuh"

namespace attention::pingpong {

// A work tile: 64 query rows of one head for each consumer.
struct Tile {
  unsigned head, kv_head, batch;
  int first_query;
  int causal_key_end;  // with a causal mask row r attends to the keys before causal_key_end + r
  int steps;           // 0 behind the last tile

  Tile() = default;
  __device__ __forceinline__ Tile(const Problem& p, const ::WorkTile& tile) {
    batch = tile.head.kv / p.kv_heads;
    kv_head = tile.head.kv - batch * p.kv_heads;
    head = tile.head.q - batch * p.kv_heads * p.group;
    first_query = tile.first_query;
    causal_key_end = tile.causal_key_end;
    steps = max(1, num_n_blocks<Traits>(tile));  // 1 if no row sees a key
  }
};

// The order of dense, without counters: a block takes one tile of each round.
struct StaticTileScheduler {
  const Problem& p;
  dense::TileScheduler<Traits> scheduler;
  TileIndex at;

  __device__ __forceinline__ explicit StaticTileScheduler(const Problem& p)
      : p(p), scheduler(p), at(scheduler.first(p)) {}

  // The tile of the next round. One thread.
  __device__ __forceinline__ Tile next(unsigned) {
    if (!scheduler.has(at)) return {};
    const Tile tile(p, scheduler.tile(p, at));
    scheduler.next(p, at);
    return tile;
  }
  __device__ __forceinline__ void finish() const {}
};

// With a causal mask a block takes the next tile when it has finished one (FA3:
// DynamicPersistentTileScheduler). The longest come first, in sections of heads whose K and V fit
// in L2. Without a mask all tiles have the same length: the tiles of a head are consecutive, and a
// block takes one of each round.
struct DynamicTileScheduler {
  static constexpr unsigned kSectionBytes = 32u << 20;  // of K and V, in L2

  const Problem& p;
  unsigned tiles_per_head, tiles;
  unsigned section;  // heads

  __device__ __forceinline__ explicit DynamicTileScheduler(const Problem& p) : p(p) {
    tiles_per_head = ::tiles_per_head<Sizes::kBlockM>(p);
    tiles = tiles_per_head * p.heads;
    section = p.heads;
    if (p.causal) {
      // A power of two, or 1 if no head fits.
      const unsigned fit = kSectionBytes / (static_cast<unsigned>(p.keys) * Sizes::kHeadDim * 4);
      section = min(p.heads, (fit > 0 ? 1u << (31 - __clz(fit)) : 1u) * p.group);
    }
  }

  // The tile of the next round. One thread.
  __device__ __forceinline__ Tile next(unsigned round) const {
    const unsigned index = index_of(round);
    if (index >= tiles) return {};
    unsigned head, order;
    if (p.causal) {
      const unsigned before = index / (section * tiles_per_head) * section;
      const unsigned rest = index - before * tiles_per_head, heads = min(section, p.heads - before);
      order = rest / heads, head = before + rest % heads;
    } else {
      head = index / tiles_per_head, order = index % tiles_per_head;
    }
    return Tile(p, work_tile<Sizes::kBlockM, Sizes::kHeadDim>(p, {head, head / p.group}, order));
  }
  // Behind the last tile. The last block to come here leaves zeros for the next launch.
  __device__ __forceinline__ void finish() const {
    if (!p.causal) return;
    __threadfence();
    if (atomicAdd(p.counters + 1, 1) != gridDim.x - 1) return;
    atomicExch(p.counters, 0);
    atomicExch(p.counters + 1, 0);
  }

 private:
  __device__ __forceinline__ unsigned index_of(unsigned round) const {
    const unsigned odd = round % 2;
    if (p.causal && round > 0) return gridDim.x + atomicAdd(p.counters, 1);
    return round * gridDim.x + (odd ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }
};

using TileScheduler =
    std::conditional_t<Traits::kDynamicOrder, DynamicTileScheduler, StaticTileScheduler>;

}  // namespace attention::pingpong
