// The shared memory of stage7a: Q, then V, P and the row statistics of each warpgroup, then the
// buffer of the merge.
#pragma once

#include "../../../include/ptx.cuh"
#include "tile_sizes.cuh"

namespace stage7a {

// What the warps of a warpgroup exchange about each query.
struct RowStats {
  using PerWarp = float[Sizes::kWarps][Sizes::kBlockM + 8];  // 8 more: a quad hits four banks
  PerWarp row_max;  // of a warp's scores in this step, not scaled
  PerWarp row_sum;  // of a warp's P over all steps
  float neg_row_max_scaled[Sizes::kBlockM];  // what these sums are relative to
};
static_assert(sizeof(RowStats) == Sizes::kRowStatsBytes);

// A warpgroup's part of shared memory.
struct Warpgroup {
  int index;
  unsigned char* v;  // (2 stages, TILE_N, D)
  unsigned char* p;  // (TILE_M, TILE_N) in core matrices
  RowStats* stats;

  __device__ __forceinline__ Warpgroup(unsigned char* memory, int index) : index(index) {
    v = memory + index * Sizes::kWarpgroupBytes;
    p = v + 2 * Sizes::kVBytes;
    stats = reinterpret_cast<RowStats*>(p + Sizes::kPBytes);
  }
  __device__ __forceinline__ void sync() const { ptx::barrier_sync(1 + index, 128); }
};

// O of all warpgroups, for the merge.
struct MergeBuffer {
  float* partial;             // (warpgroups, parts, query blocks, 128 threads, 4)
  unsigned char* warpgroups;  // their parts of shared memory

  __device__ __forceinline__ explicit MergeBuffer(unsigned char* warpgroups)
      : warpgroups(warpgroups) {
    partial =
        reinterpret_cast<float*>(warpgroups + Sizes::kWarpgroups * Sizes::kWarpgroupBytes);
  }
  __device__ __forceinline__ const RowStats& stats(int warpgroup) const {
    return *Warpgroup(warpgroups, warpgroup).stats;
  }
  __device__ __forceinline__ float4* slot(int warpgroup, int part, int block) const {
    return reinterpret_cast<float4*>(partial) +
           ((warpgroup * Sizes::kParts + part) * Sizes::kQueryBlocks + block) * 128 +
           threadIdx.x % 128;
  }
};

}  // namespace stage7a
