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
  static constexpr bool kAreFew = true;
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
  static constexpr bool kAreFew = false;
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

// Shared memory behind the parts of the teams.
constexpr int kMostParts = 32;
constexpr int kMergeOffset = kTeams > 1 ? kTeams * TeamParts::Each::kFloats * 4 : 0;
struct MergeStorage {
  float4 slices[kThreads];
  int64_t o_offsets[kBlockM];  // of the rows of the output
  float factors[kMostParts][kBlockM];  // of the parts in the result

  __device__ __forceinline__ static MergeStorage& get() {
    extern __shared__ __align__(128) unsigned char memory[];
    return *reinterpret_cast<MergeStorage*>(memory + kMergeOffset);
  }
};
static_assert(kMergeOffset % 16 == 0);
static_assert(kMergeOffset + sizeof(MergeStorage) <= kSharedBytes);

// Where merged rows go: to a part of the tile, or normalised to the output.
struct MergeResult {
  const Problem& p;
  const Tile& tile;
  bool is_output;
  Part<kHeadDim> part;

  // Stores what a row has beside its columns. Returns their factor.
  __device__ __forceinline__ float begin_row(int row, RowState state, bool stores) const {
    if (!is_output) {
      if (stores) {
        *part.row_max(row) = state.neg_row_max_scaled, *part.row_sum(row) = state.row_sum;
      }
      return 1.0f;
    }
    const RowPlace at(tile, row);
    const RowResult result(p, tile, state, kHasOptions ? tile.head + at.head : 0);
    if (stores) {
      MergeStorage::get().o_offsets[row] =
          tile.o + p.o_strides.head * at.head + p.o_strides.row * at.query;
      if (p.lse != nullptr) {
        p.lse[tile.lse + p.lse_strides.head * at.head + at.query] =
            log_sum_exp(result.row_sum, result.neg_row_max_scaled);
      }
    }
    return result.scale;
  }
  __device__ __forceinline__ void store(int row, int column, float4 o) const {
    if (!is_output) {
      *reinterpret_cast<float4*>(part.o(row) + column) = o;
    } else if (!kHasOptions || column < p.o_columns) {
      uint16_t* output = p.o + MergeStorage::get().o_offsets[row] + column;
      *reinterpret_cast<uint2*>(output) = {pack_output<kBf16>(o.x, o.y),
                                           pack_output<kBf16>(o.z, o.w)};
    }
  }
};

// The factor of each part of each row: eight lanes have a row, and each of them every eighth part.
template <class Parts>
__device__ __forceinline__ void find_factors(const Parts& parts, int count, int rows,
                                             const MergeResult& to) {
  constexpr int kLanes = 8, kEach = kMostParts / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int warp = __shfl_sync(0xFFFFFFFF, static_cast<int>(threadIdx.x) / 32, 0);
#pragma unroll 1
  for (int first = warp * (32 / kLanes); first < rows; first += kThreads / kLanes) {
    const int row = first + static_cast<int>(threadIdx.x) % 32 / kLanes;
    float factors[kEach], row_sums[kEach];
    RowState state = {kNoRowMax, 0.0f};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int part = lane + i * kLanes;
      factors[i] = kNoRowMax, row_sums[i] = 0.0f;  // as a part without keys
      if (part < count && row < rows) {
        factors[i] = Parts::load(parts.at(part).row_max(row));
        row_sums[i] = Parts::load(parts.at(part).row_sum(row));
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      state.neg_row_max_scaled = ptx::min_nan(state.neg_row_max_scaled, factors[i]);
    }
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      state.neg_row_max_scaled =
          ptx::min_nan(state.neg_row_max_scaled,
                       __shfl_xor_sync(0xFFFFFFFF, state.neg_row_max_scaled, distance));
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      factors[i] = ptx::ex2_approx_ftz(state.neg_row_max_scaled - factors[i]);
      state.row_sum = fmaf(row_sums[i], factors[i], state.row_sum);
    }
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      state.row_sum += __shfl_xor_sync(0xFFFFFFFF, state.row_sum, distance);
    }
    const float scale = row < rows ? to.begin_row(row, state, lane == 0) : 0.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int part = lane + i * kLanes;
      if (part < count) MergeStorage::get().factors[part][row] = factors[i] * scale;
    }
  }
}

// An item is four columns of a row.
constexpr int kRowItems = kHeadDim / 4;

struct Item {
  int row, column;

  __device__ __forceinline__ explicit Item(int i)
      : row(i / kRowItems), column(i % kRowItems * 4) {}
};

// Adds every `step`-th part of some items, kParts of each at a time.
template <int kItems, int kParts, class Parts>
__device__ __forceinline__ void add_parts(float4 (&sums)[kItems], const Parts& parts, int first,
                                          int step, int count, int first_item, int items) {
  const MergeStorage& storage = MergeStorage::get();
#pragma unroll
  for (int n = 0; n < kItems; ++n) sums[n] = make_float4(0, 0, 0, 0);
#pragma unroll 1
  for (; first < count; first += kParts * step) {
    float4 columns[kItems][kParts];
#pragma unroll
    for (int n = 0; n < kItems; ++n) {
      const Item item(first_item + n * kThreads);
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const int part = first + i * step;
        columns[n][i] = make_float4(0, 0, 0, 0);
        if (part >= count || first_item + n * kThreads >= items) continue;
        const float* from = parts.at(part).o(item.row) + item.column;
        columns[n][i] = Parts::load(reinterpret_cast<const float4*>(from));
      }
    }
#pragma unroll
    for (int n = 0; n < kItems; ++n) {
      const int row = Item(first_item + n * kThreads).row % kBlockM;
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const int part = first + i * step;
        const float factor = part < count ? storage.factors[part][row] : 0.0f;
        const float4& x = columns[n][i];
        sums[n].x = fmaf(x.x, factor, sums[n].x), sums[n].y = fmaf(x.y, factor, sums[n].y);
        sums[n].z = fmaf(x.z, factor, sums[n].z), sums[n].w = fmaf(x.w, factor, sums[n].w);
      }
    }
  }
}

// Merges with more items than threads, or few parts.
template <int kItems, int kParts, class Parts>
__device__ __forceinline__ void merge_items(const Parts& parts, int count, int items,
                                            const MergeResult& to) {
#pragma unroll 1
  for (int first = ptx::opaque(threadIdx.x); first < items; first += kItems * kThreads) {
    float4 sums[kItems];
    add_parts<kItems, kParts>(sums, parts, 0, 1, count, first, items);
#pragma unroll
    for (int n = 0; n < kItems; ++n) {
      const int i = first + n * kThreads;
      if (i < items) to.store(Item(i).row, Item(i).column, sums[n]);
    }
  }
}

// Merges with several threads for each item, which divide the parts.
template <int kParts, class Parts>
__device__ __forceinline__ void merge_slices(const Parts& parts, int count, int items,
                                             const MergeResult& to) {
  MergeStorage& storage = MergeStorage::get();
  const int slices = kThreads / items;
  const int slice = threadIdx.x / items, i = threadIdx.x - slice * items;
  float4 sums[1];
  if (slice < slices) {
    add_parts<1, kParts>(sums, parts, slice, slices, count, i, items);
    storage.slices[threadIdx.x] = sums[0];
  }
  __syncthreads();
  if (slice > 0) return;
  float4 sum = sums[0];
  for (int n = 1; n < slices; ++n) {
    const float4 other = storage.slices[i + n * items];
    sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
  }
  to.store(Item(i).row, Item(i).column, sum);
}

// Merges parts. The result may be the first of them.
template <class Parts>
__device__ __forceinline__ void merge(const Parts& parts, int count, const MergeResult& to) {
  const int rows = rows_of(to.p, to.tile), items = rows * kRowItems;
  find_factors(parts, count, rows, to);
  __syncthreads();
  if constexpr (Parts::kAreFew) {
    merge_items<1, kTeams>(parts, count, items, to);
  } else if (kTeams == 1 || items > kThreads) {
    merge_items<kHeadDim < 256 ? 4 : 8, 4>(parts, count, items, to);
  } else {
    merge_slices<8>(parts, count, items, to);
  }
}

// ---- blocks ----

// Blocks of a group, unless that makes too many groups. A tile with fewer rows in all its parts is
// one group.
constexpr unsigned kGroupBlocks = 8, kMostRowsAtOnce = 256;

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

// Merges the parts of all blocks of the tile, this block's own stored: first those of its group, if
// there are groups. Both have the same code: what runs once takes as long to be fetched as to run.
__device__ __forceinline__ void merge_blocks(const Problem& p, const Tile& tile) {
  unsigned* arrived = p.arrived + tile.index * p.splits;
  unsigned group = 1;  // blocks
  if (p.splits > kMostParts || p.splits * rows_of(p, tile) > kMostRowsAtOnce) {
    group = max(kGroupBlocks, (p.splits + kMostParts - 1) / kMostParts);
  }
  const unsigned index = tile.split / group;
#pragma unroll 1
  for (bool all = group == 1;; all = true) {
    const unsigned first = all ? 0 : index * group;
    const unsigned count =
        all ? (p.splits + group - 1) / group : min(group, p.splits - first);
    if (!is_last(arrived + (all ? 0 : 1 + index), count)) return;
    const BlockParts parts(p, tile, first, all ? group : 1);
    merge(parts, count, {p, tile, all, parts.at(0)});
    if (all) return;
  }
}

// Merges the parts of the teams and of the blocks, and stores the output. All teams are done.
__device__ __forceinline__ void merge_parts(const Problem& p, const Tile& tile,
                                            const Rows (&rows)[kRowTiles]) {
  const Part<kHeadDim> own = BlockParts(p, tile, tile.split).at(0);
  if constexpr (kTeams > 1) {
    store_part(p, tile, rows, TeamParts::at(team_index()));
    __syncthreads();
    merge(TeamParts(), kTeams, {p, tile, p.splits == 1, own});
  } else {
    store_part(p, tile, rows, own);
  }
  if (p.splits > 1) merge_blocks(p, tile);
}

}  // namespace attention::warp
