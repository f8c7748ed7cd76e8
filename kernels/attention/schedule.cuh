// The producer's order of loads.
#pragma once

#include "shared_storage.cuh"
#include "tile_index.cuh"

namespace attention {

// The producer's position: the n_blocks of all tiles of the block, each tile from its last keys to
// its first. With a causal mask the last n_blocks are the ones that need it. Without sequences the
// sequence ends with the first tile that attends to no key: all later tiles attend to none either.
// (Paired tiles all attend to some.) With sequences such tiles are passed over.
template <class Traits>
struct LoadCursor {
  TileIndex at;
  int n_block = -1;
  KvSource<Traits> source;
  KvState<Traits> state;

  __device__ __forceinline__ LoadCursor(const Problem<Traits>& p,
                                        const TileScheduler<Traits>& scheduler)
      : at(scheduler.first(p)) {
    enter_tile(p, scheduler);
  }
  __device__ __forceinline__ bool valid() const { return n_block >= 0; }
  __device__ __forceinline__ void next(const Problem<Traits>& p,
                                       const TileScheduler<Traits>& scheduler) {
    if (!next_in_tile(p)) next_tile(p, scheduler);
  }

  // Returns false at the end of the tile.
  __device__ __forceinline__ bool next_in_tile(const Problem<Traits>& p) {
    state.advance();
    if (--n_block < 0) return false;
    source.seek(p, n_block);
    return true;
  }
  __device__ __forceinline__ void next_tile(const Problem<Traits>& p,
                                            const TileScheduler<Traits>& scheduler) {
    scheduler.next(p, at);
    enter_tile(p, scheduler);
  }

 private:
  __device__ __forceinline__ void enter_tile(const Problem<Traits>& p,
                                             const TileScheduler<Traits>& scheduler) {
    for (; scheduler.has(at); scheduler.next(p, at)) {
      const WorkTile<Traits> tile = scheduler.tile(p, at);
      source.enter(p, tile);
      n_block = num_n_blocks<Traits>(tile) - 1;
      if (n_block >= 0) source.seek(p, n_block);
      if (!Traits::kHasSequences || n_block >= 0) return;
    }
  }
};

}  // namespace attention
