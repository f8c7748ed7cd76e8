// The epilogue of a tile: merge the key groups through shared memory, normalise O, store it as
// halves.
//
// The merge buffer takes the place of the pipeline. It has D halves, a row max and a row sum for
// each row of each key group.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "fragments.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace register_scores {

// x / row_sum. A row that attends to no key gives 0; NaN stays NaN.
__device__ __forceinline__ float divide_by_sum(float x, float row_sum) {
  return row_sum > 0.0f ? __fdividef(x, row_sum) : row_sum;
}

constexpr int kChunksO = Sizes::kHeadDim / 32;  // of eight columns, in a lane's part of a row

// Eight adjacent columns of O as halves: one of the chunks of a lane's D/4 columns of a row. D/8 of
// these columns come from the first column of each fragment, then D/8 from the second.
__device__ __forceinline__ uint4 output_chunk(const RowState& rows, int m, int h, int chunk,
                                              float scale) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int n = chunk * 8 + 2 * i, column = 2 * h + n / Sizes::kOutTiles;
    pairs[i] = half2_bits(rows.o[m][n % Sizes::kOutTiles][column] * scale,
                          rows.o[m][n % Sizes::kOutTiles + 1][column] * scale);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// Normalises and stores O of a single key group.
__device__ __forceinline__ void store_output(const RowState& rows, const Scales& scales,
                                             const Problem& problem, const WorkTile& tile,
                                             const Position& at) {
#pragma unroll
  for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float scale = divide_by_sum(scales.descale_v, rows.row_sum(m, h));
      const int row = tile.first_query + (at.row_warp * Sizes::kRowTiles + m) * 16 + at.g + 8 * h;
      if (row >= problem.queries) continue;
      uint4* to = reinterpret_cast<uint4*>(tile.o + static_cast<size_t>(row) * Sizes::kHeadDim +
                                           at.t * (Sizes::kHeadDim / 4));
#pragma unroll
      for (int chunk = 0; chunk < kChunksO; ++chunk) {
        to[chunk] = output_chunk(rows, m, h, chunk, scale);
      }
    }
  }
}

// Writes O of a warp, divided by its own row sums, for the merge: (row tile, half, chunk, lane).
__device__ __forceinline__ void publish_partial(const RowState& rows, const SharedStorage& smem,
                                                const Position& at) {
  uint4* partial = smem.partials + at.warp * (Sizes::kPartialBytes / 16);
#pragma unroll
  for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float row_sum = rows.row_sum(m, h), scale = divide_by_sum(1.0f, row_sum);
      if (at.t == 0) {
        smem.stats[at.warp * Sizes::kRowTiles * 16 + m * 16 + h * 8 + at.g] =
            make_float2(rows.row_max[m][h], row_sum);
      }
#pragma unroll
      for (int chunk = 0; chunk < kChunksO; ++chunk) {
        partial[((m * 2 + h) * kChunksO + chunk) * 32 + at.lane] =
            output_chunk(rows, m, h, chunk, scale);
      }
    }
  }
}

// Merges one chunk of a row over the key groups: their row max, row sum and O. Returns the factor
// that normalises o.
__device__ __forceinline__ float merge_chunk(float (&o)[8],
                                             const float2 (&stats)[Sizes::kKeyWarps],
                                             const uint4 (&partials)[Sizes::kKeyWarps],
                                             const Scales& scales) {
  float row_max = -INFINITY;
#pragma unroll
  for (int k = 0; k < Sizes::kKeyWarps; ++k) row_max = fmaxf(row_max, stats[k].x);
  const float finite_max = row_max == -INFINITY ? 0.0f : row_max;  // avoids inf - inf
  float row_sum = 0.0f;
#pragma unroll
  for (int k = 0; k < Sizes::kKeyWarps; ++k) {
    const float weight =
        stats[k].y * ptx::ex2_approx_ftz((stats[k].x - finite_max) * scales.softmax_scale_log2);
    row_sum += weight;
    const uint32_t pairs[4] = {partials[k].x, partials[k].y, partials[k].z, partials[k].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
      o[2 * i] = fmaf(pair.x, weight, o[2 * i]);
      o[2 * i + 1] = fmaf(pair.y, weight, o[2 * i + 1]);
    }
  }
  return divide_by_sum(scales.descale_v, row_sum);
}

// Merges the key groups and stores O, split over all warps.
__device__ __forceinline__ void merge_key_groups(const Scales& scales, const Problem& problem,
                                                 const WorkTile& tile, const SharedStorage& smem,
                                                 const Position& at) {
  constexpr int kPerWarp = Sizes::kRowTiles * 2 * kChunksO, kItems = Sizes::kRowWarps * kPerWarp;
#pragma unroll
  for (int first = 0; first < kItems; first += Sizes::kWarps) {
    const int item = first + at.warp;
    if (kItems % Sizes::kWarps != 0 && item >= kItems) break;
    const int in_warp = item % kPerWarp, row_warp = item / kPerWarp;
    const int row_in_warp = in_warp / kChunksO * 8 + at.g, chunk = item % kChunksO;
    const float2* stats =
        smem.stats + row_warp * Sizes::kKeyWarps * Sizes::kRowTiles * 16 + row_in_warp;
    const uint4* partials = smem.partials +
                            row_warp * Sizes::kKeyWarps * (Sizes::kPartialBytes / 16) +
                            in_warp * 32 + at.lane;
    float2 stat[Sizes::kKeyWarps];
    uint4 partial[Sizes::kKeyWarps];
#pragma unroll
    for (int k = 0; k < Sizes::kKeyWarps; ++k) {
      stat[k] = stats[k * Sizes::kRowTiles * 16];
      partial[k] = partials[k * (Sizes::kPartialBytes / 16)];
    }
    float o[8] = {};
    const float scale = merge_chunk(o, stat, partial, scales);
    const int row = tile.first_query + row_warp * Sizes::kRowTiles * 16 + row_in_warp;
    if (row >= problem.queries) continue;
    uint4* to = reinterpret_cast<uint4*>(tile.o + static_cast<size_t>(row) * Sizes::kHeadDim +
                                         at.t * (Sizes::kHeadDim / 4));
    to[chunk] =
        make_uint4(half2_bits(o[0] * scale, o[1] * scale), half2_bits(o[2] * scale, o[3] * scale),
                   half2_bits(o[4] * scale, o[5] * scale), half2_bits(o[6] * scale, o[7] * scale));
  }
}

}  // namespace register_scores
