// The two products of a step: S = Q·K^T and O = O * rescale + P·V.
#pragma once

#include "../include/ptx.cuh"
#include "../include/wgmma.cuh"
#include "row_state.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace attention {

// Issues S (64, TILE_N) = Q (64, D) * K (TILE_N, D)^T. The caller waits for it.
template <class Traits>
__device__ __forceinline__ void issue_scores(Scores<Traits>& s, const Query<Traits>& q,
                                             uint32_t k) {
  using Sizes = TileSizes<Traits>;
  ptx::discard_registers(s);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 32; ++i) {
    const int box = 32 * i / Sizes::kRowBytes, column = 32 * i % Sizes::kRowBytes;
    const uint32_t address = k + (box * Sizes::kBoxBytes + column) / 16;
    q.multiply(s, i, ptx::wgmma_descriptor_swizzled<Sizes::kRowBytes>(address));
  }
  ptx::wgmma_commit_group();
}

// One part of P·V: kPartColumns columns of O. The last part includes the rows of ones below V^T,
// whose column is the row sum of P.
template <class Traits, int kIndex>
struct PvPart {
  using Sizes = TileSizes<Traits>;
  static constexpr bool kLast = kIndex == Sizes::kParts - 1;
  static constexpr int kColumns = kLast ? Sizes::kPartColumns + 8 : Sizes::kPartColumns;
  float step[kColumns / 2];  // P·V of this step alone

  // Issues step (64, kColumns) = P (64, TILE_N) * V (TILE_N, kColumns). The caller waits for it.
  __device__ __forceinline__ void issue(const Probabilities<Traits>& p, uint32_t v_t) {
    v_t += Sizes::kPartColumns / 16 * kIndex * Sizes::kPanelKeys;
    ptx::discard_registers(step);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < Sizes::kBlockN / 32; ++i) {
      const int panel = 32 * i / Sizes::kPanelKeys, column = 32 * i % Sizes::kPanelKeys;
      const uint32_t address = v_t + (panel * Sizes::kPanelBytes + column) / 16;
      const uint64_t b = ptx::wgmma_descriptor_swizzled<Sizes::kPanelKeys>(address);
      ptx::wgmma_m64k32_e4m3<kColumns>(step, p.words[i], b, i > 0);
    }
    ptx::wgmma_commit_group();
  }

  // O = O * rescale + step, and the same for the row sum, in FP32. The caller has waited for the
  // product.
  __device__ __forceinline__ void accumulate(RowState<Traits>& rows) {
    ptx::fence_registers(step);
#pragma unroll
    for (int i = 0; i < Sizes::kPartColumns / 2; ++i) {
      rows.o[kIndex][i] = fmaf(rows.o[kIndex][i], rows.rescale[i / 2 % 2], step[i]);
    }
    if constexpr (kLast) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows.row_sum[half] = fmaf(rows.row_sum[half], rows.rescale[half],
                                  step[Sizes::kPartColumns / 2 + 2 * half]);
      }
    }
  }
};

// Accumulates `part`, which has been issued, and all parts after it. Each part is multiplied while
// the one before is accumulated.
template <class Traits, int kIndex>
__device__ __forceinline__ void accumulate_from(PvPart<Traits, kIndex>& part,
                                                RowState<Traits>& rows,
                                                const Probabilities<Traits>& p, uint32_t v_t) {
  if constexpr (part.kLast) {
    ptx::wgmma_wait_group<0>();
    part.accumulate(rows);
  } else {
    PvPart<Traits, kIndex + 1> next;
    next.issue(p, v_t);
    ptx::wgmma_wait_group<1>();
    part.accumulate(rows);
    accumulate_from(next, rows, p, v_t);
  }
}

// O = O * rescale + P·V, and the row sum with it.
template <class Traits>
__device__ __forceinline__ void multiply_pv(RowState<Traits>& rows, const Probabilities<Traits>& p,
                                            uint32_t v_t) {
  PvPart<Traits, 0> first;
  first.issue(p, v_t);
  accumulate_from(first, rows, p, v_t);
}

}  // namespace attention
