// The epilogue of a tile: merge the warpgroups, normalise O, store it.
#pragma once

#include "../../../include/output.cuh"
#include "../../../include/problem.cuh"
#include "../../../include/ptx.cuh"
#include "../../online_softmax.cuh"
#include "gemm.cuh"
#include "shared_storage.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace stage7a {

// How ATTUNE_OUTPUTS describes the row sums: FP32, of P before rounding.
constexpr int kLseKind = 1;

// Publishes the row max of each query, by the lanes that have each query once.
__device__ __forceinline__ void publish_row_max(RowStats& stats, const RowState& rows,
                                                const Lane& lane) {
  if (lane.warp > 0 || lane.g > 0) return;
#pragma unroll
  for (int c = 0; c < Sizes::kQueries; ++c) {
    stats.neg_row_max_scaled[lane.query(c)] = rows.neg_row_max_scaled[c];
  }
}

// Writes O of a warpgroup for the merge.
__device__ __forceinline__ void publish_output(const MergeBuffer& merge, const Output& output,
                                               const Warpgroup& warpgroup) {
#pragma unroll
  for (int j = 0; j < Sizes::kQueryBlocks; ++j) {
#pragma unroll
    for (int part = 0; part < Sizes::kParts; ++part) {
      const float* o = output.o[part] + 4 * j;
      *merge.slot(warpgroup.index, part, j) = make_float4(o[0], o[1], o[2], o[3]);
    }
  }
}

// The factor of each warpgroup's O of one query in the normalised sum, from its row max and row
// sum. Returns the log-sum-exp over all of them.
__device__ __forceinline__ float merge_scales(float (&scale)[Sizes::kWarpgroups],
                                              const float (&neg_row_max_scaled)[Sizes::kWarpgroups],
                                              const float (&row_sum)[Sizes::kWarpgroups],
                                              float descale_v) {
  float merged_max = neg_row_max_scaled[0], total = 0.0f;
#pragma unroll
  for (int w = 1; w < Sizes::kWarpgroups; ++w) {
    merged_max = fminf(merged_max, neg_row_max_scaled[w]);
  }
#pragma unroll
  for (int w = 0; w < Sizes::kWarpgroups; ++w) {
    scale[w] = Sizes::kWarpgroups == 1
                   ? 1.0f
                   : ptx::ex2_approx_ftz(merged_max - neg_row_max_scaled[w]);
    total = fmaf(scale[w], row_sum[w], total);
  }
  // A query that attends to no key is 0.
  const float normalise = total > 0.0f ? descale_v * ptx::rcp_approx_ftz(total) : 0.0f;
#pragma unroll
  for (int w = 0; w < Sizes::kWarpgroups; ++w) scale[w] *= normalise;
  return log_sum_exp(total, merged_max);
}

// Each warpgroup merges, normalises and stores its share of the queries. A single warpgroup has
// them in registers.
__device__ __forceinline__ void store_output(const MergeBuffer& merge, const RowState& rows,
                                             const WorkTile& tile, float descale_v,
                                             const Warpgroup& warpgroup, const Lane& lane,
                                             int queries) {
  constexpr int kWarpgroups = Sizes::kWarpgroups, kOwnBlocks = Sizes::kQueryBlocks / kWarpgroups;
#pragma unroll
  for (int i = 0; i < kOwnBlocks; ++i) {
    const int j = warpgroup.index * kOwnBlocks + i, query = tile.first_query + 8 * j + 2 * lane.t;
    float row_max[2][kWarpgroups], row_sum[2][kWarpgroups], scale[2][kWarpgroups];
#pragma unroll
    for (int w = 0; w < kWarpgroups; ++w) {
      const RowStats& stats = merge.stats(w);
      const float2 maxes =
          kWarpgroups == 1
              ? make_float2(rows.neg_row_max_scaled[2 * i], rows.neg_row_max_scaled[2 * i + 1])
              : query_pair(stats.neg_row_max_scaled, j, lane);
      const float2 sums = reduce_warps(stats.row_sum, j, lane, Sum{});
      row_max[0][w] = maxes.x, row_max[1][w] = maxes.y;
      row_sum[0][w] = sums.x, row_sum[1][w] = sums.y;
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float lse = merge_scales(scale[e], row_max[e], row_sum[e], descale_v);
      if constexpr (knob::kLse) {
        if (lane.warp == 0 && lane.g == 0 && query + e < queries) tile.lse[query + e] = lse;
      }
    }
#pragma unroll
    for (int part = 0; part < Sizes::kParts; ++part) {
      float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int w = 0; w < kWarpgroups; ++w) {
        const float* own = rows.output.o[part] + 4 * i;
        const float4 partial = kWarpgroups == 1 ? make_float4(own[0], own[1], own[2], own[3])
                                                : *merge.slot(w, part, j);
        o.x = fmaf(scale[0][w], partial.x, o.x);
        o.y = fmaf(scale[1][w], partial.y, o.y);
        o.z = fmaf(scale[0][w], partial.z, o.z);
        o.w = fmaf(scale[1][w], partial.w, o.w);
      }
      uint32_t* to =
          reinterpret_cast<uint32_t*>(tile.o + static_cast<size_t>(query) * Sizes::kHeadDim +
                                      64 * part + 16 * lane.warp + 2 * lane.g);
      if (query < queries) to[0] = pack_output<knob::kBf16Out>(o.x, o.z);
      if (query + 1 < queries) to[Sizes::kHeadDim / 2] = pack_output<knob::kBf16Out>(o.y, o.w);
    }
  }
}

}  // namespace stage7a
