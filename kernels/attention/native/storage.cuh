// The shared memory of a block: Q, the stages of K and V, their barriers, and the position of the
// loads, each for every team.
#pragma once

#include <cstdint>

#include "include/tma.cuh"
#include "traits.cuh"

namespace attention::native {

constexpr int kTeams = Traits::kTeams;
constexpr int kWarps = 4 * Sizes::kConsumers;  // of a team
constexpr int kTeamThreads = 32 * kWarps;
constexpr int kThreads = kTeams * kTeamThreads;
constexpr int kQBytes = 2 * 64 * Sizes::kHeadDim;                 // of a consumer
constexpr int kTileBytes = 2 * Sizes::kBlockN * Sizes::kHeadDim;  // of K, or of V
constexpr int kOnesBytes = 2048;

// The stage of the step before, and its phase.
__device__ __forceinline__ KvState before(KvState state) {
  if (--state.stage < 0) state.stage = Sizes::kStages - 1, state.phase ^= 1;
  return state;
}

// What consumers need of a tile.
struct Tile {
  int64_t o, lse;  // where those of its head begin
  unsigned head, batch;
  int first_query;
  int causal_key_end;
  int steps;  // 0 behind the last tile
};

// Tiles that are loaded ahead, the one of this step, and the one before, whose O may yet be stored.
constexpr int kTiles = 8;
static_assert(kTiles >= Sizes::kStages + 2);

// The next step to load.
struct Cursor {
  unsigned round;  // of the next tile
  int n_block;     // of the current tile, -1 at its end
  unsigned kv_head, batch;
};

struct Barriers {
  uint64_t full[Sizes::kStages], empty[Sizes::kStages];  // of K and V
  uint64_t q_full[Sizes::kConsumers];

  // One thread.
  __device__ __forceinline__ void init() {
#pragma unroll
    for (int stage = 0; stage < Sizes::kStages; ++stage) {
      ptx::mbarrier_init(&full[stage], 1);
      ptx::mbarrier_init(&empty[stage], kWarps);
    }
#pragma unroll
    for (int consumer = 0; consumer < Sizes::kConsumers; ++consumer) {
      ptx::mbarrier_init(&q_full[consumer], 1);
    }
    ptx::fence_mbarrier_init();
  }
};

constexpr int kOperandBytes = Sizes::kConsumers * kQBytes + 2 * Sizes::kStages * kTileBytes;
constexpr int kRestBytes =
    (sizeof(Tile) * kTiles + sizeof(Barriers) + sizeof(Cursor) + sizeof(TileScheduler) + 7) / 8 * 8;

// Every operand starts at a multiple of 1024 bytes: TMA and wgmma derive the swizzle of a row from
// its address. Rows have 64 columns, so D = 128 has two boxes. Addresses are derived again at each
// use: the mainloop needs the registers.
extern __shared__ __align__(1024) unsigned char memory[];

struct Storage {
  __device__ __forceinline__ static int team() {
    return kTeams == 1 ? 0 : ptx::opaque(threadIdx.x) / kTeamThreads;
  }
  // (consumers, boxes, 64, 128)
  __device__ __forceinline__ static unsigned char* q() { return memory + team() * kOperandBytes; }
  // (stages, boxes, TILE_N, 128)
  __device__ __forceinline__ static unsigned char* k() { return q() + Sizes::kConsumers * kQBytes; }
  __device__ __forceinline__ static unsigned char* v() { return k() + Sizes::kStages * kTileBytes; }
  // (16, 128), of all teams, after V, whose descriptors lead to them
  __device__ __forceinline__ static unsigned char* ones() {
    return memory + kTeams * kOperandBytes;
  }
  // Of a ring of kTiles.
  __device__ __forceinline__ static Tile& tile(unsigned round) {
    return reinterpret_cast<Tile*>(rest())[round % kTiles];
  }
  __device__ __forceinline__ static Barriers& barriers() {
    return *reinterpret_cast<Barriers*>(rest() + kTiles * sizeof(Tile));
  }
  __device__ __forceinline__ static Cursor& cursor() {
    return *reinterpret_cast<Cursor*>(&barriers() + 1);
  }
  __device__ __forceinline__ static TileScheduler& scheduler() {
    return *reinterpret_cast<TileScheduler*>(&cursor() + 1);
  }

 private:
  __device__ __forceinline__ static unsigned char* rest() {
    return ones() + kOnesBytes + team() * kRestBytes;
  }
};

// All threads; a barrier follows.
__device__ __forceinline__ void fill_ones() {
  constexpr uint32_t kOnes = kBf16 ? 0x3F803F80 : 0x3C003C00;
  for (int i = threadIdx.x; i < kOnesBytes / 4; i += kThreads) {
    reinterpret_cast<uint32_t*>(Storage::ones())[i] = kOnes;
  }
  ptx::fence_proxy_async();
}

}  // namespace attention::native
