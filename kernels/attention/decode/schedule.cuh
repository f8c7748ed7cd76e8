// The tile scheduler: which tiles of which K/V heads a block computes.
//
// All tiles stand in one line: sequence by sequence, in a sequence head by head, in a head by key.
// Each block takes an equal share of the line, so that a launch ends at the same time everywhere
// whatever the lengths of the sequences. A head whose tiles are in several shares has a part of its
// result in each of those blocks. Where all sequences have as many tiles, the host knows a number
// of blocks that cuts fewer heads, `even_blocks`: the blocks behind it are idle.
#pragma once

#include <climits>

#include "params.cuh"

namespace attention::decode {

// The keys of a sequence that some query row sees, and the tiles that hold them.
struct Keys {
  int end;         // keys of the sequence
  int begin;       // keys before it are outside of the window of every row
  int first_tile;  // the tile of `begin`
  int tiles;       // at least 1: a head without keys has an output too
};

__device__ __forceinline__ Keys keys_of(const Params& p, int sequence) {
  Keys k;
  k.end = p.lengths != nullptr ? max(0, min(p.lengths[sequence], p.keys)) : p.keys;
  k.begin = max(0, p.window_begin(k.end, 0));
  k.first_tile = k.begin / Sizes::kTileN;
  const unsigned end_tile = static_cast<unsigned>(k.end + Sizes::kTileN - 1) / Sizes::kTileN;
  k.tiles = max(1, static_cast<int>(end_tile) - k.first_tile);
  return k;
}

// The shares of the blocks: the first `longer` blocks have a tile more than the others. More blocks
// than tiles leave the last ones without work.
struct Shares {
  int share, longer;

  __device__ __forceinline__ Shares(int tiles, unsigned blocks)
      : share(tiles / blocks), longer(tiles - share * blocks) {}

  __device__ __forceinline__ int begin(int block) const {
    return block * share + min(block, longer);
  }

  // The block that has a tile.
  __device__ __forceinline__ int block_of(int tile) const {
    const int of_longer = longer * (share + 1);
    if (tile < of_longer) return tile / (share + 1);
    return longer + (tile - of_longer) / share;
  }
};

// Where the share of a block starts.
struct Start {
  int blocks;          // that have tiles
  int tiles;           // of all blocks
  int begin;           // place of the first tile in the line
  int sequence;        // of the first tile
  int sequence_begin;  // place of the first tile of that sequence in the line
};

// Finds the start of this block. A whole warp calls it. Without lengths all sequences have as many
// tiles. With lengths each lane adds up the tiles of its sequences, and the lane that has the start
// walks through them: both passes are short, because a lane has 1/32 of the sequences.
__device__ __forceinline__ Start find_start(const Params& p) {
  if (p.lengths == nullptr) {
    const int tiles = keys_of(p, 0).tiles * p.kv_heads;
    const int blocks = gridDim.x, begin = Shares(tiles * p.batch, blocks).begin(blockIdx.x);
    const int sequence = begin / tiles;
    return {blocks, tiles * p.batch, begin, sequence, sequence * tiles};
  }
  const int lane = threadIdx.x % 32;
  const int each = static_cast<unsigned>(p.batch + 31) / 32;
  const int first = min(lane * each, p.batch), last = min(first + each, p.batch);
  int tiles = 0, fewest = INT_MAX, most = 0;  // of a sequence
  for (int s = first; s < last; s++) {
    const int of_sequence = keys_of(p, s).tiles;
    tiles += of_sequence;
    fewest = min(fewest, of_sequence);
    most = max(most, of_sequence);
  }
  const bool even = __reduce_min_sync(~0u, fewest) == __reduce_max_sync(~0u, most);
  const int blocks = even ? p.even_blocks : gridDim.x;
  tiles *= p.kv_heads;
  int end = tiles;  // of this lane's sequences, in the line
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int below = __shfl_up_sync(~0u, end, distance);
    if (lane >= distance) end += below;
  }
  const int all = __shfl_sync(~0u, end, 31);
  const int begin = Shares(all, blocks).begin(min(static_cast<int>(blockIdx.x), blocks));
  int sequence = first, sequence_begin = end - tiles;
  const bool has_start = sequence_begin <= begin && begin < end;
  if (has_start) {
    for (int next; (next = sequence_begin + keys_of(p, sequence).tiles * p.kv_heads) <= begin;) {
      sequence_begin = next;
      sequence++;
    }
  }
  const unsigned found = __ballot_sync(~0u, has_start);
  const int source = max(0, __ffs(found) - 1);
  return {blocks, all, begin, __shfl_sync(~0u, sequence, source),
          __shfl_sync(~0u, sequence_begin, source)};
}

// The tiles of a block, in their order.
struct Cursor {
  int blocks, tiles;   // blocks that have tiles, and the tiles of all of them
  int at, end;         // places in the line: the next tile, and the end of the block's share
  int sequence = 0, head = 0;  // K/V head of the sequence
  int head_begin = 0;          // place of the first tile of the head
  Keys keys = {};              // of the sequence

  Cursor() = default;

  __device__ __forceinline__ Cursor(const Params& p, const Start& start) {
    blocks = start.blocks;
    tiles = start.tiles;
    at = start.begin;
    end = Shares(tiles, blocks).begin(min(static_cast<int>(blockIdx.x) + 1, blocks));
    if (at == end) return;  // there is no sequence to look at
    sequence = start.sequence;
    keys = keys_of(p, sequence);
    head = (at - start.sequence_begin) / keys.tiles;
    head_begin = start.sequence_begin + head * keys.tiles;
  }

  __device__ __forceinline__ bool has_tile() const { return at < end; }

  // The first key of the next tile.
  __device__ __forceinline__ int first_key() const {
    return (keys.first_tile + at - head_begin) * Sizes::kTileN;
  }

  __device__ __forceinline__ int head_end() const { return head_begin + keys.tiles; }

  // The tiles of the head that the block has, from the next one on.
  __device__ __forceinline__ int tiles_of_head() const { return min(end, head_end()) - at; }

  // Steps over `count` tiles of the head.
  __device__ __forceinline__ void advance(const Params& p, int count) {
    at += count;
    if (at < head_end() || at == end) return;
    head_begin = at;
    if (++head == p.kv_heads) {
      head = 0;
      keys = keys_of(p, ++sequence);
    }
  }
};

}  // namespace attention::decode
