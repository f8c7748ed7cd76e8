// The epilogue of a tile: normalise O, and store it and the log-sum-exp.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention/columns16.cuh"
#include "include/output.cuh"
#include "include/tma_store.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::pingpong {

// The row sum of the lane's upper (half = 0) or lower row; 0 if the row attends to no key: the
// linear exp2 of minus infinity is more than 0.
__device__ __forceinline__ float row_sum_of(const RowResult& result, int half) {
  float row_sum = result.sums[2 * half];
  if constexpr (!Traits::kSumColumns) {
    row_sum += result.sums[2 * half + 1];
    row_sum += __shfl_xor_sync(0xFFFFFFFF, row_sum, 1);
    row_sum += __shfl_xor_sync(0xFFFFFFFF, row_sum, 2);
  }
  return result.neg_row_max_scaled[half] == kNoRowMax ? 0.0f : row_sum;
}

// Each warp stores its 16 rows: through shared memory, by TMA, which clips them to the queries.
__device__ __forceinline__ void store_warp(const Problem& p, const Rows& rows,
                                           const float (&scales)[2], const Tile& tile) {
  const unsigned thread = ptx::opaque(threadIdx.x), lane = thread % 32, warp = thread / 32 - 4;
  unsigned char* to = Storage::o(warp);
  if (lane == 0) ptx::cp_async_bulk_wait_group_read();  // the stores of the tile before
  __syncwarp();
  const unsigned row = lane % 16;
  const uint32_t start = ptx::shared_address(to);
#pragma unroll
  for (int i = 0; i < Sizes::kHeadDim / 8; i += 2) {
    const float* a = &rows.o[4 * i];
    ptx::stmatrix_x4(
        start + i / 8 * (16 * 128) + swizzled_offset<128>(row, i % 8 + lane / 16),
        pack_output<kBf16>(a[0] * scales[0], a[1] * scales[0]),
        pack_output<kBf16>(a[2] * scales[1], a[3] * scales[1]),
        pack_output<kBf16>(a[4] * scales[0], a[5] * scales[0]),
        pack_output<kBf16>(a[6] * scales[1], a[7] * scales[1]));
  }
  ptx::fence_proxy_async();
  __syncwarp();
  if (lane == 0) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_4d_store(p.o_map, box * 64, tile.first_query + 16 * warp, tile.head,
                                         tile.batch, to + box * (16 * 128));
    }
    ptx::cp_async_bulk_commit_group();
  }
  __syncwarp();
}

// Stores O / row_sum of the tile of a round, and the log-sum-exp if it is wanted.
__device__ __forceinline__ void store_output(const Problem& p, const Rows& rows,
                                             const RowResult& result, unsigned round,
                                             int consumer) {
  const Lane lane;
  const Tile tile = Storage::tile(round);
  float scales[2];
  uint16_t* o = p.o + p.o_strides.batch * tile.batch + p.o_strides.head * tile.head;
  const int64_t lse =
      static_cast<int64_t>(tile.batch * p.kv_heads * p.group + tile.head) * p.queries;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float row_sum = row_sum_of(result, half);
    scales[half] = row_sum > 0.0f ? ptx::rcp_approx_ftz(row_sum) : row_sum == 0.0f ? 0.0f : NAN;
    const int query = tile.first_query + 64 * consumer + lane.row + 8 * half;
    const bool inside = query < p.queries;
    if (inside && p.lse != nullptr && lane.t == 0) {
      p.lse[lse + query] = log_sum_exp(row_sum, result.neg_row_max_scaled[half]);
    }
    if constexpr (!Traits::kTmaStore) {
      store_columns16<kBf16, Sizes::kHeadDim>(rows.o, half, scales[half],
                                              o + p.o_strides.row * query, lane.t, inside);
    }
  }
  if constexpr (Traits::kTmaStore) store_warp(p, rows, scales, tile);
}

// Shared memory must live until the last stores have read it.
__device__ __forceinline__ void finish_stores() {
  if constexpr (Traits::kTmaStore) ptx::cp_async_bulk_wait_group_read();
}

}  // namespace attention::pingpong
