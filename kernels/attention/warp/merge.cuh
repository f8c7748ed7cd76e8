// Parts of a tile: results of some of its keys, before they are normalised. The teams of a block
// merge theirs through shared memory. The blocks of a tile store theirs in global memory: with few
// blocks the last one merges them, with many the last one of each group, and then the last group.
// The order of the sums depends on no block's time.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "output.cuh"
#include "problem.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::warp {

// Rows that exist in a tile. Only these are stored and merged.
__device__ __forceinline__ int rows_of(const Problem& p, const Tile& tile) {
  return min(kBlockM, (kHasOptions ? tile.rows : p.queries) - tile.first_query);
}

// ---- parts ----

// O row after row, then the row max of each row, then the row sums.
template <int kStride>
struct Part {
  static constexpr int kFloats = kBlockM * (kStride + 2);
  float* from;

  __device__ __forceinline__ float* o(int row) const { return from + row * kStride; }
  __device__ __forceinline__ float* row_max(int row) const {
    return from + kBlockM * kStride + row;
  }
  __device__ __forceinline__ float* row_sum(int row) const { return row_max(row) + kBlockM; }
};

// Stores what the lanes have of O, as float4 or float2 that fill sectors.
template <int kStride>
__device__ __forceinline__ void store_part(const Problem& p, const Tile& tile,
                                           const Rows (&rows)[kRowTiles], Part<kStride> part) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float row_sum = quad_sum(rows[m].row_sum[half]);
      const int row = lane_row(m) + 8 * half;
      if (!has_row(p, tile, row)) continue;
      float* to = part.o(row);
#pragma unroll
      for (int i = 0; i < kHeadDim / 16; ++i) {
        const float *first = &rows[m].o[8 * i + 2 * half], *second = first + 4;
        if constexpr (kE4m3) {
          *reinterpret_cast<float4*>(to + 16 * i + 4 * t) =
              make_float4(first[0], second[0], first[1], second[1]);
        } else {
          *reinterpret_cast<float2*>(to + 16 * i + 2 * t) = make_float2(first[0], first[1]);
          *reinterpret_cast<float2*>(to + 16 * i + 8 + 2 * t) = make_float2(second[0], second[1]);
        }
      }
      if (t == 0) {
        *part.row_max(row) = rows[m].neg_row_max_scaled[half], *part.row_sum(row) = row_sum;
      }
    }
  }
}

// The parts of the teams, in shared memory. Rows are in different banks.
struct TeamParts {
  using Each = Part<kHeadDim + (kE4m3 ? 16 : 8)>;

  __device__ __forceinline__ static Each at(int i) {
    extern __shared__ __align__(128) unsigned char memory[];
    return {reinterpret_cast<float*>(memory) + i * Each::kFloats};
  }
  template <class T>
  __device__ __forceinline__ static T load(const T* from) { return *from; }
};

// Parts of the blocks of a tile, `step` apart.
struct BlockParts {
  using Each = Part<kHeadDim>;
  float* first;
  int step;

  __device__ __forceinline__ BlockParts(const Problem& p, const Tile& tile, unsigned split,
                                        int step = 1)
      : first(p.parts + (static_cast<size_t>(tile.index) * p.splits + split) * Each::kFloats),
        step(step) {}
  __device__ __forceinline__ Each at(int i) const {
    return {first + static_cast<size_t>(i * step) * Each::kFloats};
  }
  template <class T>
  __device__ __forceinline__ static T load(const T* from) { return __ldcg(from); }
};

// ---- merge ----

// Shared memory behind the parts of the teams: row max and row sum of all parts, and sums of slices.
constexpr int kMostParts = kBlockM > 64 ? 32 : 64;
constexpr int kMergeOffset = kTeams > 1 ? kTeams * TeamParts::Each::kFloats * 4 : 0;
struct MergeStorage {
  float row_max[kMostParts][kBlockM], row_sum[kMostParts][kBlockM];
  float4 slices[kThreads];

  __device__ __forceinline__ static MergeStorage& get() {
    extern __shared__ __align__(128) unsigned char memory[];
    return *reinterpret_cast<MergeStorage*>(memory + kMergeOffset);
  }
};
static_assert(kMergeOffset % 16 == 0);
static_assert(kMergeOffset + sizeof(MergeStorage) <= kSharedBytes);

// A thread merges items of four columns of a row. Decoding has few items and many parts.
constexpr int kRowItems = kHeadDim / 4;
constexpr int kPartsAtOnce = kTeams > 1 ? 8 : 2;  // whose loads are in flight together

// The row max of all parts, and their row sum. A part without keys has no row max, and a factor of
// 0.
__device__ __forceinline__ RowState merge_row_states(int count, int row) {
  const MergeStorage& storage = MergeStorage::get();
  RowState merged = {kNoRowMax, 0.0f};
  for (int i = 0; i < count; ++i) {
    merged.neg_row_max_scaled = ptx::min_nan(merged.neg_row_max_scaled, storage.row_max[i][row]);
  }
  for (int i = 0; i < count; ++i) {
    const float factor = ptx::ex2_approx_ftz(merged.neg_row_max_scaled - storage.row_max[i][row]);
    merged.row_sum = fmaf(storage.row_sum[i][row], factor, merged.row_sum);
  }
  return merged;
}

// The sum of four columns of every `slices`-th part.
template <class Parts>
__device__ __forceinline__ float4 merge_columns(const Parts& parts, int count, int row, int column,
                                                int slice, int slices, float neg_row_max_scaled) {
  const MergeStorage& storage = MergeStorage::get();
  float4 sum = make_float4(0, 0, 0, 0);
  for (int first = slice; first < count; first += kPartsAtOnce * slices) {
    float4 columns[kPartsAtOnce];
#pragma unroll
    for (int n = 0; n < kPartsAtOnce; ++n) {
      const int i = min(first + n * slices, count - 1);
      columns[n] = Parts::load(reinterpret_cast<const float4*>(parts.at(i).o(row) + column));
    }
#pragma unroll
    for (int n = 0; n < kPartsAtOnce; ++n) {
      const int i = first + n * slices;
      if (i >= count) break;
      const float factor = ptx::ex2_approx_ftz(neg_row_max_scaled - storage.row_max[i][row]);
      sum.x = fmaf(columns[n].x, factor, sum.x), sum.y = fmaf(columns[n].y, factor, sum.y);
      sum.z = fmaf(columns[n].z, factor, sum.z), sum.w = fmaf(columns[n].w, factor, sum.w);
    }
  }
  return sum;
}

// Row max and row sum of all parts to shared memory.
template <class Parts>
__device__ __forceinline__ void load_row_states(const Parts& parts, int count, int rows) {
  MergeStorage& storage = MergeStorage::get();
  for (int i = threadIdx.x; i < count * kBlockM; i += kThreads) {
    const int part = i / kBlockM, row = i % kBlockM;
    if (row >= rows) continue;
    storage.row_max[part][row] = Parts::load(parts.at(part).row_max(row));
    storage.row_sum[part][row] = Parts::load(parts.at(part).row_sum(row));
  }
  __syncthreads();
}

// Stores four columns of a row as a part of the tile, or as output.
struct MergeResult {
  const Problem& p;
  const Tile& tile;
  bool is_output;
  Part<kHeadDim> part;

  __device__ __forceinline__ void store(int row, int column, float4 o, RowState state) const {
    if (is_output) {
      store_merged(p, tile, row, column, o, state);
      return;
    }
    *reinterpret_cast<float4*>(part.o(row) + column) = o;
    if (column == 0) {
      *part.row_max(row) = state.neg_row_max_scaled, *part.row_sum(row) = state.row_sum;
    }
  }
};

// Merges parts. The result may be the first of them.
template <class Parts>
__device__ __forceinline__ void merge(const Parts& parts, int count, const MergeResult& to) {
  const int rows = rows_of(to.p, to.tile), items = rows * kRowItems;
  load_row_states(parts, count, rows);
  // More threads than items divide the parts, if there are more than a thread loads at once.
  const int slices = count > kPartsAtOnce ? kThreads / items : 1;
  if (slices <= 1) {
    for (int item = threadIdx.x; item < items; item += kThreads) {
      const int row = item / kRowItems, column = item % kRowItems * 4;
      const RowState state = merge_row_states(count, row);
      to.store(row, column,
               merge_columns(parts, count, row, column, 0, 1, state.neg_row_max_scaled), state);
    }
    return;
  }
  MergeStorage& storage = MergeStorage::get();
  const int slice = threadIdx.x / items, item = threadIdx.x - slice * items;
  const int row = item / kRowItems, column = item % kRowItems * 4;
  RowState state = {};
  if (slice < slices) {
    state = merge_row_states(count, row);
    storage.slices[threadIdx.x] =
        merge_columns(parts, count, row, column, slice, slices, state.neg_row_max_scaled);
  }
  __syncthreads();
  if (slice > 0) return;
  float4 sum = storage.slices[threadIdx.x];
  for (int i = 1; i < slices; ++i) {
    const float4 other = storage.slices[threadIdx.x + i * items];
    sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
  }
  to.store(row, column, sum, state);
}

// ---- blocks ----

// Blocks of a group. A tile of at most as many as are merged at once is one group.
constexpr unsigned kGroupBlocks = 16;
constexpr unsigned kMostBlocksAtOnce = 32;
static_assert(kMostBlocksAtOnce <= kMostParts);

// Whether all `count` blocks that share a counter have stored their parts, and this one as the last.
// It resets the counter for the next launch.
__device__ __forceinline__ bool is_last(unsigned* arrived, unsigned count) {
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    last = ptx::atom_acq_rel_gpu_add(arrived, 1u) == count - 1;
    if (last) *arrived = 0;
  }
  return __syncthreads_or(last);
}

// Merges the parts of all blocks of the tile, this block's own stored.
__device__ __forceinline__ void merge_blocks(const Problem& p, const Tile& tile) {
  unsigned* arrived = p.arrived + tile.index * p.splits;
  unsigned group = 1, groups = p.splits;  // parts of a group, and of groups
  if (p.splits > kMostBlocksAtOnce) {
    group = max(kGroupBlocks, (p.splits + kMostParts - 1) / kMostParts);
    groups = (p.splits + group - 1) / group;
    const unsigned index = tile.split / group, first = index * group;
    const unsigned count = min(group, p.splits - first);
    if (!is_last(arrived + 1 + index, count)) return;
    const BlockParts parts(p, tile, first);
    merge(parts, count, {p, tile, false, parts.at(0)});
  }
  if (!is_last(arrived, groups)) return;
  merge(BlockParts(p, tile, 0, group), groups, {p, tile, true, {}});
}

// Merges the parts of the teams and of the blocks, and stores the output.
__device__ __forceinline__ void merge_parts(const Problem& p, const Tile& tile,
                                            const Rows (&rows)[kRowTiles]) {
  const Part<kHeadDim> own = BlockParts(p, tile, tile.split).at(0);
  if constexpr (kTeams > 1) {
    __syncthreads();
    store_part(p, tile, rows, TeamParts::at(team_index()));
    __syncthreads();
    merge(TeamParts(), kTeams, {p, tile, p.splits == 1, own});
  } else {
    store_part(p, tile, rows, own);
  }
  if (p.splits > 1) merge_blocks(p, tile);
}

}  // namespace attention::warp
