// The copies of Q, K and V from global to shared memory, in pieces of 16 bytes by all threads. Rows
// that do not exist are zeros.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "problem.cuh"
#include "storage.cuh"

namespace attention::warp8 {

// Copies rows [first, first + kRows) of a head, of which those before `end` exist.
template <int kRows, int kRowBytes>
__device__ __forceinline__ void copy_rows(uint32_t to, const uint8_t* from, int64_t stride,
                                          int first, int end) {
  using Layout = RowLayout<kRowBytes>;
  constexpr int kAll = kRows * Layout::kChunks;
  // Copies at a time: their addresses take registers, of which head dim 256 has few.
  constexpr int kUnrolled = kHeadDim == 256 ? 4 : 64;
  const int thread = ptx::opaque(threadIdx.x);
#pragma unroll kUnrolled
  for (int begin = 0; begin < kAll; begin += kThreads) {
    const int i = begin + thread;
    if (kAll % kThreads != 0 && i >= kAll) break;
    const int row = i / Layout::kChunks, chunk = i % Layout::kChunks;
    const bool exists = first + row < end;
    const uint8_t* source = from + (exists ? first + row : 0) * stride + chunk * 16;
    ptx::cp_async_cg_16(to + Layout::offset(row, chunk), source, exists ? 16 : 0);
  }
}

__device__ __forceinline__ void copy_query(const Problem& p, const Tile& tile,
                                           const Storage& storage) {
  copy_rows<kBlockM, kQkRowBytes>(storage.q(), tile.q, p.q_strides.row, tile.first_query,
                                  p.queries);
}

// K of a step and the factors of its keys. Groups behind the last one have its factors: those of
// masked scores are positive too.
__device__ __forceinline__ void copy_k(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  copy_rows<kBlockN, kQkRowBytes>(storage.k(stage), tile.k, p.k_strides.row, n_block * kBlockN,
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
  copy_rows<kBlockN, kVRowBytes>(storage.v(stage), tile.v, p.v_strides.row, n_block * kBlockN,
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
