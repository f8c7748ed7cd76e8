// The copies of Q, K and V from global to shared memory, in pieces of 16 bytes by all threads. Rows
// that do not exist are zeros.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "problem.cuh"
#include "storage.cuh"

namespace attention::warp {

// Copies at a time: their addresses take registers, of which head dim 256 has few.
constexpr int kUnrolledCopies = kHeadDim == 256 ? 4 : 64;

// Copies rows [first, first + kRows) of a head, of which those before `end` exist.
template <int kRows>
__device__ __forceinline__ void copy_rows(uint32_t to, const uint16_t* from, int64_t stride,
                                          int first, int end) {
  constexpr int kAll = kRows * kChunks;
  const int thread = ptx::opaque(threadIdx.x);
#pragma unroll kUnrolledCopies
  for (int begin = 0; begin < kAll; begin += kThreads) {
    const int i = begin + thread;
    if (kAll % kThreads != 0 && i >= kAll) break;
    const int row = i / kChunks, chunk = i % kChunks;
    const bool exists = first + row < end;
    const uint16_t* source = from + (exists ? first + row : 0) * stride + chunk * 8;
    ptx::cp_async_cg_16(to + swizzled_offset(row, chunk), source, exists ? 16 : 0);
  }
}

__device__ __forceinline__ void copy_query(const Problem& p, const Tile& tile,
                                           const Storage& storage) {
  copy_rows<kBlockM>(storage.q(), tile.q, p.q_strides.row, tile.first_query, p.queries);
}

__device__ __forceinline__ void copy_k(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  copy_rows<kBlockN>(storage.k(stage), tile.k, p.k_strides.row, n_block * kBlockN, p.keys);
}
__device__ __forceinline__ void copy_v(const Problem& p, const Tile& tile, const Storage& storage,
                                       int n_block, int stage) {
  copy_rows<kBlockN>(storage.v(stage), tile.v, p.v_strides.row, n_block * kBlockN, p.keys);
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

}  // namespace attention::warp
