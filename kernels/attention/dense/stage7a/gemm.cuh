// The two products of a step: S^T = K·Q^T and V^T·P^T.
#pragma once

#include "../../../include/ptx.cuh"
#include "../../../include/wgmma.cuh"
#include "load.cuh"
#include "tile_sizes.cuh"

namespace stage7a {

// S^T of a step: (key blocks, 64 keys, TILE_M).
struct Scores {
  float s[Sizes::kKeyBlocks][Sizes::kScores];
};

// S^T = K·Q^T. q is the descriptor address of Q.
__device__ __forceinline__ void compute_scores(Scores& scores, const KFragment& k, uint32_t q) {
#pragma unroll
  for (int block = 0; block < Sizes::kKeyBlocks; ++block) ptx::discard_registers(scores.s[block]);
  ptx::wgmma_fence();
#pragma unroll
  for (int block = 0; block < Sizes::kKeyBlocks; ++block) {
#pragma unroll
    for (int part = 0; part < Sizes::kParts; ++part) {
      const uint4 upper = k.words[block][0][part], lower = k.words[block][1][part];
      const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y};
      const uint32_t second[4] = {upper.z, lower.z, upper.w, lower.w};
      const uint32_t address = q + 4 * part * Sizes::kChunkBytes / 16;
      ptx::wgmma_m64k32_e4m3<Sizes::kBlockM>(
          scores.s[block], first,
          ptx::wgmma_descriptor(address, Sizes::kChunkBytes, Sizes::kCoreBytes), part > 0);
      ptx::wgmma_m64k32_e4m3<Sizes::kBlockM>(
          scores.s[block], second,
          ptx::wgmma_descriptor(address + 2 * Sizes::kChunkBytes / 16, Sizes::kChunkBytes,
                                Sizes::kCoreBytes),
          true);
    }
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
#pragma unroll
  for (int block = 0; block < Sizes::kKeyBlocks; ++block) ptx::fence_registers(scores.s[block]);
}

// V^T of a step as operand A: for each warp's keys, each product of 32 keys, and each 64 columns of
// O.
struct VtFragment {
  uint32_t words[Sizes::kWarps][Sizes::kKeyPairs][Sizes::kParts][4];

  // Transposes V on the way from shared memory.
  __device__ __forceinline__ void load(const unsigned char* v, const Lane& lane) {
    const int row = threadIdx.x % 32;  // of the 32 keys of a product, whose address this lane gives
#pragma unroll
    for (int warp = 0; warp < Sizes::kWarps; ++warp) {
#pragma unroll
      for (int pair = 0; pair < Sizes::kKeyPairs; ++pair) {
#pragma unroll
        for (int part = 0; part < Sizes::kParts; ++part) {
          // Four matrices of 8 keys by 8 column pairs; lane 4g+t receives pair g of keys 2t and
          // 2t+1.
          uint32_t pairs[4];
          const int key = 64 * (2 * pair + row / 16) + 16 * warp + row % 16;
          ptx::ldmatrix_x4_trans(
              pairs, v + swizzled_offset<Sizes::kHeadDim>(key, 4 * part + lane.warp));
          uint32_t(&a)[4] = words[warp][pair][part];
          a[0] = __byte_perm(pairs[0], pairs[1], 0x6240);  // column 2g of keys 2t, 2t+8, 2t+1, 2t+9
          a[1] = __byte_perm(pairs[0], pairs[1], 0x7351);  // column 2g+1
          a[2] = __byte_perm(pairs[2], pairs[3], 0x6240);
          a[3] = __byte_perm(pairs[2], pairs[3], 0x7351);
        }
      }
    }
  }
};

// O^T: (parts, 64 columns of O, TILE_M).
struct Output {
  float o[Sizes::kParts][Sizes::kScores];
};

// Issues pv = V^T·P^T. p is the descriptor address of P.
__device__ __forceinline__ void issue_pv(Output& pv, VtFragment& v_t, uint32_t p) {
#pragma unroll
  for (int i = 0; i < Sizes::kWarps * Sizes::kKeyPairs * Sizes::kParts; ++i) {
    ptx::fence_registers(v_t.words[i / (Sizes::kKeyPairs * Sizes::kParts)]
                                  [i / Sizes::kParts % Sizes::kKeyPairs][i % Sizes::kParts]);
  }
#pragma unroll
  for (int part = 0; part < Sizes::kParts; ++part) ptx::discard_registers(pv.o[part]);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < Sizes::kWarps * Sizes::kKeyPairs; ++i) {
    const int warp = i / Sizes::kKeyPairs, pair = i % Sizes::kKeyPairs;
    const uint64_t b = ptx::wgmma_descriptor(p + (8 * pair + 2 * warp) * Sizes::kChunkBytes / 16,
                                             Sizes::kChunkBytes, Sizes::kCoreBytes);
#pragma unroll
    for (int part = 0; part < Sizes::kParts; ++part) {
      ptx::wgmma_m64k32_e4m3<Sizes::kBlockM>(pv.o[part], v_t.words[warp][pair][part], b, i > 0);
    }
  }
  ptx::wgmma_commit_group();
}

__device__ __forceinline__ void wait_pv(Output& pv) {
  ptx::wgmma_wait_group<0>();
#pragma unroll
  for (int part = 0; part < Sizes::kParts; ++part) ptx::fence_registers(pv.o[part]);
}

}  // namespace stage7a
