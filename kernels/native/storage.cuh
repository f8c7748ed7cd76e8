// The shared memory of a block: Q, the stages of K and V, and their barriers.
#pragma once

#include <cstdint>

#include "hopper/stage7b/form.cuh"
#include "hopper/stage7b/shared_storage.cuh"
#include "hopper/tma.cuh"

namespace native {

using stage7b::KvState;
using stage7b::Sizes;
using stage7b::TileIndex;
using stage7b::TileScheduler;

constexpr bool kBf16 = knob::kBf16Out;             // Q, K, V, P and O; otherwise FP16
constexpr int kQBytes = 2 * 64 * Sizes::kHeadDim;  // of a consumer
constexpr int kTileBytes = 2 * Sizes::kBlockN * Sizes::kHeadDim;  // of K, or of V
constexpr int kThreads = 128 * Sizes::kConsumers;

struct Barriers {
  uint64_t k_full[Sizes::kStages], v_full[Sizes::kStages], empty[Sizes::kStages];
  uint64_t q_full[Sizes::kConsumers];

  // One thread.
  __device__ __forceinline__ void init() {
#pragma unroll
    for (int stage = 0; stage < Sizes::kStages; ++stage) {
      ptx::mbarrier_init(&k_full[stage], 1);
      ptx::mbarrier_init(&v_full[stage], 1);
      ptx::mbarrier_init(&empty[stage], 4 * Sizes::kConsumers);
    }
#pragma unroll
    for (int consumer = 0; consumer < Sizes::kConsumers; ++consumer) {
      ptx::mbarrier_init(&q_full[consumer], 1);
    }
    ptx::fence_mbarrier_init();
  }
};

// Every operand starts at a multiple of 1024 bytes: TMA and wgmma derive the swizzle of a row from
// its address. Rows have 64 columns, so D = 128 has two boxes.
struct Storage {
  unsigned char* q;  // (consumers, boxes, 64, 128)
  unsigned char* k;  // (stages, boxes, TILE_N, 128)
  unsigned char* v;  // (stages, boxes, TILE_N, 128)
  Barriers* barriers;
  TileScheduler* scheduler;  // here because the mainloop has no registers for it

  __device__ __forceinline__ explicit Storage(unsigned char* memory)
      : q(memory),
        k(q + Sizes::kConsumers * kQBytes),
        v(k + Sizes::kStages * kTileBytes),
        barriers(reinterpret_cast<Barriers*>(v + Sizes::kStages * kTileBytes)),
        scheduler(reinterpret_cast<TileScheduler*>(barriers + 1)) {}

  __device__ __forceinline__ TileScheduler schedule() const {
    TileScheduler schedule = *scheduler;
    if (TileScheduler::kMaxPairedTiles == 0) schedule.paired = false;  // the compiler knows it then
    return schedule;
  }
  // The position of the block in a round. The mainloop keeps no more than the round.
  __device__ __forceinline__ TileIndex at(unsigned round) const {
    TileIndex at = TileIndex(schedule().paired);
    at.round = ptx::opaque(round) - 1;
    at.next(schedule().paired);
    return at;
  }
};

}  // namespace native
