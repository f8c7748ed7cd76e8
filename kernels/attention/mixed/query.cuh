// Q in 16 bits by TMA, converted to E4M3 by the warp that multiplies it.
#pragma once

#include "attention/row_state.cuh"
#include "attention/shared_storage.cuh"
#include "convert.cuh"
#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "include/wgmma.cuh"
#include "problem.cuh"

namespace attention::mixed {

// 16 rows of Q of a warp in shared memory, which share a scale. The warp converts them when their
// tile begins. Then their place is free, and its lane 0 loads the rows of the next tile there. No
// other warp is concerned.
template <class Traits>
struct StagedQuery {
  using Sizes = TileSizes<Traits>;
  static constexpr int kBytes = 16 * Sizes::kHeadDim * 2;
  static constexpr int kBoxBytes = 16 * 128;  // of 64 columns
  const TensorMap* map;
  unsigned char* staged;  // (boxes, 16, 128)
  uint64_t* full;
  uint32_t phase = 0;

  __device__ __forceinline__ void attach(const SharedStorage<Traits>& smem, int consumer,
                                         const TensorMap* tensor_map) {
    const int warp = 4 * consumer + threadIdx.x / 32 % 4;
    map = tensor_map;
    staged = smem.q + warp * kBytes;
    full = &smem.barriers->q_full[warp];
  }
  __device__ __forceinline__ void init_barrier() const {
    if (threadIdx.x % 32 == 0) {
      ptx::mbarrier_init(full, 1);
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
  }
  __device__ __forceinline__ void load(const Problem&, const WorkTile<Traits>&) const {}
  __device__ __forceinline__ void wait() const {}

  // Issues the TMA loads of a tile. Rows beyond the last query are zeros; their results are not
  // stored.
  __device__ __forceinline__ void stage(const WorkTile<Traits>& tile) const {
    const unsigned thread = ptx::opaque(threadIdx.x);
    __syncwarp();  // all lanes have read the rows before
    if (thread % 32 > 0) return;
    ptx::mbarrier_arrive_expect_tx(full, kBytes);
#pragma unroll
    for (int box = 0; box < Sizes::kHeadDim / 64; ++box) {
      ptx::cp_async_bulk_tensor_3d(staged + box * kBoxBytes, map, box * 64,
                                   tile.first_query + (thread / 32 - 4) * 16, tile.head.q, full);
    }
  }

 protected:
  // A lane's two rows as operand A. Returns the factor that undoes the scale.
  __device__ __forceinline__ float convert(uint32_t (&words)[Sizes::kHeadDim / 32][4], bool bf16) {
    ptx::mbarrier_try_wait_parity(full, phase);
    phase ^= 1;
    constexpr int kFours = Sizes::kHeadDim / 8;  // of four columns: 16 columns in two rows each
    const unsigned t = threadIdx.x % 4, row = threadIdx.x % 32 / 4;
    uint2 elements[kFours];
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      elements[i] = *reinterpret_cast<const uint2*>(
          staged + i / 8 * kBoxBytes +
          swizzled_offset<128>(row + i % 2 * 8, i / 2 % 4 * 2 + t / 2) + t % 2 * 8);
    }
    const uint32_t of_lane = bf16 ? largest<true>(elements) : largest<false>(elements);
    const uint32_t of_warp = __reduce_max_sync(0xFFFFFFFF, of_lane);
    return bf16 ? convert_elements<true>(words, elements, of_warp)
                : convert_elements<false>(words, elements, of_warp);
  }

 private:
  template <bool kIsBf16, int kFours>
  __device__ __forceinline__ static uint32_t largest(const uint2 (&elements)[kFours]) {
    Magnitude<kIsBf16> magnitude;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      magnitude.add(elements[i].x, 2 * i), magnitude.add(elements[i].y, 2 * i + 1);
    }
    return magnitude.of_lane();
  }

  template <bool kIsBf16, int kFours>
  __device__ __forceinline__ static float convert_elements(
      uint32_t (&words)[Sizes::kHeadDim / 32][4], const uint2 (&elements)[kFours],
      uint32_t magnitude) {
    const Scale<kIsBf16> scale(magnitude);
    const uint32_t pair = scale.pair();
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      words[i / 4][i % 4] = convert_four<kIsBf16>(elements[i].x, elements[i].y, pair);
    }
    return scale.inverse();
  }
};

// Q (64, D) as operand A of S = Q·K^T, in registers.
template <class Traits>
struct Query : StagedQuery<Traits> {
  using Sizes = TileSizes<Traits>;
  uint32_t words[Sizes::kHeadDim / 32][4];

  __device__ __forceinline__ float convert(const Problem& p) {
    return StagedQuery<Traits>::convert(words, p.q_bf16);
  }

  // s += Q[:, 32i .. 32i+31] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(Scores<Traits>& s, int i, uint64_t k) const {
    ptx::wgmma_m64k32_e4m3<Sizes::kBlockN>(s, words[i], k, i > 0);
  }
};

// The factors of a tile. That of Q is known when Q is converted.
struct KvDescales {
  float q, k, v;

  __device__ __forceinline__ void load(const Problem& p, Head head) {
    k = p.descale_k[head.kv], v = p.descale_v[head.kv];
  }
};

}  // namespace attention::mixed
