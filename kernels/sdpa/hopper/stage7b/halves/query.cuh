// Q in 16 bits by TMA, converted to E4M3 by its consumer.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../../wgmma.cuh"
#include "../shared_storage.cuh"
#include "convert.cuh"
#include "loads.cuh"
#include "problem.cuh"

namespace stage7b {

// Many consumers have few registers, which hold no addresses from tile to tile.
__device__ __forceinline__ unsigned consumer_thread() {
  return Sizes::kConsumers > 2 ? ptx::opaque(threadIdx.x) : threadIdx.x;
}

// 64 rows of Q in shared memory. They are converted when their tile begins. Then their place is
// free, and the rows of the next tile are loaded there. The 16 rows of a warp share a scale.
struct StagedQuery {
  static constexpr int kBytes = 64 * Sizes::kHeadDim * 2;
  const TensorMap* map;
  unsigned char* staged;  // (boxes, 64, 128)
  uint64_t* full;
  int consumer;
  uint32_t phase = 0;

  __device__ __forceinline__ void attach(const SharedStorage& smem, int index,
                                         const TensorMap* tensor_map) {
    map = tensor_map;
    staged = smem.q + index * kBytes;
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

  // Issues the TMA loads. All warps have converted Q of the tile before. Rows beyond the last query
  // are zeros; their results are not stored.
  __device__ __forceinline__ void load(const Problem& p, const WorkTile& tile) {
    if (ptx::opaque(threadIdx.x) % 128 > 0) return;
    ptx::mbarrier_arrive_expect_tx(full, kBytes);
    const unsigned batch = tile.head.kv / p.kv_heads;
    const unsigned head = tile.head.q - batch * p.kv_heads * p.group;
    issue_box_loads<64>(staged, map, tile.first_query + consumer * 64, head, batch, full);
  }
  __device__ __forceinline__ void wait() const {}

 protected:
  __device__ __forceinline__ void sync() const { ptx::barrier_sync(1 + consumer, 128); }

  // A lane's two rows as operand A. Returns the factor that undoes the scale.
  __device__ __forceinline__ float convert(uint32_t (&words)[Sizes::kHeadDim / 32][4]) {
    ptx::mbarrier_try_wait_parity(full, phase);
    phase ^= 1;
    constexpr int kFours = Sizes::kHeadDim / 8;  // of four columns: 16 columns in two rows each
    const unsigned thread = consumer_thread(), t = thread % 4;
    const int row = thread / 32 % 4 * 16 + thread % 32 / 4;
    uint2 elements[kFours];
    Magnitude magnitude;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      const unsigned char* box = staged + i / 8 * 64 * 128;
      elements[i] = *reinterpret_cast<const uint2*>(
          box + swizzled_offset<128>(row + i % 2 * 8, i / 2 % 4 * 2 + t / 2) + t % 2 * 8);
      magnitude.add(elements[i].x, 2 * i), magnitude.add(elements[i].y, 2 * i + 1);
    }
    const Scale scale(magnitude.of_warp());
    const uint32_t pair = scale.pair();
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      words[i / 4][i % 4] = convert_four(elements[i].x, elements[i].y, pair);
    }
    return scale.inverse();
  }
};

// Q (64, D) as operand A of S = Q·K^T, in registers.
template <bool kInShared>
struct Query;

template <>
struct Query<false> : StagedQuery {
  uint32_t words[Sizes::kHeadDim / 32][4];

  __device__ __forceinline__ float convert() {
    const float inverse = StagedQuery::convert(words);
    sync();  // all warps have read the elements
    return inverse;
  }

  // s += Q[:, 32i .. 32i+31] * K^T; the first product overwrites s.
  __device__ __forceinline__ void multiply(float (&s)[Sizes::kScores], int i, uint64_t k) const {
    ptx::wgmma_m64k32_e4m3<Sizes::kBlockN>(s, words[i], k, i > 0);
  }
};

}  // namespace stage7b
