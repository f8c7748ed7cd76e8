// The stores of O and of the log-sum-exp.
#pragma once

#include <cstdint>

#include "attention/columns16.cuh"
#include "attention/online_softmax.cuh"
#include "problem.cuh"
#include "softmax.cuh"

namespace attention::warp {

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFF, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFF, x, 2);
}

struct RowState {
  float neg_row_max_scaled, row_sum;
};

// A row as it is stored.
struct RowResult : RowState {
  float scale;  // of O

  // A row without keys is 0, with a sink too. NaN stays.
  __device__ __forceinline__ RowResult(const Problem& p, const Tile& tile, RowState state,
                                       unsigned head)
      : RowState(state) {
    scale = row_sum > 0.0f ? 1.0f : row_sum;
    if constexpr (kHasOptions) {
      if (p.descale_v != nullptr) {
        scale *= p.descale_v[(tile.sequence * p.heads + tile.head) / p.group];
      }
      if (p.sinks != nullptr && row_sum > 0.0f) add_sink(p.sinks[head]);
    }
    if (row_sum > 0.0f) scale *= ptx::rcp_approx_ftz(row_sum);
  }

 private:
  // A sink is one more score, without a value.
  __device__ __forceinline__ void add_sink(float sink) {
    const float rescale = ::update_row_max(neg_row_max_scaled, sink, kLog2e);
    row_sum = fmaf(row_sum, rescale, ptx::ex2_approx_ftz(fmaf(sink, kLog2e, neg_row_max_scaled)));
    scale *= rescale;
  }
};

// Stores four adjacent columns of each 16, as products over E4M3 leave them.
__device__ __forceinline__ void store_columns_e4m3(const float* o, int half, float scale,
                                                   uint16_t* row, int t, bool inside, int columns) {
  if (!inside) return;
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
    const float *even = &o[8 * i + 2 * half], *odd = even + 4;
    const uint2 four = {pack_output<kBf16>(even[0] * scale, odd[0] * scale),
                        pack_output<kBf16>(even[1] * scale, odd[1] * scale)};
    if (16 * i < columns) *reinterpret_cast<uint2*>(row + 16 * i + 4 * t) = four;
  }
}

// Stores O / row_sum of 16 rows, and the log-sum-exp if it is wanted.
__device__ __forceinline__ void store_output(const Problem& p, const Rows& rows, const Tile& tile,
                                             int first_row) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + 8 * half;
    const bool inside = has_row(p, tile, row);
    unsigned head = 0;
    int query = tile.first_query + row;
    if (kPacksHeads && inside) {
      const RowPlace at(tile, row);
      head = at.head, query = at.query;
    }
    const RowState state = {rows.neg_row_max_scaled[half], quad_sum(rows.row_sum[half])};
    const RowResult result(p, tile, state, kHasOptions ? tile.head + head : 0);
    if (inside && p.lse != nullptr && t == 0) {
      p.lse[tile.lse + p.lse_strides.head * head + query] =
          log_sum_exp(result.row_sum, result.neg_row_max_scaled);
    }
    uint16_t* o = p.o + tile.o + p.o_strides.head * head + p.o_strides.row * query;
    if constexpr (kE4m3) {
      store_columns_e4m3(rows.o, half, result.scale, o, t, inside, p.o_columns);
    } else {
      store_columns16<kBf16, kHeadDim, kHasOptions>(rows.o, half, result.scale, o, t, inside,
                                                    p.o_columns);
    }
  }
}

}  // namespace attention::warp
