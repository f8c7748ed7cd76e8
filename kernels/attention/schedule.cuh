// The producer's order of loads.
#pragma once

#include "form.cuh"
#include "shared_storage.cuh"
#include "tile_index.cuh"

namespace stage7b {

// The producer's position: the n_blocks of all tiles of the block, each tile from its last keys to
// its first. With a causal mask the last n_blocks are the ones that need it. Of plain tensors the
// sequence ends with the first tile that attends to no key: all later tiles attend to none either.
// (Paired tiles all attend to some.) With options such tiles are passed over.
struct LoadCursor {
  TileIndex at;
  int n_block = -1;
  KvSource source;
  KvState state;

  __device__ __forceinline__ LoadCursor(const Problem& p, const TileScheduler& scheduler)
      : at(scheduler.first(p)) {
    enter_tile(p, scheduler);
  }
  __device__ __forceinline__ bool valid() const { return n_block >= 0; }
  __device__ __forceinline__ void next(const Problem& p, const TileScheduler& scheduler) {
    if (!next_in_tile(p)) next_tile(p, scheduler);
  }

  // Returns false at the end of the tile.
  __device__ __forceinline__ bool next_in_tile(const Problem& p) {
    state.advance();
    if (--n_block < 0) return false;
    source.seek(p, n_block);
    return true;
  }
  __device__ __forceinline__ void next_tile(const Problem& p, const TileScheduler& scheduler) {
    scheduler.next(p, at);
    enter_tile(p, scheduler);
  }

 private:
  __device__ __forceinline__ void enter_tile(const Problem& p, const TileScheduler& scheduler) {
    for (; scheduler.has(at); scheduler.next(p, at)) {
      const WorkTile tile = scheduler.tile(p, at);
      source.enter(p, tile);
      n_block = num_n_blocks(tile) - 1;
      if (n_block >= 0) source.seek(p, n_block);
      if (!knob::kOptions || n_block >= 0) return;
    }
  }
};

}  // namespace stage7b
