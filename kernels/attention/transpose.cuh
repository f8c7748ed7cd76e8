// The transpose of V by the warps of the producer.
#pragma once

#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "../include/wgmma.cuh"
#include "shared_storage.cuh"

namespace attention {

// Blocks of 32 keys that a warp transposes at a time: as many as its registers hold.
template <class Traits>
__device__ __forceinline__ constexpr int transpose_batch(int blocks) {
  using Sizes = TileSizes<Traits>;
  if (Sizes::kProducerRegisters < 40) return 1;
  if (Sizes::kProducerRegisters < 56) return blocks % 2 ? 1 : 2;
  if (blocks < 8) return blocks;
  return Sizes::kConsumers == 1 ? 4 : 2;
}

// 16 columns of V (TILE_N, 16) to 16 rows of V^T (16, TILE_N), by one warp.
template <class Traits>
__device__ __forceinline__ void transpose_columns(unsigned char* v_t, const unsigned char* v,
                                                  int column_block) {
  using Sizes = TileSizes<Traits>;
  constexpr int kKeyBlocks = Sizes::kBlockN / 32, kBatch = transpose_batch<Traits>(kKeyBlocks);
  const int lane = threadIdx.x % 32, row = 16 * column_block + lane % 16;
  const unsigned char* from =
      v + 16 * column_block / Sizes::kRowBytes * Sizes::kBoxBytes +
      swizzled_offset<Sizes::kRowBytes>(lane, column_block % (Sizes::kRowBytes / 16));
#pragma unroll
  for (int first = 0; first < kKeyBlocks; first += kBatch) {
    // Four matrices of 8 keys by 8 column pairs each; lane 4g+t receives pair g of keys 2t and
    // 2t+1.
    uint32_t pairs[kBatch][4];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      ptx::ldmatrix_x4_trans(pairs[i], from + 32 * (first + i) * Sizes::kRowBytes);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const uint32_t(&pair)[4] = pairs[i];
      const int key = 32 * (first + i);
      unsigned char* to =
          v_t + key / Sizes::kPanelKeys * Sizes::kPanelBytes +
          swizzled_offset<Sizes::kPanelKeys>(row, key % Sizes::kPanelKeys / 16 + lane / 16);
      ptx::stmatrix_x4(
          to, __byte_perm(pair[0], pair[1], 0x6420), __byte_perm(pair[0], pair[1], 0x7531),
          __byte_perm(pair[2], pair[3], 0x6420), __byte_perm(pair[2], pair[3], 0x7531));
    }
  }
}

// The same for all blocks of a stage, with constant offsets from two addresses per lane. Blocks of
// 32 keys and of 16 columns lie at constant distances, but for the swizzle: an exclusive or.
template <class Traits>
struct UnrolledTranspose {
  using Sizes = TileSizes<Traits>;
  static constexpr int kChunks = Sizes::kRowBytes / 16;  // 16-byte chunks per row of V
  static constexpr int kKeyBlocks = Sizes::kBlockN / 32;
  static constexpr int kBlocks = Sizes::kHeadDim / 64 * kKeyBlocks;  // of a warp
  static constexpr int kBatch = Traits::kTransposeBatch > 0 ? Traits::kTransposeBatch : 1;
  static_assert(kBlocks % kBatch == 0);
  uint32_t v, v_t;  // shared addresses of the lane's row in stage 0

  __device__ __forceinline__ UnrolledTranspose(const SharedStorage<Traits>& smem, unsigned thread) {
    const int lane = thread % 32, warp = thread / 32;
    v = ptx::shared_address(smem.v) + swizzled_offset<Sizes::kRowBytes>(lane, warp);
    v_t = ptx::shared_address(smem.v_t) +
          swizzled_offset<Sizes::kPanelKeys>(16 * warp + lane % 16, lane / 16);
  }

  // Block i of the warp: 32 keys by the 16 columns of column block warp + 4 * (i / kKeyBlocks).
  __device__ __forceinline__ static constexpr int key(int i) { return i % kKeyBlocks * 32; }
  __device__ __forceinline__ static constexpr int chunk(int i) { return i / kKeyBlocks * 4; }

  __device__ __forceinline__ void run(int stage) const {
    const uint32_t from = v + stage * Sizes::kTileBytes, to = v_t + stage * Sizes::kVtBytes;
#pragma unroll
    for (int first = 0; first < kBlocks; first += kBatch) {
      uint32_t pairs[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) load(pairs[i], from, first + i);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) store(pairs[i], to, first + i);
    }
  }

 private:
  __device__ __forceinline__ static void load(uint32_t (&pairs)[4], uint32_t from, int i) {
    const uint32_t swizzled = chunk(i) % kChunks ? from ^ 64 : from;  // four chunks further
    ptx::ldmatrix_x4_trans(
        pairs, swizzled + chunk(i) / kChunks * Sizes::kBoxBytes + key(i) * Sizes::kRowBytes);
  }
  __device__ __forceinline__ static void store(const uint32_t (&pair)[4], uint32_t to, int i) {
    ptx::stmatrix_x4((to ^ key(i) % Sizes::kPanelKeys) +
                         key(i) / Sizes::kPanelKeys * Sizes::kPanelBytes +
                         16 * chunk(i) * Sizes::kPanelKeys,
                     __byte_perm(pair[0], pair[1], 0x6420), __byte_perm(pair[0], pair[1], 0x7531),
                     __byte_perm(pair[2], pair[3], 0x6420), __byte_perm(pair[2], pair[3], 0x7531));
  }
};

// V of one stage to V^T, by the four warps of the producer.
template <class Traits>
__device__ __forceinline__ void transpose_v(const SharedStorage<Traits>& smem,
                                            const UnrolledTranspose<Traits>& unrolled,
                                            const KvState<Traits>& state, int warp, int lane) {
  using Sizes = TileSizes<Traits>;
  const int stage = state.stage;
  ptx::mbarrier_try_wait_parity(&smem.barriers->v_t_empty[stage], state.phase ^ 1);
  ptx::mbarrier_try_wait_parity(&smem.barriers->v_full[stage], state.phase);
  if constexpr (Traits::kTransposeBatch > 0) {
    unrolled.run(stage);
  } else {
#pragma unroll 1
    for (int block = 0; block < Sizes::kHeadDim / 16; block += 4) {
      transpose_columns<Traits>(smem.v_t + stage * Sizes::kVtBytes,
                                smem.v + stage * Sizes::kTileBytes, block + warp);
    }
  }
  ptx::fence_proxy_async();
  __syncwarp();
  if (lane == 0) {
    ptx::mbarrier_arrive(&smem.barriers->v_t_full[stage]);
    ptx::mbarrier_arrive(&smem.barriers->v_empty[stage]);
  }
}

}  // namespace attention
