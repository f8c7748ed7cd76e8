// Q in 16 bits, loaded to registers and converted to E4M3 by its consumer.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../../wgmma.cuh"
#include "../halves/convert.cuh"
#include "../halves/problem.cuh"
#include "../row_state.cuh"
#include "../shared_storage.cuh"

namespace ptx {

// PTX ISA "ld.global.nc" of 8 bytes, and "prefetch.global.L2".
__device__ __forceinline__ uint2 ld_global_nc_8(const void* global) {
  uint2 d;
  asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];\n" : "=r"(d.x), "=r"(d.y) : "l"(global));
  return d;
}
__device__ __forceinline__ void prefetch_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];\n" :: "l"(global));
}

}  // namespace ptx

namespace stage7b {

// Brings a warp's rows of Q to L2, a line of 128 bytes for each lane or two.
__device__ __forceinline__ void prefetch_query(const Problem& p, const WorkTile& tile) {
  constexpr int kLines = Sizes::kHeadDim / 64;  // of a row
  const unsigned thread = ptx::opaque(threadIdx.x), lane = thread % 32;
  const uint16_t* head = p.q_of(tile.head);
#pragma unroll
  for (unsigned i = lane; i < 16 * kLines; i += 32) {
    const int query = tile.first_query + (thread / 32 - 4) * 16 + i / kLines;
    if (query < p.queries) {
      ptx::prefetch_l2(head + p.q_strides.row * query + i % kLines * 64);
    }
  }
}

// The elements of a lane's two rows, in the order of operand A: four columns of 16 in either row.
// They are loaded while O of the tile before is stored, and converted when their tile begins. The
// 16 rows of a warp share a scale.
struct LoadedQuery {
  static constexpr int kFours = Sizes::kHeadDim / 8;
  uint2 elements[kFours];

  __device__ __forceinline__ void init_barrier() const {}
  __device__ __forceinline__ void wait() const {}

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kFours; ++i) elements[i] = make_uint2(0, 0);
  }

  // Rows beyond the last query read the last one; their results are not stored. They have an effect
  // on the scale of their warp, which only they and the last row share.
  __device__ __forceinline__ void load(const Problem& p, const WorkTile& tile) {
    const Lane lane;
    const uint16_t* head = p.q_of(tile.head) + 4 * lane.t;
    const int first = tile.first_query + lane.row;
    const uint16_t* rows[2] = {head + p.q_strides.row * min(first, p.queries - 1),
                               head + p.q_strides.row * min(first + 8, p.queries - 1)};
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      elements[i] = ptx::ld_global_nc_8(rows[i % 2] + 16 * (i / 2));
    }
  }

 protected:
  // The words of operand A. Returns the factor that undoes the scale.
  __device__ __forceinline__ float convert(uint32_t (&words)[Sizes::kHeadDim / 32][4],
                                           bool bf16) const {
    return bf16 ? convert_from<true>(words) : convert_from<false>(words);
  }

 private:
  template <bool kIsBf16>
  __device__ __forceinline__ float convert_from(
      uint32_t (&words)[Sizes::kHeadDim / 32][4]) const {
    Magnitude<kIsBf16> magnitude;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      magnitude.add(elements[i].x, 2 * i), magnitude.add(elements[i].y, 2 * i + 1);
    }
    const Scale<kIsBf16> scale(magnitude.of_warp());
    const uint32_t pair = scale.pair();
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      words[i / 4][i % 4] = convert_four<kIsBf16>(elements[i].x, elements[i].y, pair);
    }
    return scale.inverse();
  }
};

// Q (64, D) as operand A of S = Q·K^T, in registers or in shared memory.
template <bool kInShared>
struct Query;

template <>
struct Query<false> : LoadedQuery {
  uint32_t words[Sizes::kHeadDim / 32][4];

  __device__ __forceinline__ void attach(const SharedStorage&, int, const TensorMap*) {}

  __device__ __forceinline__ float convert(const Problem& p) {
    return LoadedQuery::convert(words, p.q_bf16);
  }

  // s += Q[:, 32i .. 32i+31] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(float (&s)[Sizes::kScores], int i, uint64_t k) const {
    ptx::wgmma_m64k32_e4m3<Sizes::kBlockN>(s, words[i], k, i > 0);
  }
};

template <>
struct Query<true> : LoadedQuery {
  unsigned char* shared;  // (boxes, 64, row bytes), codes
  int consumer;

  __device__ __forceinline__ void attach(const SharedStorage& smem, int index, const TensorMap*) {
    shared = smem.q + index * 64 * Sizes::kHeadDim;
    consumer = index;
  }

  __device__ __forceinline__ float convert(const Problem& p) {
    uint32_t words[Sizes::kHeadDim / 32][4];
    const float inverse = LoadedQuery::convert(words, p.q_bf16);
    const unsigned thread = ptx::opaque(threadIdx.x);
    const int row = thread / 32 % 4 * 16 + thread % 32 / 4;
    ptx::barrier_sync(1 + consumer, 128);  // all products of the tile before have read the codes
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 8; ++i) {
      const int chunk = i / 2, box = 16 * chunk / Sizes::kRowBytes;
      unsigned char* to = shared + box * 64 * Sizes::kRowBytes +
                          swizzled_offset<Sizes::kRowBytes>(row + i % 2 * 8,
                                                            chunk % (Sizes::kRowBytes / 16));
      *reinterpret_cast<uint32_t*>(to + thread % 4 * 4) = words[i / 4][i % 4];
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

// The factors of a tile. That of Q is known when Q is converted.
struct Descales {
  float q, k, v;

  __device__ __forceinline__ void load(const Problem& p, Head head) {
    k = p.descale_k[head.kv], v = p.descale_v[head.kv];
  }
};

}  // namespace stage7b
