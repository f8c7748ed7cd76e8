// How the heads of Q, K and V are divided into tiles, and the tiles among blocks.
//
// A tile is a run of rows of one head: kChunks chunks of each thread of a block. A row takes 8, 16
// or 32 lanes, so that a thread has the same 8 columns in all its chunks; lanes beyond the last
// column are idle. Tiles are numbered through the heads of Q, then K, then V, and block b has the
// tiles from first_tile_of(b) to first_tile_of(b + 1) - 1: all blocks have the same number of them,
// give or take one.
#pragma once

#include <cstdint>

#include "knobs.cuh"
#include "quantize/chunk.cuh"

constexpr int kWarps = knob::kThreads / 32;

// Q, K or V.
struct Tensor {
  const uint16_t* x;  // FP16 or BF16
  uint8_t* y;         // E4M3, (batch, heads, rows, dim)
  float* descale;     // (batch, heads)
  Strides strides;    // of x
  int heads, rows;    // heads of one batch entry
  int first_tile, tiles_per_head;
};

struct Problem {
  Tensor q, k, v;
  float* mean_k;  // (batch, heads of K, dim), or null
  int dim;
  int copies;     // of the factors, for as many batch entries of the user
  bool bf16;      // x is BF16, else FP16
  bool smooth;    // the means of K are subtracted
  bool hadamard;  // Q and K are transformed
  int row_shift;  // a row takes 1 << row_shift lanes
  int tiles;      // of all tensors

  __device__ int rows_per_pass() const { return knob::kThreads >> row_shift; }
  __device__ int rows_per_tile() const { return knob::kChunks * rows_per_pass(); }
  // Products of tiles and blocks stay below 2^32: a tile has at least one of 2^31 elements.
  __device__ int first_tile_of(unsigned block) const {
    return block * static_cast<unsigned>(tiles) / gridDim.x;
  }
  __device__ unsigned block_of(unsigned tile) const { return ((tile + 1) * gridDim.x - 1) / tiles; }
  // The row of a tile in which the thread has its first chunk, and the column of all its chunks.
  __device__ int thread_row() const { return threadIdx.x >> row_shift; }
  __device__ int thread_column() const {
    return (threadIdx.x & ((1 << row_shift) - 1)) * kChunkElements;
  }
};

// Lanes of a row, as a power of two.
__device__ inline int row_shift_of(int dim) { return dim <= 64 ? 3 : dim <= 128 ? 4 : 5; }

enum class Operand { kQ, kK, kV };

// A tile as a thread sees it.
struct Tile {
  Operand operand;
  int head;               // over all batch entries
  int first, count;       // the tiles of this head
  const uint16_t* x;      // the thread's first chunk
  uint8_t* y;
  long long x_step;       // elements from a chunk of the thread to its next
  int y_step;
  int chunks;             // chunks of the thread that lie in the head
};

__device__ inline Tile tile_of(const Problem& p, int index) {
  Tile tile;
  tile.operand = index < p.k.first_tile   ? Operand::kQ
                 : index < p.v.first_tile ? Operand::kK
                                          : Operand::kV;
  const Tensor t = tile.operand == Operand::kQ   ? p.q
                   : tile.operand == Operand::kK ? p.k
                                                 : p.v;
  tile.head = (index - t.first_tile) / t.tiles_per_head;
  tile.first = t.first_tile + tile.head * t.tiles_per_head;
  tile.count = t.tiles_per_head;

  const int row = (index - tile.first) * p.rows_per_tile() + p.thread_row();
  const int batch = tile.head / t.heads, head = tile.head - batch * t.heads;
  tile.x = t.x + batch * t.strides.batch + head * t.strides.head + row * t.strides.row +
           p.thread_column();
  tile.y = t.y + (static_cast<size_t>(tile.head) * t.rows + row) * p.dim + p.thread_column();
  tile.x_step = p.rows_per_pass() * t.strides.row;
  tile.y_step = p.rows_per_pass() * p.dim;

  const int rows = max(t.rows - row, 0);  // from the first chunk to the end of the head
  tile.chunks = p.thread_column() < p.dim
                    ? min((rows + p.rows_per_pass() - 1) / p.rows_per_pass(), knob::kChunks)
                    : 0;
  return tile;
}

__device__ inline float* descale_of(const Problem& p, const Tile& tile) {
  return (tile.operand == Operand::kQ   ? p.q.descale
          : tile.operand == Operand::kK ? p.k.descale
                                        : p.v.descale) + tile.head;
}
