// Q in E4M3, which the producer has converted: the consumer's side.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../../wgmma.cuh"
#include "../kv_pipeline.cuh"
#include "../row_state.cuh"
#include "../shared_storage.cuh"
#include "problem.cuh"

namespace stage7b {

// The slot of a consumer in the ring of 64 rows of Q each. The consumers of a tile have consecutive
// slots.
struct QuerySlot {
  unsigned char* all;  // (slots, boxes, 64, row bytes)
  QuerySlots* slots;
  int slot;
  uint32_t phase = 0;

  __device__ __forceinline__ void attach(const SharedStorage& smem, int index, const TensorMap*) {
    all = smem.q, slots = smem.query_slots, slot = index;
  }
  __device__ __forceinline__ void init_barrier() const {}
  __device__ __forceinline__ void load(const Problem&, const WorkTile&) const {}
  __device__ __forceinline__ void wait() const {}

 protected:
  __device__ __forceinline__ unsigned char* codes() const {
    return all + slot * Sizes::kQSlotBytes;
  }
  // Waits for the codes, and returns the factor that undoes the scale of the warp's rows.
  __device__ __forceinline__ float await() const {
    ptx::mbarrier_try_wait_parity(&slots->full[slot], phase);
    return slots->descale[slot][ptx::opaque(threadIdx.x) / 32 % 4];
  }
  // All products of the tile have read the codes.
  __device__ __forceinline__ void pass_on() {
    arrive_warp(&slots->empty[slot]);
    slot += Sizes::kConsumers;
    if (slot >= Sizes::kQSlots) slot -= Sizes::kQSlots, phase ^= 1;
  }
};

// Q (64, D) as operand A of S = Q·K^T, in registers or in shared memory.
template <bool kInShared>
struct Query;

template <>
struct Query<false> : QuerySlot {
  uint32_t words[Sizes::kHeadDim / 32][4];

  __device__ __forceinline__ float take() {
    const float descale = await();
    const unsigned thread = ptx::opaque(threadIdx.x);
    const int row = thread / 32 % 4 * 16 + thread % 32 / 4;
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 8; ++i) {
      const unsigned char* from =
          codes() + swizzled_offset<Sizes::kRowBytes>(row + i % 2 * 8, i / 2);
      words[i / 4][i % 4] = *reinterpret_cast<const uint32_t*>(from + thread % 4 * 4);
    }
    pass_on();
    return descale;
  }
  __device__ __forceinline__ void release() const {}

  // s += Q[:, 32i .. 32i+31] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(float (&s)[Sizes::kScores], int i, uint64_t k) const {
    ptx::wgmma_m64k32_e4m3<Sizes::kBlockN>(s, words[i], k, i > 0);
  }
};

template <>
struct Query<true> : QuerySlot {
  __device__ __forceinline__ float take() const { return await(); }
  __device__ __forceinline__ void release() { pass_on(); }

  template <int kColumns = Sizes::kBlockN>
  __device__ __forceinline__ void multiply(float (&s)[kColumns / 2], int i, uint64_t k) const {
    const uint64_t q = ptx::wgmma_descriptor_swizzled<Sizes::kRowBytes>(
        ptx::descriptor_address(codes()) + 32 * i / 16);
    ptx::wgmma_m64k32_e4m3<kColumns>(s, q, k, i > 0);
  }
};

// The factors of a tile. That of Q comes with its codes.
struct Descales {
  float q, k, v;

  __device__ __forceinline__ void load(const Problem& p, Head head) {
    k = p.descale_k[head.kv], v = p.descale_v[head.kv];
  }
};

}  // namespace stage7b
