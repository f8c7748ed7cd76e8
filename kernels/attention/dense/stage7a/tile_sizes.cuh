// The tile sizes of stage7a, and everything derived from them: threads, fragments, shared memory.
#pragma once

#include "../../../include/problem.cuh"
#include "knobs.cuh"

namespace stage7a {

struct Sizes {
  // ---- tile of a block ----
  static constexpr int kHeadDim = knob::kHeadDim;
  static constexpr int kBlockM = knob::kTileM;  // queries: columns of both products
  static constexpr int kBlockN = knob::kTileN;  // keys of one warpgroup in a step

  // ---- warpgroups: they split the keys of a step ----
  static constexpr int kWarpgroups = knob::kKeyGroups;
  static constexpr int kThreads = 128 * kWarpgroups;
  static constexpr int kWarps = 4;  // of a warpgroup
  static constexpr int kStepKeys = kWarpgroups * kBlockN;
  static constexpr int kBlocksPerSm = 1;  // for which the compiler allots registers

  // ---- products ----
  static constexpr int kKeyBlocks = kBlockN / 64;   // products that make S^T of a step
  static constexpr int kKeyPairs = kKeyBlocks / 2;  // products that make O^T of the keys of a warp
  static constexpr int kParts = kHeadDim / 64;      // of the columns of O
  static constexpr int kQueryBlocks = kBlockM / 8;

  // ---- fragments of a lane ----
  static constexpr int kQueries = kBlockM / 4;  // query 8j+2t+e of the tile is its query 2j+e
  static constexpr int kScores = kBlockM / 2;   // of one product

  // ---- shared memory ----
  static constexpr int kChunks = kHeadDim / 16;  // 16-byte chunks of a row
  // Q and P are in core matrices of 8 queries by 16 bytes, all queries of the first 16 bytes first.
  static constexpr int kCoreBytes = 128;
  static constexpr int kChunkBytes = kQueryBlocks * kCoreBytes;
  static constexpr int kQBytes = kBlockM * kHeadDim;
  static constexpr int kVBytes = kBlockN * kHeadDim;
  static constexpr int kPBytes = kBlockN * kBlockM;
  static constexpr int kRowStatsBytes = 4 * (2 * kWarps * (kBlockM + 8) + kBlockM);
  static constexpr int kWarpgroupBytes = 2 * kVBytes + kPBytes + kRowStatsBytes;
  static constexpr int kMergeBytes =
      kWarpgroups > 1 ? kWarpgroups * kBlockM * kHeadDim * static_cast<int>(sizeof(float)) : 0;
  static constexpr int kSharedBytes = kQBytes + kWarpgroups * kWarpgroupBytes + kMergeBytes;
  static constexpr int kDynamicBytes = dynamic_bytes(kSharedBytes);

  // V of a step this short does not delay K and Q, and is requested with them; a longer one after Q
  // has arrived.
  static constexpr bool kEarlyV = kBlockN <= 128;
};

// The warpgroup of this thread. The shuffle tells the compiler that a warp has one value, which then
// lives in a uniform register.
__device__ __forceinline__ int warpgroup_index() {
  if constexpr (Sizes::kWarpgroups == 1) return 0;
  const int index = threadIdx.x / 128;
  return knob::kRelaxedLoads ? __shfl_sync(0xFFFFFFFF, index, 0) : index;
}

// Position of a lane.
struct Lane {
  int warp;  // of its warpgroup
  int g, t;  // lane 4g + t of its warp

  __device__ Lane()
      : warp(threadIdx.x / 32 % 4), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4) {}

  // The query of the tile that is query i of the lane.
  __device__ __forceinline__ int query(int i) const { return i / 2 * 8 + 2 * t + i % 2; }
};

}  // namespace stage7a
