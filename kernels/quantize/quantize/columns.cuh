// Statistics of the columns of a K head, for smooth-K: the sum over the rows, and the extremes after
// the Hadamard transform. Rounding is monotonic, so the extremes give the amax of a head behind the
// subtraction of its means, without a third pass.
#pragma once

#include "tiles.cuh"

constexpr int kMaxDim = 256;
constexpr int kStatistics = 3;  // sum, smallest, largest

// Shared memory for the exchange between warps. The second pass has its results in the first rows.
using ColumnBuffer = float[kWarps][kMaxDim];

__device__ inline float combine(int statistic, float a, float b) {
  return statistic == 0 ? __fadd_rn(a, b) : statistic == 1 ? fminf(a, b) : fmaxf(a, b);
}

__device__ inline float neutral(int statistic) {
  return statistic == 0 ? 0 : statistic == 1 ? INFINITY : -INFINITY;
}

// What a thread knows of its 8 columns.
struct ColumnStatistics {
  Floats of[kStatistics];

  __device__ void clear() {
#pragma unroll
    for (int s = 0; s < kStatistics; s++) {
#pragma unroll
      for (int i = 0; i < kChunkElements; i++) of[s].v[i] = neutral(s);
    }
  }
  __device__ void add(const Floats& x, const Floats& transformed) {
#pragma unroll
    for (int i = 0; i < kChunkElements; i++) {
      of[0].v[i] = combine(0, of[0].v[i], x.v[i]);
      of[1].v[i] = combine(1, of[1].v[i], transformed.v[i]);
      of[2].v[i] = combine(2, of[2].v[i], transformed.v[i]);
    }
  }
  // Combines the threads of the block, in a fixed order, and writes (statistics, dim). All threads
  // take part.
  __device__ void write(const Problem& p, ColumnBuffer& buffer, float* out) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int s = 0; s < kStatistics; s++) {
      __syncthreads();  // the buffer has been read
      Floats x = of[s];
      for (int rows = 1 << p.row_shift; rows < 32; rows *= 2) {
#pragma unroll
        for (int i = 0; i < kChunkElements; i++) {
          x.v[i] = combine(s, x.v[i], __shfl_xor_sync(~0u, x.v[i], rows));
        }
      }
      if (lane >> p.row_shift == 0) {
#pragma unroll
        for (int i = 0; i < kChunkElements; i++) buffer[warp][lane * kChunkElements + i] = x.v[i];
      }
      __syncthreads();
      for (int c = threadIdx.x; c < p.dim; c += knob::kThreads) {
        float value = neutral(s);
        for (int w = 0; w < kWarps; w++) value = combine(s, value, buffer[w][c]);
        out[s * p.dim + c] = value;
      }
    }
  }
};

// Combines the statistics of all blocks of a head, in the order of blocks. The buffer gets the
// means, the smallest and the largest values; `means` too, if it is not null. All threads take part.
__device__ inline void columns_of_head(const Problem& p, const float* columns, const Tile& tile,
                                       ColumnBuffer& buffer, float* means) {
  const unsigned first = p.block_of(tile.first), last = p.block_of(tile.first + tile.count - 1);
  __syncthreads();  // the columns of the previous head have been read
  for (int c = threadIdx.x; c < p.dim; c += knob::kThreads) {
    float value[kStatistics] = {neutral(0), neutral(1), neutral(2)};
    for (unsigned block = first; block <= last; block++) {
      const int start = p.first_tile_of(block);
      if (start == p.first_tile_of(block + 1)) continue;  // a block without tiles
      const int run = max(tile.first, start) - p.k.first_tile;
#pragma unroll
      for (int s = 0; s < kStatistics; s++) {
        value[s] = combine(s, value[s], columns[(run * kStatistics + s) * p.dim + c]);
      }
    }
    const float mean = __fdiv_rn(value[0], p.k.rows);
    buffer[0][c] = mean;
    buffer[1][c] = value[1];
    buffer[2][c] = value[2];
    if (means) means[c] = mean;
  }
  __syncthreads();
}
