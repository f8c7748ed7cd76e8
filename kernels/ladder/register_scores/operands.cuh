// Operands to registers: Q from global memory, K and V from there or from the pipeline.
//
// A K source (KFromGlobal, KFromShared) gives a lane one row per score fragment; a V source
// (VFromGlobal, VFromShared) gives it four rows per 16 keys. The products are templates over the
// source.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../../include/problem.cuh"
#include "fragments.cuh"
#include "kv_stages.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace register_scores {

// Adjacent words from global memory.
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

// The same for a row that may not exist; then the words are zeros.
template <int kCount>
__device__ __forceinline__ void load_words_if(bool exists, uint32_t (&words)[kCount],
                                              const uint8_t* from) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) words[i] = 0;
  if (exists) load_words(words, from);
}

// The codes of a lane's rows of Q.
struct QCodes {
  RowWords rows[Sizes::kRowTiles][2];  // g and g + 8

  __device__ __forceinline__ void load(const Problem& problem, const WorkTile& tile,
                                       const Position& at) {
#pragma unroll
    for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row =
            tile.first_query + (at.row_warp * Sizes::kRowTiles + m) * 16 + at.g + 8 * h;
        load_words_if(row < problem.queries, rows[m][h].w,
                      tile.q + static_cast<size_t>(row) * Sizes::kHeadDim +
                          at.t * (Sizes::kHeadDim / 4));
      }
    }
  }

  __device__ __forceinline__ QFragment operands(const SharedStorage& smem) const {
    QFragment q;
#pragma unroll
    for (int m = 0; m < Sizes::kRowTiles; ++m) {
      const RowWords &upper = rows[m][0], &lower = rows[m][1];
#pragma unroll
      for (int i = 0; i < Sizes::kWordsK; i += knob::kFp8Mma ? 2 : 1) {
        if constexpr (knob::kFp8Mma) {
          uint32_t(&a)[4] = q.a[m][i / 2];
          a[0] = upper.w[i], a[1] = lower.w[i], a[2] = upper.w[i + 1], a[3] = lower.w[i + 1];
        } else {
          const uint2 x = decode4(smem, upper.w[i]), y = decode4(smem, lower.w[i]);
          uint32_t(&a)[4] = q.a[m][i];
          a[0] = x.x, a[1] = y.x, a[2] = x.y, a[3] = y.y;
        }
      }
    }
    return q;
  }
};

// K of one tile, loaded to registers. A tile whose keys all exist is loaded without bounds checks:
// each check would delay its load.
struct KFromGlobal {
  RowWords k[Sizes::kScoreTiles];

  __device__ __forceinline__ void load(const uint8_t* keys, int first, int count,
                                       const Position& at) {
    const uint8_t* from = keys + static_cast<size_t>(first + key_of(0, at.g)) * Sizes::kHeadDim +
                          at.t * (Sizes::kHeadDim / 4);
    if (first + Sizes::kBlockN <= count) {
#pragma unroll
      for (int j = 0; j < Sizes::kScoreTiles; ++j) {
        load_words(k[j].w, from + 8 * j * Sizes::kHeadDim);
      }
    } else {
#pragma unroll
      for (int j = 0; j < Sizes::kScoreTiles; ++j) {
        load_words_if(first + key_of(j, at.g) < count, k[j].w, from + 8 * j * Sizes::kHeadDim);
      }
    }
  }
  __device__ __forceinline__ RowWords get(int j, const Position&) const { return k[j]; }
};

struct VFromGlobal {
  VWords v[Sizes::kKeyBlocks];

  __device__ __forceinline__ void load(const uint8_t* values, int first, int count,
                                       const Position& at) {
    const int key[2] = {first + key_of(0, 2 * at.t), first + key_of(0, 2 * at.t + 1)};
    const uint8_t* from[2] = {
        values + static_cast<size_t>(key[0]) * Sizes::kHeadDim + at.g * (Sizes::kHeadDim / 8),
        values + static_cast<size_t>(key[1]) * Sizes::kHeadDim + at.g * (Sizes::kHeadDim / 8)};
    if (first + Sizes::kBlockN <= count) {
#pragma unroll
      for (int j = 0; j < Sizes::kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          load_words(v[j / 2].w[j % 2 * 2 + i], from[i] + 8 * j * Sizes::kHeadDim);
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < Sizes::kScoreTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          load_words_if(key[i] + 8 * j < count, v[j / 2].w[j % 2 * 2 + i],
                        from[i] + 8 * j * Sizes::kHeadDim);
        }
      }
    }
  }
  __device__ __forceinline__ VWords get(int b, const Position&) const { return v[b]; }
};

// K of one tile, in a stage of the pipeline.
struct KFromShared {
  const uint8_t* tile;
  int first_row;

  __device__ __forceinline__ RowWords get(int j, const Position& at) const {
    RowWords words;
    const int row = first_row + key_of(j, at.g);
#pragma unroll
    for (int i = 0; i < Sizes::kWordsK; i += 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(
          tile + staged_offset(row, at.t * (Sizes::kWordsK / 4) + i / 4));
      words.w[i] = x.x, words.w[i + 1] = x.y, words.w[i + 2] = x.z, words.w[i + 3] = x.w;
    }
    return words;
  }
};

struct VFromShared {
  const uint8_t* tile;
  int first_row;

  __device__ __forceinline__ VWords get(int b, const Position& at) const {
    VWords values;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + key_of(2 * b + i / 2, 2 * at.t + i % 2);
      const int byte = at.g * (Sizes::kHeadDim / 8);
      const uint8_t* from = tile + staged_offset(row, byte / 16) + byte % 16;
      if constexpr (Sizes::kWordsV == 4) {
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

}  // namespace register_scores
