// Shared memory, the pipeline of K and V, and the layout of a tile.
#pragma once

#include "include/tma.cuh"
#include "instructions.cuh"
#include "schedule.cuh"

namespace attention::decode {

// What the four warps of a consumer warpgroup share, with keys as M.
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

// Columns and softmax of some parts of a row, for the merge of blocks.
struct MergeStorage {
  alignas(16) float4 o[Sizes::kConsumers];
  float2 rows[Sizes::kConsumers];  // row max and row sum
};

// The results of a unit. With rows as M Q too, of one unit: that of the next follows when the
// consumers have it in registers.
template <bool kRowsAsM>
struct FormStorage {
  GroupStorage group[Sizes::kGroups];
  MergeStorage merged;
};

// With rows as M the consumers have P in registers, and Q too where it fits. They leave one result.
template <>
struct FormStorage<true> {
  // In blocks of 64 rows, these in panels of 64 columns with the swizzle of 128 bytes.
  alignas(1024) __half q[Sizes::kHeadDim * Sizes::kRows];
  union {
    alignas(16) float o[Sizes::kRows][Sizes::kHeadDim];  // swizzled
    MergeStorage merged;  // when the result is in its part
  };
  float row_sum[Sizes::kRows];
  float row_max[Sizes::kRows];  // scaled, in log2 units
};

// K and V in FP16, and their barriers. Each has panels of 64 columns, swizzled as TMA does.
template <bool kConverts>
struct OperandStorage {
  __device__ __forceinline__ void init_barriers(int) {}
};

template <>
struct OperandStorage<true> {
  alignas(1024) uint8_t k[Sizes::kOperandStages][2 * Sizes::kTileBytes];
  alignas(1024) uint8_t v[Sizes::kOperandStages][2 * Sizes::kTileBytes];
  uint64_t k_full[Sizes::kOperandStages], k_empty[Sizes::kOperandStages];
  uint64_t v_full[Sizes::kOperandStages], v_empty[Sizes::kOperandStages];

  __device__ __forceinline__ void init_barriers(int readers) {
    for (int i = 0; i < Sizes::kOperandStages; i++) {
      ptx::mbarrier_init(&k_full[i], 2);
      ptx::mbarrier_init(&v_full[i], 2);
      ptx::mbarrier_init(&k_empty[i], readers);
      ptx::mbarrier_init(&v_empty[i], readers);
    }
  }
};

// Q of a unit, with keys as M.
template <bool kRowsAsM>
struct UnitQuery {
  // In core matrices of 8 rows and 8 columns, all rows of 8 columns together.
  alignas(128) __half q[Sizes::kHeadDim * Sizes::kRows];
};
template <>
struct UnitQuery<true> {};

// A unit.
struct UnitStorage : UnitQuery<Sizes::kRowsAsM> {
  float scale[Sizes::kRows];  // of the scores, in log2 units
  // In registers they would crowd out O.
  Cursor cursor;  // at the unit
  Unit facts;
};

struct SharedStorage : FormStorage<Sizes::kRowsAsM> {
  alignas(1024) uint8_t k[Sizes::kStages][Sizes::kTileBytes];
  alignas(1024) uint8_t v[Sizes::kStages][Sizes::kTileBytes];
  OperandStorage<Sizes::kConverts> operands;
  UnitStorage unit[2];  // the one that is computed, and the next
  alignas(8) uint64_t full[Sizes::kStages];
  uint64_t empty[Sizes::kStages];
  uint64_t unit_full[2];
  uint64_t q_empty;  // with rows as M
  uint64_t result_full, result_empty;
  int valid[Sizes::kStages];  // keys of a tile; 0 for the tile of a unit without keys
  int decision;               // of one thread for its team

  // One arrival for each warp.
  __device__ __forceinline__ void init_barriers() {
    constexpr int kReaders = 4 * Sizes::kRowGroups;  // warps that read a tile
    for (int i = 0; i < Sizes::kStages; i++) {
      ptx::mbarrier_init(&full[i], 1);
      ptx::mbarrier_init(&empty[i], Sizes::kConverts ? 4 : kReaders);
    }
    operands.init_barriers(kReaders);
    for (uint64_t& barrier : unit_full) ptx::mbarrier_init(&barrier, 3);
    ptx::mbarrier_init(&q_empty, Sizes::kConsumers / 32);
    ptx::mbarrier_init(&result_full, Sizes::kRowsAsM ? kReaders : Sizes::kConsumers / 32);
    ptx::mbarrier_init(&result_empty, 3);
    ptx::fence_mbarrier_init();
  }
};

// Q of a unit: one of two buffers, or the only one.
template <class Storage>
__device__ __forceinline__ __half* query_of(Storage& shared, int index) {
  if constexpr (Sizes::kRowsAsM) return shared.q;
  else return shared.unit[index % 2].q;
}

// "shared" of kernel.toml, without the bytes that align the storage.
constexpr int kSharedBytes =
    Sizes::kStages * 2 * Sizes::kTileBytes +
    (Sizes::kRowsAsM
         ? Sizes::kConverts * (8 * Sizes::kTileBytes + 1024) +
               Sizes::kRows * (6 * Sizes::kHeadDim + 16) + 1024
         : 16 * Sizes::kStages + Sizes::kRows * (4 * Sizes::kHeadDim + 8) +
               Sizes::kGroups * (Sizes::kRows * (4 * Sizes::kTileN + 4 * Sizes::kHeadDim + 64) +
                                 24 * Sizes::kGroupThreads) + 2560);
static_assert(sizeof(SharedStorage) <= kSharedBytes);

// Named barriers: one of each consumer warpgroup from the first on, one of all consumers, and one of
// the finishers; with rows as M one of two consumers that merge their results.
constexpr int kGroupBarrier = 1;
constexpr int kConsumerBarrier = kGroupBarrier + Sizes::kGroups;
constexpr int kFinisherBarrier = kConsumerBarrier + 1;
constexpr int kPairBarrier = kFinisherBarrier + 1;

// Threads that finish a unit together: all consumers, or the warps beside the producer.
template <int kFirst, int kCount, int kBarrier>
struct Team {
  static constexpr int kThreads = kCount;
  __device__ __forceinline__ static int thread() { return threadIdx.x - kFirst; }
  __device__ __forceinline__ static void sync() { ptx::barrier_sync(kBarrier, kCount); }
};
using Consumers = Team<0, Sizes::kConsumers, kConsumerBarrier>;
using Finishers = Team<Sizes::kFirstProducer + 32, Sizes::kGroupThreads - 32, kFinisherBarrier>;

// A position in a pipeline. The tiles of the block go round the consumer warpgroups.
template <int kCount>
struct RingState {
  int stage;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance(int by) {
    stage += by;
    if (stage >= kCount) stage -= kCount, phase ^= 1;
  }
};
using KvState = RingState<Sizes::kStages>;

// A tile is boxes of 64 rows and up to 128 bytes, swizzled as TMA does: 16 bytes at the same column
// of eight rows are in different banks. Bits 4 to 6 of an address, or 4 and 5, have the chunk.
__device__ __forceinline__ uint32_t swizzled(int row, int byte) {
  const int swizzle = Sizes::kBoxBytes == 128 ? row % 8 : row / 2 % 4;
  return row * Sizes::kBoxBytes + (byte ^ swizzle << 4);
}
// With rows as M all keys of a panel of columns are together, as operand B of wgmma.
__device__ __forceinline__ constexpr uint32_t box_offset(int box_n, int box_d) {
  const int box = Sizes::kRowsAsM ? box_d * Sizes::kBoxesN + box_n : box_n * Sizes::kBoxesD + box_d;
  return box * Sizes::kBoxN * Sizes::kBoxBytes;
}

// A phase of an mbarrier, counted from 0; one arrival of a warp.
__device__ __forceinline__ void wait(uint64_t* barrier, int phase) {
  ptx::mbarrier_try_wait_parity(barrier, phase & 1);
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
}

}  // namespace attention::decode
