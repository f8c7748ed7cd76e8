// The two products of a step: S = Q·K^T, and O += P·V with the exponentials.
#pragma once

#include <cstdint>

#include "include/output.cuh"
#include "include/ptx.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::warp {

// Q of a warp as operand A, in registers or read again in every step.
struct Query {
  uint32_t words[Traits::kQInRegisters ? kDepthSteps : 1][kRowTiles][4];
  RowAddress address;

  // Row tiles are 16 rows apart.
  __device__ __forceinline__ Query()
      : address(threadIdx.x / 32 * kWarpRows + threadIdx.x % 16, threadIdx.x % 32 / 16) {}

  __device__ __forceinline__ void load(const Storage& storage) {
    if constexpr (Traits::kQInRegisters) {
#pragma unroll
      for (int i = 0; i < kDepthSteps; ++i) load_step(storage, i, words[i]);
    }
  }
  // Operand A of product i.
  __device__ __forceinline__ const uint32_t (&get(const Storage& storage, int i))[kRowTiles][4] {
    if constexpr (Traits::kQInRegisters) return words[i];
    load_step(storage, i, words[0]);
    return words[0];
  }

 private:
  __device__ __forceinline__ void load_step(const Storage& storage, int i,
                                            uint32_t (&step)[kRowTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      ptx::ldmatrix_x4(step[m], address.at(storage.q(), 16 * m, 2 * i));
    }
  }
};

// S (kWarpRows, TILE_N) = Q (kWarpRows, D) * K (TILE_N, D)^T.
__device__ __forceinline__ void multiply_qk(float (&s)[kRowTiles][kScores], Query& query,
                                            const Storage& storage, int stage) {
  const int lane = ptx::opaque(threadIdx.x) % 32;  // addresses are cheaper than registers
  const RowAddress address(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[m][i] = 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kDepthSteps; ++i) {
    const uint32_t(&q)[kRowTiles][4] = query.get(storage, i);
#pragma unroll
    for (int j = 0; j < kKeySteps; ++j) {
      uint32_t k[4];  // two of 8 keys, each with two of 8 columns
      ptx::ldmatrix_x4(k, address.at(storage.k(stage), 16 * j, 2 * i));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          ptx::mma_m16n8k16<kBf16>(&s[m][8 * j + 4 * n], q[m], k[2 * n], k[2 * n + 1]);
        }
      }
    }
  }
}

// P of 16 keys as operand A: exp2(s * softmax_scale_log2 + neg_row_max_scaled), rounded. The row
// sums are those before the rounding.
__device__ __forceinline__ void exponentiate(uint32_t (&p)[4], const float* s, Rows& rows,
                                             float softmax_scale_log2) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int half = i % 2;
    const float offset = rows.neg_row_max_scaled[half];
    const float first = ptx::ex2_approx_ftz(fmaf(s[2 * i], softmax_scale_log2, offset));
    const float second = ptx::ex2_approx_ftz(fmaf(s[2 * i + 1], softmax_scale_log2, offset));
    rows.row_sum[half] += first + second;
    p[i] = pack_output<kBf16>(first, second);
  }
}

// O (kWarpRows, D) += P (kWarpRows, TILE_N) * V (TILE_N, D).
__device__ __forceinline__ void multiply_pv(Rows (&rows)[kRowTiles],
                                            const float (&s)[kRowTiles][kScores],
                                            const Storage& storage, int stage,
                                            float softmax_scale_log2) {
  const int lane = ptx::opaque(threadIdx.x) % 32;
  const RowAddress address(lane % 16, lane / 16);
#pragma unroll
  for (int j = 0; j < kKeySteps; ++j) {
    uint32_t p[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      exponentiate(p[m], &s[m][8 * j], rows[m], softmax_scale_log2);
    }
#pragma unroll
    for (int i = 0; i < kDepthSteps; ++i) {
      uint32_t v[4];  // two of 8 columns, each with two of 8 keys
      ptx::ldmatrix_x4_trans(v, address.at(storage.v(stage), 16 * j, 2 * i));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          ptx::mma_m16n8k16<kBf16>(&rows[m].o[8 * i + 4 * n], p[m], v[2 * n], v[2 * n + 1]);
        }
      }
    }
  }
}

}  // namespace attention::warp
