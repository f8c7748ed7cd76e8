// Q of a consumer warpgroup, and the descale factors that are loaded with it.
#pragma once

#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "../include/wgmma.cuh"
#include "form.cuh"
#include "row_state.cuh"
#include "shared_storage.cuh"

#if STAGE7B_MIXED
#include "mixed/query.cuh"
#else

namespace stage7b {

// Q (64, D) as operand A of S = Q·K^T, one product per 32 columns: in registers, or in shared
// memory where O or the number of warpgroups leaves too few registers. Not every wgmma shape has an
// implementation with A in shared memory, so the product is a template that is instantiated on use.
template <bool kInShared>
struct Query;

template <>
struct Query<false> {
  uint32_t words[Sizes::kHeadDim / 32][4];  // (2 rows, D) of a lane

  __device__ __forceinline__ void attach(const SharedStorage&, int, const TensorMap*) {}
  __device__ __forceinline__ void init_barrier() const {}

  __device__ __forceinline__ void load(const Problem& p, const WorkTile& tile) {
    load_query_words(words, p, tile);
  }
  __device__ __forceinline__ void wait() {}

  // s += Q[:, 32i .. 32i+31] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(float (&s)[Sizes::kScores], int i, uint64_t k) const {
    ptx::wgmma_m64k32_e4m3<Sizes::kBlockN>(s, words[i], k, i > 0);
  }
};

template <>
struct Query<true> {
  const TensorMap* map;
  unsigned char* shared;  // (boxes, 64, row bytes)
  uint64_t* full;
  int consumer;
  uint32_t phase = 0;

  __device__ __forceinline__ void attach(const SharedStorage& smem, int index,
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
  __device__ __forceinline__ void load(const Problem& p, const WorkTile& tile) {
    ptx::barrier_sync(1 + consumer, 128);
    if (ptx::opaque(threadIdx.x) % 128 > 0) return;
    ptx::mbarrier_arrive_expect_tx(full, 64 * Sizes::kHeadDim);
    issue_query_load(shared, map, p, tile, consumer * 64, full);
  }
  __device__ __forceinline__ void wait() {
    ptx::mbarrier_try_wait_parity(full, phase);
    phase ^= 1;
  }

  template <int kColumns = Sizes::kBlockN>
  __device__ __forceinline__ void multiply(float (&s)[kColumns / 2], int i, uint64_t k) const {
    const int box = 32 * i / Sizes::kRowBytes, column = 32 * i % Sizes::kRowBytes;
    const uint64_t q = ptx::wgmma_descriptor_swizzled<Sizes::kRowBytes>(
        ptx::descriptor_address(shared) + (box * 64 * Sizes::kRowBytes + column) / 16);
    ptx::wgmma_m64k32_e4m3<kColumns>(s, q, k, i > 0);
  }
};

// The descale factors of a tile. They are loaded with Q and first used when the scores are there,
// or in the epilogue.
struct Descales {
  float q, k, v;

  __device__ __forceinline__ void load(const Problem& p, Head head) {
    q = p.descale_q[head.q], k = p.descale_k[head.kv], v = p.descale_v[head.kv];
  }
};

}  // namespace stage7b

#endif
