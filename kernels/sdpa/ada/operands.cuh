// The operands of the two products on their way from memory to registers: Q from global memory, K and V from there or from the ring.
//
// The sources of K (GlobalKeys, RingKeys) give a lane one row for each score fragment, those of V (GlobalValues, RingValues) four rows for each 16
// keys. The products ask by get() and do not know which source it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../common/problem.cuh"
#include "block.cuh"
#include "fragments.cuh"
#include "ring.cuh"

namespace attention {

// Words side by side in global memory.
template <int kCount>
__device__ __forceinline__ void load_words(uint32_t (&words)[kCount], const uint8_t* from) {
  if constexpr (kCount % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const uint4 x = __ldg(reinterpret_cast<const uint4*>(from + 4 * i));
      words[i] = x.x, words[i + 1] = x.y, words[i + 2] = x.z, words[i + 3] = x.w;
    }
  } else {
    const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
    words[0] = x.x, words[1] = x.y;
  }
}

// The same of a row that may not be there, and is zeros then.
template <int kCount>
__device__ __forceinline__ void load_words_if(bool there, uint32_t (&words)[kCount], const uint8_t* from) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) words[i] = 0;
  if (there) load_words(words, from);
}

// The rows of Q that a lane holds parts of, as codes.
struct QueryCodes {
  Words rows[kRowTiles][2];  // g and g + 8

  __device__ __forceinline__ void load(const Problem& problem, const Tile& tile, const Place& at) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = tile.first_query + (at.row_warp * kRowTiles + m) * 16 + at.g + 8 * h;
        load_words_if(row < problem.queries, rows[m][h].w, tile.q + static_cast<size_t>(row) * kHeadDim + at.t * (kHeadDim / 4));
      }
    }
  }

  __device__ __forceinline__ Query operands(const Shared& shared) const {
    Query query;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const Words &top = rows[m][0], &bottom = rows[m][1];
#pragma unroll
      for (int i = 0; i < kWordsK; i += kFp8Mma ? 2 : 1) {
        if constexpr (kFp8Mma) {
          uint32_t(&a)[4] = query.a[m][i / 2];
          a[0] = top.w[i], a[1] = bottom.w[i], a[2] = top.w[i + 1], a[3] = bottom.w[i + 1];
        } else {
          const uint2 x = decode4(shared, top.w[i]), y = decode4(shared, bottom.w[i]);
          uint32_t(&a)[4] = query.a[m][i];
          a[0] = x.x, a[1] = y.x, a[2] = x.y, a[3] = y.y;
        }
      }
    }
    return query;
  }
};

// The K of one tile of keys: in registers already, or still in the ring. From global memory a whole tile is loaded without a question, since every
// question would stand before a load.
struct GlobalKeys {
  Words k[kScoreTiles];

  __device__ __forceinline__ void load(const uint8_t* keys, int first, int count, const Place& at) {
    const uint8_t* from = keys + static_cast<size_t>(first + key_of(0, at.g)) * kHeadDim + at.t * (kHeadDim / 4);
    if (first + kTileN <= count) {
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) load_words(k[j].w, from + 8 * j * kHeadDim);
    } else {
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) load_words_if(first + key_of(j, at.g) < count, k[j].w, from + 8 * j * kHeadDim);
    }
  }
  __device__ __forceinline__ Words get(int j, const Place&) const { return k[j]; }
};

struct GlobalValues {
  Values v[kKeyBlocks];

  __device__ __forceinline__ void load(const uint8_t* values, int first, int count, const Place& at) {
    const int key[2] = {first + key_of(0, 2 * at.t), first + key_of(0, 2 * at.t + 1)};
    const uint8_t* from[2] = {values + static_cast<size_t>(key[0]) * kHeadDim + at.g * (kHeadDim / 8),
                              values + static_cast<size_t>(key[1]) * kHeadDim + at.g * (kHeadDim / 8)};
    if (first + kTileN <= count) {
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) load_words(v[j / 2].w[j % 2 * 2 + i], from[i] + 8 * j * kHeadDim);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) load_words_if(key[i] + 8 * j < count, v[j / 2].w[j % 2 * 2 + i], from[i] + 8 * j * kHeadDim);
      }
    }
  }
  __device__ __forceinline__ Values get(int b, const Place&) const { return v[b]; }
};

struct RingKeys {
  const uint8_t* tile;
  int first_row;

  __device__ __forceinline__ Words get(int j, const Place& at) const {
    Words words;
    const int row = first_row + key_of(j, at.g);
#pragma unroll
    for (int i = 0; i < kWordsK; i += 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(tile + ring_offset(row, at.t * (kWordsK / 4) + i / 4));
      words.w[i] = x.x, words.w[i + 1] = x.y, words.w[i + 2] = x.z, words.w[i + 3] = x.w;
    }
    return words;
  }
};

struct RingValues {
  const uint8_t* tile;
  int first_row;

  __device__ __forceinline__ Values get(int b, const Place& at) const {
    Values values;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + key_of(2 * b + i / 2, 2 * at.t + i % 2);
      const int byte = at.g * (kHeadDim / 8);
      const uint8_t* from = tile + ring_offset(row, byte / 16) + byte % 16;
      if constexpr (kWordsV == 4) {
        const uint4 x = *reinterpret_cast<const uint4*>(from);
        values.w[i][0] = x.x, values.w[i][1] = x.y, values.w[i][2] = x.z, values.w[i][3] = x.w;
      } else {
        const uint2 x = *reinterpret_cast<const uint2*>(from);
        values.w[i][0] = x.x, values.w[i][1] = x.y;
      }
    }
    return values;
  }
};

}  // namespace attention
