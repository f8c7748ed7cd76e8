// The tile scheduler: which tiles of which units a block computes. A unit is a K/V head with up to
// kRows of its query rows.
//
// All tiles stand in one line: sequence by sequence, in a sequence unit by unit, in a unit by key.
// Each block takes an equal share of the line, so that a launch ends at the same time everywhere
// whatever the lengths of the sequences. A unit whose tiles are in several shares has a part of its
// result in each of those blocks.
//
// Where all sequences have as many tiles, no block should have the end of one unit and the beginning
// of another, because each costs a merge. With `even_blocks` each unit has as many blocks of its
// own, or each block as many whole units; the blocks behind it are idle.
#pragma once

#include <climits>

#include "params.cuh"

namespace attention::decode {

// The keys of a sequence that some query row sees, and the tiles that hold them.
struct Keys {
  int end;         // keys of the sequence
  int begin;       // keys before it are outside of the window of every row
  int first_tile;  // the tile of `begin`
  int tiles;       // at least 1: a unit without keys has an output too
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

// Where the share of a block starts: in the line of all units, or in one of some of them.
struct Start {
  int first_block, blocks;  // that have tiles of the line
  int tiles;                // of the line
  int begin, end;           // places of the block's share in the line
  int sequence;             // of the first tile
  int sequence_begin;       // place of the first tile of that sequence in the line
};

// The share of a block in a line.
__device__ __forceinline__ Start start_of(int first_block, int blocks, int tiles) {
  const Shares shares(tiles, blocks);
  const int block = min(static_cast<int>(blockIdx.x) - first_block, blocks);
  return {first_block, blocks, tiles, shares.begin(block), shares.begin(min(block + 1, blocks))};
}

// The start where all units have as many tiles.
__device__ __forceinline__ Start find_even_start(const Params& p, int tiles, int even_blocks) {
  const int units = p.units() * p.batch, block = blockIdx.x;
  Start start;
  int unit;
  if (even_blocks == 0) {
    start = start_of(0, gridDim.x, tiles * units);
    unit = start.begin / tiles;
    start.sequence_begin = unit / p.units() * p.units() * tiles;
  } else if (even_blocks >= units) {  // blocks of a unit: the line has its tiles
    const int blocks = even_blocks / units;
    unit = block / blocks;
    start = start_of(unit * blocks, blocks, tiles);
    if (unit >= units) start.begin = start.end;
    start.sequence_begin = -(unit % p.units() * tiles);
  } else {  // units of a block: the line has no parts
    const int each = (units + even_blocks - 1) / even_blocks;
    unit = block * each;
    start = {0, 1, tiles * units, min(unit, units) * tiles, min(unit + each, units) * tiles};
    start.sequence_begin = unit / p.units() * p.units() * tiles;
  }
  start.sequence = unit / p.units();
  return start;
}

// Finds the start of this block. A whole warp calls it. Without lengths all sequences have as many
// tiles. With lengths each lane adds up the tiles of its sequences, and the lane that has the start
// walks through them: both passes are short, because a lane has 1/32 of the sequences.
__device__ __forceinline__ Start find_start(const Params& p) {
  if (p.lengths == nullptr) return find_even_start(p, keys_of(p, 0).tiles, p.even_blocks);
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
  fewest = __reduce_min_sync(~0u, fewest);
  if (fewest == __reduce_max_sync(~0u, most)) return find_even_start(p, fewest, p.even_blocks);
  tiles *= p.units();
  int end = tiles;  // of this lane's sequences, in the line
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int below = __shfl_up_sync(~0u, end, distance);
    if (lane >= distance) end += below;
  }
  Start start = start_of(0, gridDim.x, __shfl_sync(~0u, end, 31));
  int sequence = first, sequence_begin = end - tiles;
  const bool has_start = sequence_begin <= start.begin && start.begin < end;
  if (has_start) {
    for (int next;
         (next = sequence_begin + keys_of(p, sequence).tiles * p.units()) <= start.begin;) {
      sequence_begin = next;
      sequence++;
    }
  }
  const unsigned found = __ballot_sync(~0u, has_start);
  const int source = max(0, __ffs(found) - 1);
  start.sequence = __shfl_sync(~0u, sequence, source);
  start.sequence_begin = __shfl_sync(~0u, sequence_begin, source);
  return start;
}

// The tiles of a block, in their order.
struct Cursor {
  int first_block, blocks, tiles;  // of the line
  int at, end;  // places in the line: the next tile, and the end of the block's share
  int sequence = 0, unit = 0;  // unit of the sequence
  int unit_begin = 0;          // place of the first tile of the unit
  Keys keys = {};              // of the sequence

  Cursor() = default;

  __device__ __forceinline__ Cursor(const Params& p, const Start& start) {
    first_block = start.first_block;
    blocks = start.blocks;
    tiles = start.tiles;
    at = start.begin;
    end = start.end;
    if (at == end) return;  // there is no sequence to look at
    sequence = start.sequence;
    keys = keys_of(p, sequence);
    unit = (at - start.sequence_begin) / keys.tiles;
    unit_begin = start.sequence_begin + unit * keys.tiles;
  }

  __device__ __forceinline__ bool has_tile() const { return at < end; }

  // Whether the block has units behind this one.
  __device__ __forceinline__ bool has_other() const { return end > unit_end(); }

  // The first key of the next tile.
  __device__ __forceinline__ int first_key() const {
    return (keys.first_tile + at - unit_begin) * Sizes::kTileN;
  }

  __device__ __forceinline__ int unit_end() const { return unit_begin + keys.tiles; }

  // The tiles of the unit that the block has, from the next one on.
  __device__ __forceinline__ int tiles_of_unit() const { return min(end, unit_end()) - at; }

  // The K/V head of the unit.
  __device__ __forceinline__ int kv_head(const Params& p) const {
    return static_cast<unsigned>(unit) / p.units_of_head();
  }

  // Steps over `count` tiles of the unit.
  __device__ __forceinline__ void advance(const Params& p, int count) {
    at += count;
    if (at < unit_end() || at == end) return;
    unit_begin = at;
    if (++unit == p.units()) {
      unit = 0;
      keys = keys_of(p, ++sequence);
    }
  }
};

// What the divisions of a unit give. They take a microsecond together, so they are done while others
// compute.
struct Unit {
  int kv_head;
  int first_row, rows;       // query rows, of the K/V head
  int first_block, parts;    // blocks that have tiles of the unit
  bool begins, whole;        // this block has its first tile; all of them
  bool is_last;              // of the block

  Unit() = default;

  __device__ __forceinline__ Unit(const Params& p, const Cursor& cursor) {
    kv_head = cursor.kv_head(p);
    first_row = (cursor.unit - kv_head * p.units_of_head()) * Sizes::kRows;
    rows = min(Sizes::kRows, p.rows() - first_row);
    begins = cursor.at == cursor.unit_begin;
    whole = begins && cursor.end >= cursor.unit_end();
    is_last = !cursor.has_other();
    const Shares shares(cursor.tiles, cursor.blocks);
    const int of_line = shares.block_of(cursor.unit_begin);
    first_block = cursor.first_block + of_line;
    parts = shares.block_of(cursor.unit_end() - 1) - of_line + 1;
  }
};

}  // namespace attention::decode
