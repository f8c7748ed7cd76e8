// The stores of O and of the log-sum-exp.
#pragma once

#include <cstdint>

#include "attention/columns16.cuh"
#include "problem.cuh"
#include "softmax.cuh"

namespace attention::warp8 {

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFF, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFF, x, 2);
}

// Stores the columns of the lane's upper (half = 0) or lower row after products in E4M3, 4t to 4t+3
// of each 16, times the factors of V.
__device__ __forceinline__ void store_columns8(const float* o, int half, float scale,
                                               const float* descale_v, uint16_t* row, bool inside) {
  if (!inside) return;
  const int first = 4 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
    const int column = 16 * i + first;
    const float4* of_columns = reinterpret_cast<const float4*>(descale_v + column);
    const float head = descale_v[0];
    const float4 factors = kE4M3Qk ? make_float4(head, head, head, head) : *of_columns;
    const float* even = &o[8 * i + 2 * half];
    const float* odd = even + 4;
    *reinterpret_cast<uint2*>(row + column) =
        make_uint2(pack_output<kBf16>(even[0] * scale * factors.x, odd[0] * scale * factors.y),
                   pack_output<kBf16>(even[1] * scale * factors.z, odd[1] * scale * factors.w));
  }
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
      float lse = log_sum_exp(row_sum, rows.neg_row_max_scaled[half]);
      if (p.q_dot_mean != nullptr) lse += p.softmax_scale * tile.q_dot_mean[query];
      tile.lse[query] = lse;
    }
    uint16_t* o = reinterpret_cast<uint16_t*>(tile.o + p.o_strides.row * query);
    if constexpr (kE4M3Pv) {
      store_columns8(rows.o, half, scale, tile.descale_v, o, inside);
    } else {
      store_columns16<kBf16, kHeadDim>(rows.o, half, scale, o, t, inside);
    }
  }
}

}  // namespace attention::warp8
