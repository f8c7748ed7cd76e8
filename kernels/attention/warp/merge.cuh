// Parts of a tile: results of some of its keys, before they are normalised. The teams of a block
// merge theirs in shared memory. The blocks of a tile store theirs, and the last one merges them,
// in an order that does not depend on which block that is.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "problem.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::warp {

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFF, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFF, x, 2);
}

// The factors of two parts of a row in their sum.
struct Factors {
  float rows, part;

  // Brings a row to the row max of both. A part without keys has none, and a factor of 0.
  __device__ __forceinline__ Factors(Rows& all, int half, float neg_row_max_scaled) {
    const float before = all.neg_row_max_scaled[half];
    const float now = ptx::min_nan(before, neg_row_max_scaled);
    all.neg_row_max_scaled[half] = now;
    rows = ptx::ex2_approx_ftz(now - before);
    part = ptx::ex2_approx_ftz(now - neg_row_max_scaled);
  }
};

// ---- teams ----

// What a lane has of 16 rows, in words of the 32 lanes of a warp.
constexpr int kLaneWords = kOutputs + 4;
constexpr int kSlotBytes = kLaneWords * 32 * 4;
static_assert(kTeams / 2 * kTeamWarps * kRowTiles * kSlotBytes <= kSharedBytes);

__device__ __forceinline__ void store_slot(const Rows& rows, float* slot) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    slot[32 * half] = rows.neg_row_max_scaled[half];
    slot[32 * (2 + half)] = rows.row_sum[half];
  }
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) slot[32 * (4 + i)] = rows.o[i];
}

__device__ __forceinline__ void add_slot(Rows& rows, const float* slot) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Factors factors(rows, half, slot[32 * half]);
    rows.row_sum[half] =
        fmaf(slot[32 * (2 + half)], factors.part, rows.row_sum[half] * factors.rows);
#pragma unroll
    for (int i = 2 * half; i < kOutputs; i += 4) {
#pragma unroll
      for (int j = i; j < i + 2; ++j) {
        rows.o[j] = fmaf(slot[32 * (4 + j)], factors.part, rows.o[j] * factors.rows);
      }
    }
  }
}

// Merges the parts of all teams in the first one: in each round those of the upper half of the
// teams are added to the lower half.
__device__ __forceinline__ void merge_teams(Rows (&rows)[kRowTiles]) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int team = team_index();
#pragma unroll
  for (int teams = kTeams / 2; teams > 0; teams /= 2) {
    const int from = team % teams * kTeamWarps + row_warp();
    float* slot = reinterpret_cast<float*>(memory + from * kRowTiles * kSlotBytes) +
                  threadIdx.x % 32;
    __syncthreads();
    if (team >= teams && team < 2 * teams) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) store_slot(rows[m], slot + m * kSlotBytes / 4);
    }
    __syncthreads();
    if (team < teams) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) add_slot(rows[m], slot + m * kSlotBytes / 4);
    }
  }
}

// ---- blocks ----

// A part of 16 rows in global memory: O as the lanes have it, two quads of words in turns for the
// upper and the lower rows, then row max and row sum of each row.
constexpr int kQuads = kHeadDim / 16;  // of a lane in a row
constexpr int kPartFloats = 16 * (kHeadDim + 2);

struct Part {
  float* from;  // of the warp's rows

  __device__ __forceinline__ Part(const Problem& p, const Tile& tile, unsigned split, int m)
      : from(p.parts + (static_cast<size_t>(tile.index) * p.splits + split) *
                           (kBlockM / 16 * kPartFloats) +
             (row_warp() * kRowTiles + m) * kPartFloats) {}

  __device__ __forceinline__ float4* quad(int half, int i) const {
    return reinterpret_cast<float4*>(from) + (half * kQuads + i) * 32 + threadIdx.x % 32;
  }
  __device__ __forceinline__ float* row_max(int half) const {
    return from + 16 * kHeadDim + 8 * half + threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ float* row_sum(int half) const { return row_max(half) + 16; }
};

// Rows that do not exist are left out.
__device__ __forceinline__ void store_part(const Problem& p, const Tile& tile, const Rows& rows,
                                           int m) {
  const Part part(p, tile, tile.split, m);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float row_sum = quad_sum(rows.row_sum[half]);
    if (!has_row(p, tile, lane_row(m) + 8 * half)) continue;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float* o = &rows.o[8 * i + 2 * half];
      *part.quad(half, i) = make_float4(o[0], o[1], o[4], o[5]);
    }
    if (threadIdx.x % 4 == 0) {
      *part.row_max(half) = rows.neg_row_max_scaled[half], *part.row_sum(half) = row_sum;
    }
  }
}

// Parts whose loads are in flight together.
constexpr int kPartsAtOnce = kHeadDim >= 256 ? 1 : 2;

// Adds the parts of blocks split, split + kTeams and so on to the upper or the lower rows.
__device__ __forceinline__ void add_parts(const Problem& p, const Tile& tile, Rows& rows,
                                          unsigned split, int m, int half) {
  if (!has_row(p, tile, lane_row(m) + 8 * half)) return;
  float4 quads[kPartsAtOnce][kQuads];
  float row_max[kPartsAtOnce], row_sum[kPartsAtOnce];
#pragma unroll
  for (int n = 0; n < kPartsAtOnce; ++n) {
    // Behind the last part there is none, which counts as one without keys.
    const unsigned at = split + n * kTeams;
    const Part part(p, tile, at, m);
    const bool exists = at < p.splits;
    row_max[n] = exists ? __ldcg(part.row_max(half)) : kNoRowMax;
    row_sum[n] = exists && threadIdx.x % 4 == 0 ? __ldcg(part.row_sum(half)) : 0.0f;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      quads[n][i] = exists ? __ldcg(part.quad(half, i)) : make_float4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int n = 0; n < kPartsAtOnce; ++n) {
    const Factors factors(rows, half, row_max[n]);
    rows.row_sum[half] = fmaf(row_sum[n], factors.part, rows.row_sum[half] * factors.rows);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      float* o = &rows.o[8 * i + 2 * half];
      o[0] = fmaf(quads[n][i].x, factors.part, o[0] * factors.rows);
      o[1] = fmaf(quads[n][i].y, factors.part, o[1] * factors.rows);
      o[4] = fmaf(quads[n][i].z, factors.part, o[4] * factors.rows);
      o[5] = fmaf(quads[n][i].w, factors.part, o[5] * factors.rows);
    }
  }
}

// Stores the part of this block. Returns whether it was the last one of its tile. The last one
// resets the counter for the next launch.
__device__ __forceinline__ bool store_parts(const Problem& p, const Tile& tile,
                                            const Rows (&rows)[kRowTiles]) {
  if (team_index() == 0) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) store_part(p, tile, rows[m], m);
  }
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    unsigned* arrived = &p.arrived[tile.index];
    last = ptx::atom_acq_rel_gpu_add(arrived, 1u) == p.splits - 1;
    if (last) *arrived = 0;
  }
  return __syncthreads_or(last);
}

// Merges the parts of all blocks of a tile. Each team adds every kTeams-th part.
__device__ __forceinline__ void merge_parts(const Problem& p, const Tile& tile,
                                            Rows (&rows)[kRowTiles]) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    rows[m].clear();
#pragma unroll 1
    for (unsigned split = team_index(); split < p.splits; split += kPartsAtOnce * kTeams) {
#pragma unroll
      for (int half = 0; half < 2; ++half) add_parts(p, tile, rows[m], split, m, half);
    }
  }
  if constexpr (kTeams > 1) merge_teams(rows);
}

}  // namespace attention::warp
