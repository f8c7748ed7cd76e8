// The shared memory of a block: Q, the stages of K and V, ones, the tiles, and the barriers.
#pragma once

#include <cstdint>

#include "attention/tile_sizes.cuh"
#include "include/pipeline_state.cuh"
#include "include/ptx.cuh"
#include "include/tma.cuh"

namespace attention::pingpong {

// The operands in 16 bits. A TMA box has rows of 64 columns.
template <class Traits>
struct OperandSizes : TileSizes<Traits> {
  using Sizes = TileSizes<Traits>;
  static constexpr int kRowBytes = 128;
  static constexpr int kBoxes = Sizes::kHeadDim / 64;
  static constexpr int kBoxBytes = Sizes::kBlockN * kRowBytes;
  static constexpr int kQBytes = 2 * 64 * Sizes::kHeadDim;  // of a consumer
  static constexpr int kTileBytes = kBoxes * kBoxBytes;     // of K, or of V
};
constexpr int kOnesBytes = 2048;

template <class Traits>
constexpr uint32_t kOnePair = Traits::kBf16 ? 0x3F803F80 : 0x3C003C00;  // 1 in both halves of a word

template <class Traits>
using KState = PipelineState<Traits::kStages>;
template <class Traits>
using VState = PipelineState<Traits::kVStages>;

// The producer of K writes the tiles that it enters to a ring. It is at most kStages tiles ahead of
// the consumers, which may yet store O of the tile before the one whose scores they compute.
constexpr int kTileSlots = 8;

// With sequences: V of a step in which a sequence ends is not full before another warp has cleared
// the rows behind that end.
template <class Traits, bool kHasSequences = Traits::kHasSequences>
struct EndBarriers {
  __device__ __forceinline__ void init_ends() {}
};

template <class Traits>
struct EndBarriers<Traits, true> {
  struct End {
    int stage;  // of V, -1 behind the last
    int keys;   // that stay
  };
  uint64_t end_loaded[Traits::kVStages];
  End ends[Traits::kVStages];

  __device__ __forceinline__ void init_ends() {
#pragma unroll
    for (int i = 0; i < Traits::kVStages; ++i) ptx::mbarrier_init(&end_loaded[i], 1);
  }
};

template <class Traits>
struct Barriers : EndBarriers<Traits> {
  using Sizes = TileSizes<Traits>;
  static_assert(kTileSlots >= Traits::kStages + 3);
  uint64_t k_full[Traits::kStages], k_empty[Traits::kStages];
  uint64_t v_full[Traits::kVStages], v_empty[Traits::kVStages];
  uint64_t q_full[Sizes::kConsumers], q_empty[Sizes::kConsumers];
  uint64_t tile_full[kTileSlots];

  // One thread. Every consumer warp releases a stage.
  __device__ __forceinline__ void init() {
    constexpr int kReleases = 4 * Sizes::kConsumers;
#pragma unroll
    for (int i = 0; i < Traits::kStages; ++i) init_pair(&k_full[i], &k_empty[i], kReleases);
#pragma unroll
    for (int i = 0; i < Traits::kVStages; ++i) init_pair(&v_full[i], &v_empty[i], kReleases);
#pragma unroll
    for (int i = 0; i < Sizes::kConsumers; ++i) init_pair(&q_full[i], &q_empty[i], 4);
#pragma unroll
    for (int i = 0; i < kTileSlots; ++i) ptx::mbarrier_init(&tile_full[i], 1);
    this->init_ends();
    ptx::fence_mbarrier_init();
  }

 private:
  __device__ __forceinline__ static void init_pair(uint64_t* full, uint64_t* empty, int releases) {
    ptx::mbarrier_init(full, 1);
    ptx::mbarrier_init(empty, releases);
  }
};

// Every operand starts at a multiple of 1024 bytes: TMA and wgmma derive the swizzle of a row from
// its address.
extern __shared__ __align__(1024) unsigned char memory[];

template <class Traits>
struct Storage : OperandSizes<Traits> {
  using Sizes = OperandSizes<Traits>;
  using Sizes::kQBytes, Sizes::kTileBytes;
  using Tile = WorkTile<Traits>;
  static constexpr int kQ = 0;
  static constexpr int kK = kQ + Sizes::kConsumers * kQBytes;
  static constexpr int kV = kK + Traits::kStages * kTileBytes;
  static constexpr int kOnes = kV + Traits::kVStages * kTileBytes;
  static constexpr int kTiles = kOnes + kOnesBytes;
  static constexpr int kBarriers = kTiles + kTileSlots * sizeof(Tile);

  // (consumers, boxes, 64, 128)
  __device__ __forceinline__ static unsigned char* q(int consumer) {
    return memory + kQ + consumer * kQBytes;
  }
  // (stages, boxes, TILE_N, 128)
  __device__ __forceinline__ static unsigned char* k(int stage) {
    return memory + kK + stage * kTileBytes;
  }
  __device__ __forceinline__ static unsigned char* v(int stage) {
    return memory + kV + stage * kTileBytes;
  }
  // (16, 128)
  __device__ __forceinline__ static unsigned char* ones() { return memory + kOnes; }
  __device__ __forceinline__ static Tile& tile(unsigned round) {
    return reinterpret_cast<Tile*>(memory + kTiles)[round % kTileSlots];
  }
  __device__ __forceinline__ static Barriers<Traits>& barriers() {
    return *reinterpret_cast<Barriers<Traits>*>(memory + kBarriers);
  }
};

// Waits until the producer of K has described the tile of a round.
template <class Traits>
__device__ __forceinline__ void wait_tile(unsigned round) {
  ptx::mbarrier_try_wait_parity(&Storage<Traits>::barriers().tile_full[round % kTileSlots],
                                round / kTileSlots % 2);
}

// x, which all lanes have. The shuffle tells the compiler so; it uses a uniform register.
__device__ __forceinline__ uint32_t uniform(uint32_t x) { return __shfl_sync(0xFFFFFFFF, x, 0); }

// The tile of a round, in lane 0 of a warp: `uniform` gives its fields to all lanes. That lane also
// arrives on the barriers that release the slot to the producer. racecheck of compute-sanitizer
// does not carry the reads of other lanes over __syncwarp to that arrival.
template <class Traits>
__device__ __forceinline__ WorkTile<Traits> read_tile(unsigned round) {
  WorkTile<Traits> tile = {};
  if (ptx::opaque(threadIdx.x) % 32 == 0) tile = Storage<Traits>::tile(round);
  return tile;
}

// All threads; a barrier follows.
template <class Traits>
__device__ __forceinline__ void fill_ones() {
  for (int i = threadIdx.x; i < kOnesBytes / 4; i += TileSizes<Traits>::kThreads) {
    reinterpret_cast<uint32_t*>(Storage<Traits>::ones())[i] = kOnePair<Traits>;
  }
  ptx::fence_proxy_async();
}

}  // namespace attention::pingpong
