// The two products of a step: S = Q·K^T and O += P·V.
#pragma once

#include "include/wgmma.cuh"
#include "include/wgmma_m64k16.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::native {

// Units of 16 bytes, as descriptors count, in a row of 64 columns.
constexpr int kRowUnits = 8;

// The low half of the descriptor of V with the columns of ones behind it: the leading distance is
// that from its rows to the ones.
__device__ __forceinline__ uint32_t with_ones(uint32_t v, uint32_t ones) {
  return v + ((ones - v) << 16);
}
// The same some rows on.
__device__ __forceinline__ uint64_t wgmma_descriptor_with_ones(uint32_t v_and_ones, int rows) {
  const int units = rows * kRowUnits;
  return ptx::wgmma_descriptor(v_and_ones + (units - (units << 16)), 0, 1024) | 1ull << 62;
}

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

// Issues O (64, D) += P (64, TILE_N) * V (TILE_N, D), 64 columns at a time, the last of them with
// the columns of ones, whose product is the row sum of P. wait_pv waits for it.
__device__ __forceinline__ void issue_pv(Rows& rows, const Probabilities& p, uint32_t v,
                                         uint32_t v_and_ones) {
  rows.fence();
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < Sizes::kBlockN / 16; ++i) {
#pragma unroll
    for (int part = 0; part < Sizes::kParts; ++part) {
      const int row = part * Sizes::kBlockN + 16 * i;
      if (part < Sizes::kParts - 1) {
        ptx::wgmma_m64k16<kBf16, 1>(
            rows.o[part], p.words[i],
            ptx::wgmma_descriptor_swizzled<128>(v + row * kRowUnits), true);
      } else {
        ptx::wgmma_m64n72k16<kBf16>(rows.o[part], rows.sums, p.words[i],
                                    wgmma_descriptor_with_ones(v_and_ones, row));
      }
    }
  }
  ptx::wgmma_commit_group();
}

__device__ __forceinline__ void wait_pv(Rows& rows) {
  ptx::wgmma_wait_group<0>();
  rows.fence();
}

}  // namespace attention::native
