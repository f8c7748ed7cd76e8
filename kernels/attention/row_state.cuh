// The accumulators of a consumer lane: O, row max and row sum of its two query rows.
#pragma once

#include "../include/ptx.cuh"
#include "online_softmax.cuh"
#include "tile_sizes.cuh"

namespace attention {

// Index of this thread's consumer warpgroup. The shuffle tells the compiler that it is the same for
// all lanes.
template <class Traits>
__device__ __forceinline__ int consumer_index() {
  using Sizes = TileSizes<Traits>;
  return __shfl_sync(0xFFFFFFFF, threadIdx.x / 128 - Sizes::kFirstConsumer / 128, 0);
}

// First row of a consumer warpgroup in the tile.
template <class Traits>
__device__ __forceinline__ constexpr int first_row(int consumer) {
  using Sizes = TileSizes<Traits>;
  return Sizes::kSplitKeys ? 0 : consumer * 64;
}

// Position of a lane in the tile. It is derived again at each use: the mainloop needs the
// registers.
template <class Traits>
struct Lane {
  using Sizes = TileSizes<Traits>;
  int g, t;  // lane 4g + t of its warp
  int row;   // the lane has rows `row` and `row + 8` of the tile

  __device__ __forceinline__ Lane() {
    const unsigned thread = ptx::opaque(threadIdx.x);
    g = thread % 32 / 4, t = thread % 4;
    row = (Sizes::kSplitKeys ? thread / 32 % 4 : thread / 32 - Sizes::kFirstConsumer / 32) * 16 + g;
  }
};

template <class Traits>
struct RowState {
  using Sizes = TileSizes<Traits>;
  float neg_row_max_scaled[2];  // the row max as online_softmax.cuh stores it
  float row_sum[2];
  float o[Sizes::kParts][Sizes::kPartColumns / 2];
  float rescale[2];  // of row_sum and O, before P·V of the last softmax step is added

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) neg_row_max_scaled[half] = kNoRowMax, row_sum[half] = 0.0f;
#pragma unroll
    for (int part = 0; part < Sizes::kParts; ++part) {
#pragma unroll
      for (int i = 0; i < Sizes::kPartColumns / 2; ++i) o[part][i] = 0.0f;
    }
  }
};

}  // namespace attention
