// The end of a tile: the O of all key groups, each over its own keys, become one O, which goes to global memory as halves.
//
// They meet in shared memory, in the place of the ring: (D) halves, a maximum and a sum for each row of each key group. With one key group there is
// nothing to merge.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "block.cuh"
#include "fragments.cuh"

namespace attention {

// What the numbers of a row are multiplied with in the end. A row that sees no key gives zeros; NaN stays.
__device__ __forceinline__ float over_sum(float x, float sum) { return sum > 0.0f ? __fdividef(x, sum) : sum; }

// Eight numbers of O, side by side, as halves: piece `piece` of a lane's D/4 numbers of a row. D/8 of those come from the first column of each
// fragment, and then D/8 from the second.
__device__ __forceinline__ uint4 halves_of(const Output& out, int m, int h, int piece, float factor) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = piece * 8 + 2 * i, column = 2 * h + n / kOutTiles;
    pairs[i] = half2_bits(out.o[m][n % kOutTiles][column] * factor, out.o[m][n % kOutTiles + 1][column] * factor);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

constexpr int kPieces = kHeadDim / 32;  // of eight numbers, in a lane's part of a row

// With one key group there is nothing to merge.
__device__ __forceinline__ void store_alone(const Output& out, const Factors& factors, const Problem& problem, const Tile& tile, const Place& at) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = over_sum(factors.out, row_sum(out, m, h));
      const int row = tile.first_query + (at.row_warp * kRowTiles + m) * 16 + at.g + 8 * h;
      if (row >= problem.queries) continue;
      uint4* to = reinterpret_cast<uint4*>(tile.o + static_cast<size_t>(row) * kHeadDim + at.t * (kHeadDim / 4));
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) to[piece] = halves_of(out, m, h, piece, factor);
    }
  }
}

// With several, every warp leaves its part in shared memory, divided by its own sum and in an order of its own: (row tile, half, piece, lane).
__device__ __forceinline__ void leave_partial(const Output& out, const Shared& shared, const Place& at) {
  uint4* partial = shared.partials + at.warp * (kPartialBytes / 16);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = row_sum(out, m, h), factor = over_sum(1.0f, sum);
      if (at.t == 0) shared.stats[at.warp * kRowTiles * 16 + m * 16 + h * 8 + at.g] = make_float2(out.max[m][h], sum);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) partial[((m * 2 + h) * kPieces + piece) * 32 + at.lane] = halves_of(out, m, h, piece, factor);
    }
  }
}

// And all take a share of what is to be merged.
__device__ __forceinline__ void merge(const Factors& factors, const Problem& problem, const Tile& tile, const Shared& shared, const Place& at) {
  constexpr int kItems = kRowWarps * kRowTiles * 2 * kPieces;
#pragma unroll
  for (int first = 0; first < kItems; first += kWarps) {
    const int item = first + at.warp;
    if (kItems % kWarps != 0 && item >= kItems) break;
    const int in_warp = item % (kRowTiles * 2 * kPieces), row_warp = item / (kRowTiles * 2 * kPieces);
    const int row_in_warp = in_warp / kPieces * 8 + at.g, piece = item % kPieces;
    const float2* stats = shared.stats + row_warp * kKeyWarps * kRowTiles * 16 + row_in_warp;
    const uint4* partials = shared.partials + row_warp * kKeyWarps * (kPartialBytes / 16) + in_warp * 32 + at.lane;
    float2 stat[kKeyWarps];
    uint4 part[kKeyWarps];
#pragma unroll
    for (int k = 0; k < kKeyWarps; ++k) stat[k] = stats[k * kRowTiles * 16], part[k] = partials[k * (kPartialBytes / 16)];
    float top = -INFINITY;
#pragma unroll
    for (int k = 0; k < kKeyWarps; ++k) top = fmaxf(top, stat[k].x);
    const float base = top == -INFINITY ? 0.0f : top;
    float sum = 0.0f, x[8] = {};
#pragma unroll
    for (int k = 0; k < kKeyWarps; ++k) {
      const float weight = stat[k].y * ptx::ex2_approx_ftz((stat[k].x - base) * factors.scores_log2);
      sum += weight;
      const uint32_t pairs[4] = {part[k].x, part[k].y, part[k].z, part[k].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 y = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
        x[2 * i] = fmaf(y.x, weight, x[2 * i]);
        x[2 * i + 1] = fmaf(y.y, weight, x[2 * i + 1]);
      }
    }
    const float factor = over_sum(factors.out, sum);
    const int row = tile.first_query + row_warp * kRowTiles * 16 + row_in_warp;
    if (row >= problem.queries) continue;
    uint4* to = reinterpret_cast<uint4*>(tile.o + static_cast<size_t>(row) * kHeadDim + at.t * (kHeadDim / 4));
    to[piece] = make_uint4(half2_bits(x[0] * factor, x[1] * factor), half2_bits(x[2] * factor, x[3] * factor),
                           half2_bits(x[4] * factor, x[5] * factor), half2_bits(x[6] * factor, x[7] * factor));
  }
}

}  // namespace attention
