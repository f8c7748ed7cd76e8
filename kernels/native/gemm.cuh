// The two products of a step: S = Q·K^T and O += P·V.
#pragma once

#include "hopper/wgmma.cuh"
#include "softmax.cuh"
#include "storage.cuh"
#include "wgmma_m64k16.cuh"

namespace native {

// Units of 16 bytes, as descriptors count, in a row of 64 columns.
constexpr int kRowUnits = 8;

// S (64, TILE_N) = Q (64, D) * K (TILE_N, D)^T. Waits for it.
__device__ __forceinline__ void multiply_qk(float (&s)[Sizes::kScores], uint32_t q, uint32_t k) {
  ptx::discard_registers(s);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 16; ++i) {
    const int box = i / 4, column = 2 * (i % 4);
    ptx::wgmma_m64k16<kBf16, 0>(
        s, ptx::wgmma_descriptor_swizzled<128>(q + box * 64 * kRowUnits + column),
        ptx::wgmma_descriptor_swizzled<128>(k + box * Sizes::kBlockN * kRowUnits + column), i > 0);
  }
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>();
  ptx::fence_registers(s);
}

// Issues O (64, D) += P (64, TILE_N) * V (TILE_N, D), 64 columns at a time. wait_pv waits
// for it.
__device__ __forceinline__ void issue_pv(RowState& rows, const Probabilities& p, uint32_t v) {
#pragma unroll
  for (int part = 0; part < Sizes::kParts; ++part) ptx::fence_registers(rows.o[part]);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < Sizes::kBlockN / 16; ++i) {
#pragma unroll
    for (int part = 0; part < Sizes::kParts; ++part) {
      const uint32_t address = v + (part * Sizes::kBlockN + 16 * i) * kRowUnits;
      ptx::wgmma_m64k16<kBf16, 1>(rows.o[part], p.words[i],
                                  ptx::wgmma_descriptor_swizzled<128>(address), true);
    }
  }
  ptx::wgmma_commit_group();
}

__device__ __forceinline__ void wait_pv(RowState& rows) {
  ptx::wgmma_wait_group<0>();
#pragma unroll
  for (int part = 0; part < Sizes::kParts; ++part) ptx::fence_registers(rows.o[part]);
}

}  // namespace native
