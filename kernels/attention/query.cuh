// Q of a consumer warpgroup, and the descale factors that are loaded with it.
#pragma once

#include <type_traits>

#include "../include/problem.cuh"
#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "../include/wgmma.cuh"
#include "row_state.cuh"
#include "shared_storage.cuh"

namespace attention {

// Q (64, D) as operand A of S = Q·K^T, one product per 32 columns: in registers, or in shared
// memory where O or the number of warpgroups leaves too few registers.
template <class Traits>
struct QueryInRegisters {
  using Sizes = TileSizes<Traits>;
  uint32_t words[Sizes::kHeadDim / 32][4];  // (2 rows, D) of a lane

  __device__ __forceinline__ void attach(const SharedStorage<Traits>&, int, const TensorMap*) {}
  __device__ __forceinline__ void init_barrier() const {}

  __device__ __forceinline__ void load(const Problem<Traits>& p, const WorkTile<Traits>& tile) {
    Traits::Loads::load_query_words(words, p, tile);
  }
  __device__ __forceinline__ void wait() {}

  // s += Q[:, 32i .. 32i+31] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(Scores<Traits>& s, int i, uint64_t k) const {
    ptx::wgmma_m64k32_e4m3<Sizes::kBlockN>(s, words[i], k, i > 0);
  }
};

template <class Traits>
struct QueryInShared {
  using Sizes = TileSizes<Traits>;
  const TensorMap* map;
  unsigned char* shared;  // (boxes, 64, row bytes)
  uint64_t* full;
  int consumer;
  uint32_t phase = 0;

  __device__ __forceinline__ void attach(const SharedStorage<Traits>& smem, int index,
                                         const TensorMap* tensor_map) {
    map = tensor_map;
    shared = smem.q + index * 64 * Sizes::kHeadDim;
    full = &smem.barriers->q_full[index];
    consumer = index;
  }

  // For a load before the block-wide barrier. Threads wait for that load after the barrier, so they
  // see an initialised mbarrier.
  __device__ __forceinline__ void init_barrier() const {
    if (threadIdx.x % 128 > 0) return;
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
  }

  // Issues the TMA loads once all warps have read Q of the previous tile. Rows beyond the last
  // query are zeros, or those of another sequence; their results are not stored.
  __device__ __forceinline__ void load(const Problem<Traits>& p, const WorkTile<Traits>& tile) {
    ptx::barrier_sync(1 + consumer, 128);
    if (ptx::opaque(threadIdx.x) % 128 > 0) return;
    ptx::mbarrier_arrive_expect_tx(full, 64 * Sizes::kHeadDim);
    Traits::Loads::issue_query(shared, map, p, tile, consumer * 64, full);
  }
  __device__ __forceinline__ void wait() {
    ptx::mbarrier_try_wait_parity(full, phase);
    phase ^= 1;
  }

  __device__ __forceinline__ void multiply(Scores<Traits>& s, int i, uint64_t k) const {
    const int box = 32 * i / Sizes::kRowBytes, column = 32 * i % Sizes::kRowBytes;
    const uint64_t q = ptx::wgmma_descriptor_swizzled<Sizes::kRowBytes>(
        ptx::descriptor_address(shared) + (box * 64 * Sizes::kRowBytes + column) / 16);
    ptx::wgmma_m64k32_e4m3<Sizes::kBlockN>(s, q, k, i > 0);
  }
};

// The descale factors of a tile. They are loaded with Q and first used when the scores are there,
// or in the epilogue.
struct HeadDescales {
  float q, k, v;

  __device__ __forceinline__ void load(const ::Problem& p, Head head) {
    q = p.descale_q[head.q], k = p.descale_k[head.kv], v = p.descale_v[head.kv];
  }
};

}  // namespace attention
