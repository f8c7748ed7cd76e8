// Q in 16 bits from global memory, converted to E4M3 by its consumer.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../../wgmma.cuh"
#include "../row_state.cuh"
#include "../shared_storage.cuh"
#include "convert.cuh"
#include "problem.cuh"

namespace stage7b {

// The lane's two rows of Q in 16 bits. They are loaded while O of the tile before is stored, and
// converted when the tile begins. The 16 rows of a warp share a scale.
struct RawQuery {
  uint2 elements[Sizes::kHeadDim / 16][2];  // columns 16i+4t .. 16i+4t+3 of both rows

  // Rows beyond the last query read the last one; their results are not stored.
  __device__ __forceinline__ void load(const Problem& p, const WorkTile& tile) {
    const Lane lane;
    const auto* head = reinterpret_cast<const uint16_t*>(p.q) + p.offset(p.q_strides, tile.head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(tile.first_query + lane.row + 8 * half, p.queries - 1);
      const uint16_t* from = head + p.q_strides.row * row + 4 * lane.t;
#pragma unroll
      for (int i = 0; i < Sizes::kHeadDim / 16; ++i) {
        elements[i][half] = __ldg(reinterpret_cast<const uint2*>(from + 16 * i));
      }
    }
  }

  // Q as operand A. Returns the factor that undoes the scale.
  __device__ __forceinline__ float convert(uint32_t (&words)[Sizes::kHeadDim / 32][4]) const {
    Magnitude magnitude;
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 8; ++i) {
      magnitude.add(elements[i / 2][i % 2].x), magnitude.add(elements[i / 2][i % 2].y);
    }
    const Scale scale(magnitude.of_warp());
    const uint32_t pair = scale.pair();
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 8; ++i) {
      const uint2 four = elements[i / 2][i % 2];
      words[i / 4][i % 4] = convert_four(four.x, four.y, pair);
    }
    return scale.inverse();
  }
};

// Q (64, D) as operand A of S = Q·K^T, in registers or in shared memory.
template <bool kInShared>
struct Query;

template <>
struct Query<false> : RawQuery {
  uint32_t words[Sizes::kHeadDim / 32][4];

  __device__ __forceinline__ void attach(const SharedStorage&, int, const TensorMap*) {}
  __device__ __forceinline__ void init_barrier() const {}
  __device__ __forceinline__ void wait() const {}
  __device__ __forceinline__ float convert() { return RawQuery::convert(words); }

  // s += Q[:, 32i .. 32i+31] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(float (&s)[Sizes::kScores], int i, uint64_t k) const {
    ptx::wgmma_m64k32_e4m3<Sizes::kBlockN>(s, words[i], k, i > 0);
  }
};

template <>
struct Query<true> : RawQuery {
  unsigned char* shared;  // (boxes, 64, row bytes)
  int consumer;

  __device__ __forceinline__ void attach(const SharedStorage& smem, int index, const TensorMap*) {
    shared = smem.q + index * 64 * Sizes::kHeadDim;
    consumer = index;
  }
  __device__ __forceinline__ void init_barrier() const {}
  __device__ __forceinline__ void wait() const {}

  // Stores Q once all warps have read that of the tile before.
  __device__ __forceinline__ float convert() const {
    uint32_t words[Sizes::kHeadDim / 32][4];
    const float inverse = RawQuery::convert(words);
    const unsigned thread = ptx::opaque(threadIdx.x);
    const int row = thread / 32 % 4 * 16 + thread % 32 / 4;
    ptx::barrier_sync(1 + consumer, 128);
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 8; ++i) {
      const int chunk = i / 2, box = 16 * chunk / Sizes::kRowBytes;
      unsigned char* to = shared + box * 64 * Sizes::kRowBytes +
                          swizzled_offset<Sizes::kRowBytes>(row + i % 2 * 8,
                                                            chunk % (Sizes::kRowBytes / 16)) +
                          thread % 4 * 4;
      *reinterpret_cast<uint32_t*>(to) = words[i / 4][i % 4];
    }
    ptx::fence_proxy_async();
    ptx::barrier_sync(1 + consumer, 128);
    return inverse;
  }

  template <int kColumns = Sizes::kBlockN>
  __device__ __forceinline__ void multiply(float (&s)[kColumns / 2], int i, uint64_t k) const {
    const int box = 32 * i / Sizes::kRowBytes, column = 32 * i % Sizes::kRowBytes;
    const uint64_t q = ptx::wgmma_descriptor_swizzled<Sizes::kRowBytes>(
        ptx::descriptor_address(shared) + (box * 64 * Sizes::kRowBytes + column) / 16);
    ptx::wgmma_m64k32_e4m3<kColumns>(s, q, k, i > 0);
  }
};

// The factors of a tile. That of K changes with the step, and that of V with O.
struct Descales {
  float q, k = 1.0f, v = 1.0f;

  __device__ __forceinline__ void load(const Problem&, Head) {}
};

}  // namespace stage7b
