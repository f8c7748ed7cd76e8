// Loads: K to registers, V to shared memory by cp.async, Q to shared memory through registers.
#pragma once

#include "../../../include/problem.cuh"
#include "../../../include/ptx.cuh"
#include "../../../include/wgmma.cuh"
#include "tile_sizes.cuh"

namespace stage7a {

// 16 bytes of Q or K. With USE_RELAXED_LOADS ptxas does not delay a load behind those after it.
__device__ __forceinline__ uint4 load_16(const uint8_t* from) {
  if constexpr (knob::kRelaxedLoads) return ptx::ld_relaxed_gpu_16(from);
  return ptx::ld_global_nc_16(from);
}

// K of a step as operand A of S^T = K·Q^T, in the order of the load: lane t of a quad has every
// fourth 16-byte chunk of its rows.
struct KFragment {
  uint4 words[Sizes::kKeyBlocks][2][Sizes::kParts];

  // With kInBounds all keys exist. Otherwise rows beyond the last key read the last one; their
  // scores are masked.
  template <bool kInBounds>
  __device__ __forceinline__ void load(const WorkTile& tile, const Lane& lane, int first_key,
                                       int keys) {
    const int key = first_key + 16 * lane.warp + lane.g;
#pragma unroll
    for (int block = 0; block < Sizes::kKeyBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int offset = 64 * block + 8 * half;
        const unsigned row = kInBounds ? key : max(0, min(key + offset, keys - 1));
        const uint8_t* from = tile.k + static_cast<size_t>(row) * Sizes::kHeadDim + 16 * lane.t +
                              (kInBounds ? offset * Sizes::kHeadDim : 0);  // (D)
#pragma unroll
        for (int part = 0; part < Sizes::kParts; ++part) {
          words[block][half][part] = load_16(from + 64 * part);
        }
      }
    }
  }
};

// V (TILE_N, D) of a step by cp.async. Rows beyond the last key are zeros: P is 0 there, but 0
// times NaN is not.
template <bool kInBounds>
__device__ __forceinline__ void copy_v(unsigned char* v, const WorkTile& tile, int first_key,
                                       int keys) {
  constexpr int kRows = 128 / Sizes::kChunks;  // that 128 threads copy at a time
  const unsigned thread = threadIdx.x % 128, row = thread / Sizes::kChunks,
                 chunk = thread % Sizes::kChunks;
  const uint8_t* from =
      tile.v + static_cast<size_t>(first_key + row) * Sizes::kHeadDim + 16 * chunk;
  unsigned char* to = v + swizzled_offset<Sizes::kHeadDim>(row, chunk);
#pragma unroll
  for (int key = 0; key < Sizes::kBlockN; key += kRows) {
    const bool exists = kInBounds || first_key + static_cast<int>(row) + key < keys;
    ptx::cp_async_cg_16(to + key * Sizes::kHeadDim,
                        exists ? from + key * Sizes::kHeadDim : tile.v, exists ? 16 : 0);
  }
}

template <bool kInBounds>
__device__ __forceinline__ void issue_v_load(unsigned char* v, const WorkTile& tile, int first_key,
                                             int keys) {
  if (kInBounds || first_key + Sizes::kBlockN <= keys) {
    copy_v<true>(v, tile, first_key, keys);
  } else {
    copy_v<false>(v, tile, first_key, keys);
  }
  ptx::cp_async_commit_group();
}

// Q (TILE_M, D) to core matrices, by all threads of the block. Word c of chunk t goes to word t of
// chunk c, the order in which KFragment has its columns.
struct QTile {
  static constexpr unsigned kAllChunks = Sizes::kBlockM * Sizes::kChunks;
  static constexpr int kPerThread = (kAllChunks + Sizes::kThreads - 1) / Sizes::kThreads;
  uint4 words[kPerThread];

  // Rows beyond the last query read the last one; their results are not stored. Threads without a
  // chunk load the last one: no branch precedes a load.
  __device__ __forceinline__ void load(const WorkTile& tile, int queries) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const unsigned chunk = min(i * Sizes::kThreads + threadIdx.x, kAllChunks - 1),
                     row = min(tile.first_query + chunk / Sizes::kChunks, queries - 1);
      words[i] = load_16(tile.q + static_cast<size_t>(row) * Sizes::kHeadDim +
                         16 * (chunk % Sizes::kChunks));
    }
  }

  __device__ __forceinline__ void store(unsigned char* q) const {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const unsigned chunk = i * Sizes::kThreads + threadIdx.x, row = chunk / Sizes::kChunks,
                     part = chunk % Sizes::kChunks / 4, t = chunk % 4;
      if (chunk >= kAllChunks) continue;
      unsigned char* to = q + 4 * part * Sizes::kChunkBytes + row / 8 * Sizes::kCoreBytes +
                          row % 8 * 16 + 4 * t;
      const uint32_t w[4] = {words[i].x, words[i].y, words[i].z, words[i].w};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if constexpr (knob::kRelaxedLoads) {
          ptx::st_relaxed_cta_4(to + c * Sizes::kChunkBytes, w[c]);
        } else {
          *reinterpret_cast<uint32_t*>(to + c * Sizes::kChunkBytes) = w[c];
        }
      }
    }
  }
};

}  // namespace stage7a
