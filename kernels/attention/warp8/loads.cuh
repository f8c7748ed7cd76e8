// The copies of Q, K and V from global to shared memory, in pieces of 16 bytes by all threads. Rows
// that do not exist are zeros.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "include/swizzled_rows.cuh"
#include "problem.cuh"
#include "storage.cuh"

namespace attention::warp8 {

// Copies rows [first, first + kRows) of a head, of which those before `end` exist.
template <int kRows, int kRowBytes>
__device__ __forceinline__ void copy_head(uint32_t to, const uint8_t* from, int64_t stride,
                                          unsigned first, int end) {
  // Copies at a time: their addresses take registers, of which head dim 256 has few.
  constexpr int kUnrolled = kHeadDim == 256 ? 4 : 64;
  for_pieces<kRows, kRowBytes, kThreads, kUnrolled>(
      ptx::opaque(threadIdx.x), [&](unsigned row, unsigned chunk) {
        const bool exists = first + row < static_cast<unsigned>(end);
        const uint8_t* source = from + (exists ? first + row : 0) * stride + 16 * chunk;
        ptx::cp_async_cg_16(to + SwizzledRows<kRowBytes>::offset(row, chunk), source,
                            exists ? 16 : 0);
      });
}

__device__ __forceinline__ void copy_query(const Problem& p, const Tile& tile,
                                           const Storage& storage) {
  copy_head<kBlockM, kQkRowBytes>(storage.q(), tile.q, p.q_strides.row, tile.first_query,
                                  p.queries);
}

// K of a step and the factors of its keys. Groups behind the last one have its factors: those of
// masked scores are positive too.
__device__ __forceinline__ void copy_k(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  copy_head<kBlockN, kQkRowBytes>(storage.k(stage), tile.k, p.k_strides.row, n_block * kBlockN,
                                  p.keys);
  if constexpr (!kE4M3Qk) {
    const int thread = ptx::opaque(threadIdx.x);
    if (thread < kKeyGroups) {
      const int group = min(n_block * kBlockN / kFactorKeys + thread, p.key_groups() - 1);
      ptx::cp_async_cg_16(storage.factors(stage) + 16 * thread,
                          tile.descale_k + kKFactors * group, 16);
    }
  }
}
__device__ __forceinline__ void copy_v(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  copy_head<kBlockN, kVRowBytes>(storage.v(stage), tile.v, p.v_strides.row, n_block * kBlockN,
                                 p.keys);
}

// K and V of a step into a stage: one group, also where there is no such step, so that the groups
// of later steps can be counted.
__device__ __forceinline__ void copy_step(const Problem& p, const Tile& tile,
                                          const Storage& storage, int n_block, int stage) {
  if (n_block >= 0) {
    copy_k(p, tile, storage, n_block, stage);
    copy_v(p, tile, storage, n_block, stage);
  }
  ptx::cp_async_commit_group();
}

}  // namespace attention::warp8
