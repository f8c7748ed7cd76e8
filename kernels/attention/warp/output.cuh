// The stores of O and of the log-sum-exp.
#pragma once

#include <cstdint>

#include "attention/columns16.cuh"
#include "problem.cuh"
#include "softmax.cuh"

namespace attention::warp {

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFF, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFF, x, 2);
}

// Stores O / row_sum of 16 rows, and the log-sum-exp if it is wanted. A row without keys is 0.
__device__ __forceinline__ void store_output(const Problem& p, const Rows& rows, const Tile& tile,
                                             int row) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = tile.first_query + row + 8 * half;
    const float row_sum = quad_sum(rows.row_sum[half]);
    const float scale = row_sum > 0.0f ? ptx::rcp_approx_ftz(row_sum) : row_sum;  // NaN stays
    const bool inside = query < p.queries;
    if (inside && p.lse != nullptr && t == 0) {
      tile.lse[query] = log_sum_exp(row_sum, rows.neg_row_max_scaled[half]);
    }
    store_columns16<kBf16, kHeadDim>(rows.o, half, scale, tile.o + p.o_strides.row * query, t,
                                     inside);
  }
}

}  // namespace attention::warp
