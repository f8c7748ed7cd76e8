// Shared memory, the pipeline of K and V, and the layout of a tile.
#pragma once

#include "include/tma.cuh"
#include "instructions.cuh"
#include "schedule.cuh"

namespace attention::decode {

// What the four warps of a consumer warpgroup share.
struct GroupStorage {
  // P^T of two tiles, in core matrices of 8 query rows and 8 keys, all rows of 8 keys together.
  alignas(128) __half p[2][Sizes::kTileN * Sizes::kRows];
  float2 factors[Sizes::kRows];   // P = exp2(S * x + y)
  float reference[Sizes::kRows];  // the score whose P is 2^kMaxOffset; -inf before the first key
  float warp_max[4][Sizes::kRows];
  // The result of a unit. Four columns of padding put the rows of a store in other banks.
  alignas(16) float o[Sizes::kRows][Sizes::kHeadDim + 4];
  float4 row_sum[Sizes::kRows];  // of each warp
  float row_max[Sizes::kRows];   // scaled, in log2 units
};

// A unit and its Q.
struct UnitStorage {
  // Q in core matrices of 8 rows and 8 columns, all rows of 8 columns together.
  alignas(128) __half q[Sizes::kHeadDim * Sizes::kRows];
  float scale[Sizes::kRows];  // of the scores, in log2 units
  // In registers they would crowd out O.
  Cursor cursor;  // at the unit
  Unit facts;
};

struct SharedStorage {
  alignas(1024) uint8_t k[Sizes::kStages][Sizes::kTileBytes];
  alignas(1024) uint8_t v[Sizes::kStages][Sizes::kTileBytes];
  UnitStorage unit[2];  // the one that is computed, and the next
  GroupStorage group[Sizes::kGroups];
  // Of the merge of blocks: columns and softmax of some parts of a row.
  alignas(16) float4 merged[Sizes::kConsumers];
  float2 merged_rows[Sizes::kConsumers];
  alignas(8) uint64_t full[Sizes::kStages];
  uint64_t empty[Sizes::kStages];
  uint64_t unit_full[2];
  uint64_t result_full, result_empty;
  int decision;  // of one thread for its team

  // One arrival for each warp.
  __device__ __forceinline__ void init_barriers() {
    for (int i = 0; i < Sizes::kStages; i++) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], 4);
    }
    for (uint64_t& barrier : unit_full) ptx::mbarrier_init(&barrier, 3);
    ptx::mbarrier_init(&result_full, Sizes::kConsumers / 32);
    ptx::mbarrier_init(&result_empty, 3);
    ptx::fence_mbarrier_init();
  }
};

// "shared" of kernel.toml, without the bytes that align the storage.
static_assert(sizeof(SharedStorage) <=
              Sizes::kStages * (2 * Sizes::kTileBytes + 16) +
                  Sizes::kRows * (4 * Sizes::kHeadDim + 8) +
                  Sizes::kGroups * (Sizes::kRows * (4 * Sizes::kTileN + 4 * Sizes::kHeadDim + 64) +
                                    24 * Sizes::kGroupThreads) + 2560);

// Named barriers: one of each consumer warpgroup from the first on, one of all consumers, and one of
// the finishers.
constexpr int kGroupBarrier = 1;
constexpr int kConsumerBarrier = kGroupBarrier + Sizes::kGroups;
constexpr int kFinisherBarrier = kConsumerBarrier + 1;

// Threads that finish a unit together: all consumers, or the warps beside the producer.
template <int kFirst, int kCount, int kBarrier>
struct Team {
  static constexpr int kThreads = kCount;
  __device__ __forceinline__ static int thread() { return threadIdx.x - kFirst; }
  __device__ __forceinline__ static void sync() { ptx::barrier_sync(kBarrier, kCount); }
};
using Consumers = Team<0, Sizes::kConsumers, kConsumerBarrier>;
using Finishers = Team<Sizes::kConsumers + 32, Sizes::kGroupThreads - 32, kFinisherBarrier>;

// A position in the pipeline. The tiles of the block go round the consumer warpgroups.
struct KvState {
  int stage;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance(int by) {
    stage += by;
    if (stage >= Sizes::kStages) stage -= Sizes::kStages, phase ^= 1;
  }
};

// A tile is boxes of 64 rows and up to 128 bytes, swizzled as TMA does: 16 bytes at the same column
// of eight rows are in different banks. Bits 4 to 6 of an address, or 4 and 5, have the chunk.
__device__ __forceinline__ uint32_t swizzled(int row, int byte) {
  const int swizzle = Sizes::kBoxBytes == 128 ? row % 8 : row / 2 % 4;
  return row * Sizes::kBoxBytes + (byte ^ swizzle << 4);
}
__device__ __forceinline__ constexpr uint32_t box_offset(int box_n, int box_d) {
  return (box_n * Sizes::kBoxesD + box_d) * Sizes::kBoxN * Sizes::kBoxBytes;
}

}  // namespace attention::decode
