// The stores of O and of the log-sum-exp to plain tensors.
#pragma once

#include "../../include/output.cuh"
#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "../online_softmax.cuh"
#include "../row_state.cuh"

namespace attention::dense {

template <class Traits>
struct Output {
  using Sizes = TileSizes<Traits>;

  // Stores O / row_sum, and the log-sum-exp with USE_LSE. After a merge each consumer stores its
  // half of the columns, and the first one the log-sum-exp. A lane has columns 4t .. 4t+3 of every
  // 16.
  __device__ __forceinline__ static void store(const Problem<Traits>& p,
                                               const RowState<Traits>& rows,
                                               const WorkTile<Traits>& tile, float descale_v,
                                               int key_group) {
    constexpr int kColumns = Sizes::kHeadDim / Traits::kKeyGroups;
    const Lane<Traits> lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = tile.first_query + lane.row + 8 * half;
      const float row_sum = rows.row_sum[half];
      // A row that attends to no key is 0.
      const float scale = row_sum > 0.0f ? descale_v * ptx::rcp_approx_ftz(row_sum) : 0.0f;
      uint16_t* row = tile.o + static_cast<size_t>(query) * Sizes::kHeadDim + key_group * kColumns +
                      4 * lane.t;
      if (query >= p.queries) continue;
      if constexpr (Traits::kLse) {
        if (lane.t == 0 && key_group == 0) {
          tile.lse[query] = log_sum_exp(row_sum, rows.neg_row_max_scaled[half]);
        }
      }
      if constexpr (Traits::kDirectV) {
        store_adjacent(rows, half, scale, row + 12 * lane.t);
      } else {
#pragma unroll
        for (int i = 0; i < kColumns / 16; ++i) {
          constexpr int kBlocks = Sizes::kPartColumns / 16;
          const float* o = &rows.o[i / kBlocks][i % kBlocks * 8 + 2 * half];
          *reinterpret_cast<uint2*>(row + 16 * i) =
              make_uint2(pack_output<Traits::kBf16Out>(o[0] * scale, o[4] * scale),
                         pack_output<Traits::kBf16Out>(o[1] * scale, o[5] * scale));
        }
      }
    }
  }

 private:
  // Stores the columns of one row of a lane with USE_DIRECT_V: 16 adjacent ones of every 64.
  __device__ __forceinline__ static void store_adjacent(const RowState<Traits>& rows, int half,
                                                        float scale, uint16_t* to) {
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 32; ++i) {
      const float* o = &rows.o[i / 2][i % 2 * 16 + 2 * half];
      const auto pair = [&](int j) {
        return pack_output<Traits::kBf16Out>(o[4 * j] * scale, o[4 * j + 1] * scale);
      };
      *reinterpret_cast<uint4*>(to + i / 2 * 64 + i % 2 * 8) =
          make_uint4(pair(0), pair(1), pair(2), pair(3));
    }
  }
};

}  // namespace attention::dense
