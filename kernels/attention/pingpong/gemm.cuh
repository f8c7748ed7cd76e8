// The two products of a step: S = Q·K^T and O += P·V.
#pragma once

#include "include/ptx.cuh"
#include "include/wgmma.cuh"
#include "include/wgmma_m64k16.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::pingpong {

// Units of 16 bytes, as descriptors count, in a row of 64 columns.
constexpr int kRowUnits = 8;

// Q (64, D) of a consumer: a descriptor address, or operand A in registers, one product per 16
// columns. In registers it frees its shared memory as soon as a tile begins, and Q·K^T reads a
// third less of shared memory.
template <class Traits>
struct Query {
  using Sizes = TileSizes<Traits>;
  static constexpr bool kBf16 = Traits::kBf16;
  uint32_t address;
  uint32_t words[Traits::kQInShared ? 1 : Sizes::kHeadDim / 16][4];

  __device__ __forceinline__ void load(const unsigned char* q) {
    if constexpr (Traits::kQInShared) {
      address = uniform(ptx::descriptor_address(q));
      return;
    }
    const unsigned thread = ptx::opaque(threadIdx.x), lane = thread % 32;
    const unsigned row = thread / 32 % 4 * 16 + lane % 16;
    const uint32_t start = ptx::shared_address(q);
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 16; ++i) {
      ptx::ldmatrix_x4(words[i], start + i / 4 * (64 * 128) +
                                     swizzled_offset<128>(row, i % 4 * 2 + lane / 16));
    }
  }
  // s += Q[:, 16i .. 16i+15] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(Scores<Traits>& s, int i, uint64_t k) const {
    if constexpr (Traits::kQInShared) {
      const uint32_t q = address + i / 4 * 64 * kRowUnits + 2 * (i % 4);
      ptx::wgmma_m64k16<kBf16, 0>(s, ptx::wgmma_descriptor_swizzled<128>(q), k, i > 0);
    } else {
      ptx::wgmma_m64k16<kBf16, 0>(s, words[i], k, i > 0);
    }
  }
};

// Issues S (64, TILE_N) = Q (64, D) * K (TILE_N, D)^T. k is a descriptor address.
template <class Traits>
__device__ __forceinline__ void issue_qk(Scores<Traits>& s, const Query<Traits>& q, uint32_t k) {
  using Sizes = TileSizes<Traits>;
  ptx::discard_registers(s);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 16; ++i) {
    const int box = i / 4, column = 2 * (i % 4);
    q.multiply(s, i,
               ptx::wgmma_descriptor_swizzled<128>(k + box * Sizes::kBlockN * kRowUnits + column));
  }
  ptx::wgmma_commit_group();
}

// Descriptor of rows of V. `leading` is the distance between blocks of 64 columns in units of 16
// bytes.
__device__ __forceinline__ uint64_t v_descriptor(uint32_t address, uint32_t leading) {
  return ptx::wgmma_descriptor(address, 16 * leading, 1024) | 1ull << 62;
}

template <int kFirst, int kCount, int kSize>
__device__ __forceinline__ float (&slice(float (&x)[kSize]))[kCount] {
  static_assert(kFirst + kCount <= kSize);
  return reinterpret_cast<float(&)[kCount]>(x[kFirst]);
}

// Issues O (64, D) += P (64, TILE_N) * V (TILE_N, D). v is a descriptor address. With columns of
// ones the last 64 columns have a product of their own, whose descriptor leads from V to the ones.
template <class Traits>
__device__ __forceinline__ void issue_pv(Rows<Traits>& rows, const Probabilities<Traits>& p,
                                         uint32_t v) {
  using Sizes = TileSizes<Traits>;
  constexpr bool kBf16 = Traits::kBf16;
  constexpr int kBox = Sizes::kBlockN * kRowUnits, kStep = 16 * kRowUnits;
  rows.fence();
  ptx::wgmma_fence();
  if constexpr (Traits::kSumColumns) {
    constexpr int kFirst = Sizes::kHeadDim - 64;  // columns of the other product
    static_assert(!Traits::kSumColumns || kFirst == 64 || kFirst == 0);
    const uint32_t last = v + kFirst / 64 * kBox;
    const uint32_t last_and_ones =
        uniform(last + ((ptx::descriptor_address(Storage<Traits>::ones()) - last) << 16));
    v = uniform(v);
#pragma unroll
    for (int i = 0; i < Sizes::kBlockN / 16; ++i) {
      if constexpr (kFirst > 0) {
        ptx::wgmma_m64k16<kBf16, 1>(slice<0, 32>(rows.o), p.words[i],
                                    v_descriptor(v + i * kStep, kBox), true);
      }
      ptx::wgmma_m64n72k16<kBf16>(
          slice<kFirst / 2, 32>(rows.o), rows.sums, p.words[i],
          v_descriptor(last_and_ones + (i * kStep - (i * kStep << 16)), 0));
    }
  } else {
    v = uniform(v);
#pragma unroll
    for (int i = 0; i < Sizes::kBlockN / 16; ++i) {
      ptx::wgmma_m64k16<kBf16, 1>(rows.o, p.words[i], v_descriptor(v + i * kStep, kBox), true);
    }
  }
  ptx::wgmma_commit_group();
}

}  // namespace attention::pingpong
