// What a lane holds of Q, K, V, S, P and O: the fragments of mma.sync, and the words of codes that they are made of.
//
// Which number stands where. A product does not care in which order it sums, so the order of each sum is chosen such that every lane loads
// whole words. Lane 4g + t of a warp
//   - holds bytes [t D/4, (t+1) D/4) of the rows g and g + 8 of Q and of the row of K that is column g of a score fragment;
//   - holds bytes [g D/8, (g+1) D/8) of four rows of V, which are the keys of its own scores;
//   - and so ends with the columns [t D/4, (t+1) D/4) of the rows g and g + 8 of O.
// Column c of score fragment j is key 16 (j/2) + 8 (j%2) + c/2, plus 4 and with the lowest bit flipped where c is odd (key_of): in this order
// the rows that a quarter of a warp reads of K or of V lie in different banks, if the swizzle is on.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "../common/e4m3.cuh"
#include "block.cuh"

namespace attention {

constexpr int kScoreTiles = kTileN / 8;  // fragments of scores in a row tile
constexpr int kKeyBlocks = kTileN / 16;  // 16 keys: one operand of P V
constexpr int kOutTiles = kHeadDim / 8;  // fragments of O in a row tile
constexpr int kWordsK = kHeadDim / 16;   // words of a row of Q or K that a lane holds
constexpr int kWordsV = kHeadDim / 32;   // words of a row of V that a lane holds

// The key that column c of score fragment j stands for, from the first of its tile.
__device__ __forceinline__ int key_of(int j, int c) { return 8 * j + (c % 2 == 0 ? c / 2 : 4 + (c / 2 ^ 1)); }

// One row of Q or K as a lane holds it.
struct Words {
  uint32_t w[kWordsK];
};

// Four rows of V as a lane holds them.
struct Values {
  uint32_t w[4][kWordsV];
};

// Q of a warp.
struct Query {
  uint32_t a[kRowTiles][kFp8Mma ? kWordsK / 2 : kWordsK][4];  // operands of the steps over D
};

// S, (16, TILE_N) for each row tile, and then P in its place.
struct Scores {
  float s[kRowTiles][kScoreTiles][4];
};

// O, (16, D) for each row tile, with what the online softmax must know of its rows.
struct Output {
  float o[kRowTiles][kOutTiles + 1][4];  // the last fragment is P times ones: the sums of the rows g and g + 8, in every column
  float max[kRowTiles][2];               // of the rows g and g + 8, in the scores' own unit
};

__device__ __forceinline__ float row_sum(const Output& out, int m, int h) { return out.o[m][kOutTiles][2 * h]; }

__device__ __forceinline__ void clear(Output& out) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) out.max[m][h] = -INFINITY;
#pragma unroll
    for (int n = 0; n <= kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out.o[m][n][i] = 0.0f;
    }
  }
}

// Four codes to halves, by the way that is asked for.
__device__ __forceinline__ uint2 decode4(const Shared& shared, uint32_t codes) {
  if constexpr (kKvLut) {
    return e4m3::decode4_by_table(codes, shared.table);
  } else {
    return e4m3::decode4(codes);
  }
}

// Two numbers as halves in one word.
__device__ __forceinline__ uint32_t half2_bits(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace attention
