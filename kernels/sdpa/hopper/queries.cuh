// Q of a warpgroup where the queries are the rows, and the factors that come with it.
#pragma once

#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "knobs.cuh"
#include "ring.cuh"
#include "rows.cuh"
#include "softmax.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace attention {

constexpr int kScores = kKeys / 2;  // that a lane has

// (64, D) of Q, as the first operand of a product for every 32 columns: in the lanes' registers, or in shared memory where those are needed. Not all
// products exist with the operand there, so that theirs is a template: where it is not used, it is not made.
template <bool kInShared>
struct Queries;

template <>
struct Queries<false> {
  uint32_t words[knob::kHeadDim / 32][4];  // (2 rows, D) of a lane

  __device__ __forceinline__ void place(const Ring&, int, const TensorMap*) {}
  __device__ __forceinline__ void initialize() const {}

  // Rows behind the last are read as the last, and not written.
  __device__ __forceinline__ void ask(const Tile& tile, int queries) {
    const Lane lane;
    const uint8_t* upper = tile.q + static_cast<size_t>(min(tile.first_query + lane.row, queries - 1)) * knob::kHeadDim + 4 * lane.t;
    const uint8_t* lower = tile.q + static_cast<size_t>(min(tile.first_query + lane.row + 8, queries - 1)) * knob::kHeadDim + 4 * lane.t;
#pragma unroll
    for (int i = 0; i < knob::kHeadDim / 32; ++i) {
      words[i][0] = *reinterpret_cast<const uint32_t*>(upper + 32 * i);
      words[i][1] = *reinterpret_cast<const uint32_t*>(lower + 32 * i);
      words[i][2] = *reinterpret_cast<const uint32_t*>(upper + 32 * i + 16);
      words[i][3] = *reinterpret_cast<const uint32_t*>(lower + 32 * i + 16);
    }
  }
  __device__ __forceinline__ void wait() {}

  __device__ __forceinline__ void multiply(float (&s)[kScores], int i, uint64_t k) const { ptx::wgmma_m64k32_e4m3<kKeys>(s, words[i], k, i > 0); }
};

template <>
struct Queries<true> {
  const TensorMap* map;
  unsigned char* shared;  // (boxes, 64, row bytes)
  uint64_t* full;
  int group;
  uint32_t phase = 0;

  __device__ __forceinline__ void place(const Ring& ring, int of, const TensorMap* tensor) {
    map = tensor, shared = ring.q + of * 64 * knob::kHeadDim, full = &ring.barrier->q_full[of], group = of;
  }

  // Where it is asked for before the block has met. Those who wait for it have met.
  __device__ __forceinline__ void initialize() const {
    if (threadIdx.x % 128 > 0) return;
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
  }

  // By tensor copies, when all warps have read those of the tile before. Rows behind the last are zeros, and not written.
  __device__ __forceinline__ void ask(const Tile& tile, int) {
    ptx::barrier_sync(1 + group, 128);
    if (ptx::opaque(threadIdx.x) % 128 > 0) return;
    ptx::mbarrier_arrive_expect_tx(full, 64 * knob::kHeadDim);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_3d(shared + box * 64 * kRowBytes, map, box * kRowBytes, tile.first_query + group * 64, tile.head.q, full);
    }
  }
  __device__ __forceinline__ void wait() {
    ptx::mbarrier_try_wait_parity(full, phase);
    phase ^= 1;
  }

  template <int kColumns = kKeys>
  __device__ __forceinline__ void multiply(float (&s)[kColumns / 2], int i, uint64_t k) const {
    const int box = 32 * i / kRowBytes, column = 32 * i % kRowBytes;
    const uint64_t q = ptx::wgmma_descriptor_swizzled<kRowBytes>(ptx::wgmma_place(shared) + (box * 64 * kRowBytes + column) / 16);
    ptx::wgmma_m64k32_e4m3<kColumns>(s, q, k, i > 0);
  }
};

// The factors of a tile as they come, asked for with its queries: no one waits for them before the first scores are there, or O is.
struct Descales {
  float q, k, v;
  __device__ __forceinline__ void load(const Problem& p, Head head) { q = p.descale_q[head.q], k = p.descale_k[head.kv], v = p.descale_v[head.kv]; }
  __device__ __forceinline__ float scores_log2(const Problem& p) const { return scores_log2_of(p, q, k); }
};

}  // namespace attention
