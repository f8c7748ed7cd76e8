// The work tiles of a block: those of prefill, in the order of prefill, as the warps of pingpong pass
// them on.
#pragma once

#include "attention/pingpong/storage.cuh"
#include "attention/prefill/loads.cuh"
#include "attention/prefill/tiles.cuh"
#include "problem.cuh"

namespace attention::prefill16 {

// A tile without keys has a step too, of which no row attends to a key.
template <class Traits>
struct Tile {
  using Sizes = TileSizes<Traits>;
  prefill::KvSource<Traits, pingpong::OperandSizes<Traits>> source;
  int sequence;
  unsigned head;                     // in its sequence
  int first_row;                     // of the sequence, in packed Q and O; else 0
  int queries;                       // of the sequence
  int first_query;                   // of the tile, in the sequence
  int causal_key_end, window_begin;  // as those of prefill::WorkTile
  int steps;                         // 0 behind the last tile

  Tile() = default;
  __device__ __forceinline__ Tile(const Problem& p, const prefill::WorkTile& tile)
      : sequence(tile.sequence),
        head(tile.sequence_head),
        first_row(tile.first_row),
        queries(tile.queries),
        first_query(tile.first_query),
        causal_key_end(tile.causal_key_end),
        window_begin(tile.window_begin),
        steps(max(1, (tile.key_end + Sizes::kBlockN - 1) / Sizes::kBlockN)) {
    source.enter(p, tile);
  }
};

// Block x takes tile x of each round.
template <class Traits>
struct TileScheduler {
  const Problem& p;
  prefill::TileScheduler<Traits> order;
  TileIndex at;

  __device__ __forceinline__ explicit TileScheduler(const Problem& p)
      : p(p), order(p), at(order.first(p)) {}

  // The tile of the next round. One thread.
  __device__ __forceinline__ Tile<Traits> next(unsigned round) {
    if (round > 0) order.next(p, at);
    if (!order.has(at)) return {};
    return Tile<Traits>(p, order.tile(p, at));
  }
  __device__ __forceinline__ void finish() const {}
};

}  // namespace attention::prefill16
