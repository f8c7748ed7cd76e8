// What a lane has of Q, K, V, S, P and O: fragments of mma.sync, and the words of codes behind
// them.
//
// A product may sum in any order, so the order of each sum is chosen such that every lane loads
// whole words. Lane 4g + t of a warp
//   - has bytes [t D/4, (t+1) D/4) of rows g and g + 8 of Q, and of the row of K that is column g
//     of a score fragment;
//   - has bytes [g D/8, (g+1) D/8) of four rows of V, which are the keys of its own scores;
//   - so it ends with columns [t D/4, (t+1) D/4) of rows g and g + 8 of O.
// Column c of score fragment j is key 16 (j/2) + 8 (j%2) + c/2, plus 4 and with the lowest bit
// flipped if c is odd (key_of). With the swizzle, the rows of K or V that a quarter of a warp reads
// in this order lie in different banks.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "../../include/e4m3.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace register_scores {

// The key of column c of score fragment j, from the first key of the tile.
__device__ __forceinline__ int key_of(int j, int c) {
  return 8 * j + (c % 2 == 0 ? c / 2 : 4 + (c / 2 ^ 1));
}

// A lane's part of one row of Q or K.
struct RowWords {
  uint32_t w[Sizes::kWordsK];
};

// A lane's part of four rows of V.
struct VWords {
  uint32_t w[4][Sizes::kWordsV];
};

// Q of a warp, as operand A.
struct QFragment {
  uint32_t a[Sizes::kRowTiles][knob::kFp8Mma ? Sizes::kWordsK / 2 : Sizes::kWordsK][4];
};

// S (16, TILE_N) of each row tile, replaced by P.
struct Scores {
  float s[Sizes::kRowTiles][Sizes::kScoreTiles][4];
};

// O (16, D) of each row tile, with the row max and row sum of the online softmax.
struct RowState {
  // The last fragment is P times ones: the row sums of rows g and g + 8, in every column.
  float o[Sizes::kRowTiles][Sizes::kOutTiles + 1][4];
  float row_max[Sizes::kRowTiles][2];  // of rows g and g + 8, not scaled

  __device__ __forceinline__ float row_sum(int m, int h) const {
    return o[m][Sizes::kOutTiles][2 * h];
  }
};

__device__ __forceinline__ void clear(RowState& rows) {
#pragma unroll
  for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) rows.row_max[m][h] = -INFINITY;
#pragma unroll
    for (int n = 0; n <= Sizes::kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rows.o[m][n][i] = 0.0f;
    }
  }
}

// Four codes to halves, by table lookup with USE_KV_LUT.
__device__ __forceinline__ uint2 decode4(const SharedStorage& smem, uint32_t codes) {
  if constexpr (knob::kKvLut) {
    return e4m3::decode4_lookup(codes, smem.table);
  } else {
    return e4m3::decode4(codes);
  }
}

// Two values as halves in one word.
__device__ __forceinline__ uint32_t half2_bits(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace register_scores
