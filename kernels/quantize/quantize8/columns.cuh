// The first pass: the mean of each column of K, for smooth-K, and the amax of each column of V.
// Blocks write sums and maxima of tiles of 128 rows. After a barrier of the grid each thread adds
// those of one column in the order of tiles. So any grid gives the same bits.
#pragma once

#include "grid_barrier.cuh"
#include "problem.cuh"

constexpr int kTileRows = 128;
constexpr int kMaxDim = 256;

// Shared memory for the exchange between warps.
using ColumnBuffer = float[kWarps][kMaxDim];

__device__ inline int tiles_of(int rows) { return (rows + kTileRows - 1) / kTileRows; }

// The results of heads of K and then of V: of each head (dim) of all its rows, behind them (tiles,
// dim) of each head.
struct Columns {
  float* words;
  bool sums, maxima;  // of K; of V

  // The means of a head of K, the factors of a head of V.
  __device__ float* means(const Problem& p, int head) const { return words + size_t(head) * p.dim; }
  __device__ float* factors(const Problem& p, int head) const {
    return means(p, head + sums * p.k.all_heads);
  }
  __device__ float* tiles(const Problem& p, int head) const {
    return means(p, heads(p)) + size_t(head) * tiles_of(p.k.rows) * p.dim;
  }

  __device__ int heads(const Problem& p) const { return (sums + maxima) * p.k.all_heads; }
  __device__ bool is_sum(const Problem& p, int head) const {
    return sums && head < p.k.all_heads;
  }
};

// The larger magnitude; what is not finite is ignored.
__device__ inline float finite_amax(float amax, float x) {
  return fabsf(x) < INFINITY ? fmaxf(amax, fabsf(x)) : amax;
}

// Writes the sums or the amax of the columns of a tile.
template <int kRowLanes>
__device__ void reduce_tile(const Problem& p, const Columns& columns, int head, int tile,
                            ColumnBuffer& buffer) {
  const Lane<kRowLanes> lane(p.dim);
  const bool sum = columns.is_sum(p, head);
  const int of = head % p.k.all_heads;
  const uint16_t* x = (sum ? p.k.head(of) : p.v.head(of)) + lane.column;
  const long long stride = sum ? p.k.strides.row : p.v.strides.row;
  const int warp = threadIdx.x / 32, end = min(p.k.rows, (tile + 1) * kTileRows);
  Floats total = {};
#pragma unroll 4
  for (int row = tile * kTileRows + warp * lane.kRows + lane.row; row < end;
       row += kWarps * lane.kRows) {
    if (!lane.inside) continue;
    const Floats values = unpack(p.bf16, ptx::ld_global_nc_16(x + row * stride));
#pragma unroll
    for (int i = 0; i < kChunkElements; i++) {
      total.v[i] = sum ? total.v[i] + values.v[i] : finite_amax(total.v[i], values.v[i]);
    }
  }
  __syncthreads();  // the buffer has been read
#pragma unroll
  for (int i = 0; i < kChunkElements; i++) {
#pragma unroll
    for (int rows = kRowLanes; rows < 32; rows *= 2) {
      const float other = __shfl_xor_sync(~0u, total.v[i], rows);
      total.v[i] = sum ? total.v[i] + other : fmaxf(total.v[i], other);
    }
    if (lane.row == 0 && lane.inside) buffer[warp][lane.column + i] = total.v[i];
  }
  __syncthreads();
  for (int c = threadIdx.x; c < p.dim; c += knob::kThreads) {
    float value = buffer[0][c];
    for (int w = 1; w < kWarps; w++) {
      value = sum ? value + buffer[w][c] : fmaxf(value, buffer[w][c]);
    }
    columns.tiles(p, head)[size_t(tile) * p.dim + c] = value;
  }
}

// The factor of values whose amax is mapped to `largest`; the amax of zeros stays 1.
__device__ inline float descale_of(float amax, float largest) {
  return amax == 0 ? 1.0f : __fdiv_rn(fmaxf(amax, 0x1p-112f), largest);
}

// Writes the means of K and the factors of V from the results of all tiles.
__device__ inline void combine_tiles(const Problem& p, const Columns& columns) {
  const int all = columns.heads(p) * p.dim, tiles = tiles_of(p.k.rows);
  for (int i = blockIdx.x * knob::kThreads + threadIdx.x; i < all;
       i += gridDim.x * knob::kThreads) {
    const int head = i / p.dim, column = i - head * p.dim;
    const bool sum = columns.is_sum(p, head);
    const float* words = columns.tiles(p, head) + column;
    float value = 0;
#pragma unroll 8
    for (int tile = 0; tile < tiles; tile++) {
      const float x = words[size_t(tile) * p.dim];
      value = sum ? value + x : fmaxf(value, x);
    }
    const int at = head % p.k.all_heads * p.dim + column;
    value = sum ? __fdiv_rn(value, p.k.rows) : descale_of(value, kLargestE4M3);
    columns.means(p, head)[column] = value;
    (sum ? p.mean_k : p.v.descale)[at] = value;
  }
}

template <int kRowLanes>
__device__ void reduce_columns(const Problem& p, const Columns& columns, GridBarrier& barrier,
                               ColumnBuffer& buffer) {
  const int tiles = tiles_of(p.k.rows), all = columns.heads(p) * tiles;
  for (int i = blockIdx.x; i < all; i += gridDim.x) {
    reduce_tile<kRowLanes>(p, columns, i / tiles, i % tiles, buffer);
  }
  barrier.wait();
  combine_tiles(p, columns);
  barrier.wait();
}
