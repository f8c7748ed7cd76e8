// The two products of a step: S = Q·K^T, and O += P·V with the exponentials.
#pragma once

#include <cstdint>

#include "e4m3_operand.cuh"
#include "include/output.cuh"
#include "include/ptx.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::warp {

// Q of a warp as operand A, in registers or read again in every step.
struct Query {
  uint32_t words[Traits::kQInRegisters ? kDepthSteps : 1][kRowTiles][4];
  E4m3Query over_e4m3;  // reads Q for K in E4M3

  __device__ __forceinline__ void load(const Storage& storage) {
    if constexpr (kE4m3) over_e4m3.find_scale();
    if constexpr (Traits::kQInRegisters) {
      const RowAddress address = lane_address();
#pragma unroll
      for (int i = 0; i < kDepthSteps; ++i) load_step(storage, address, i, words[i]);
    }
  }
  // Operand A of product i.
  __device__ __forceinline__ const uint32_t (&get(const Storage& storage,
                                                  const RowAddress& address,
                                                  int i))[kRowTiles][4] {
    if constexpr (Traits::kQInRegisters) return words[i];
    load_step(storage, address, i, words[0]);
    return words[0];
  }

  // Row tiles are 16 rows apart.
  __device__ __forceinline__ static RowAddress lane_address() {
    return RowAddress(row_warp() * kWarpRows + threadIdx.x % 16, threadIdx.x % 32 / 16);
  }

 private:
  __device__ __forceinline__ void load_step(const Storage& storage, const RowAddress& address,
                                            int i, uint32_t (&step)[kRowTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      if constexpr (kE4m3) {
        over_e4m3.load(step[m], m, i);
      } else {
        ptx::ldmatrix_x4(step[m], address.at(storage.q(), 16 * m, 2 * i));
      }
    }
  }
};

// Adds Q·K^T over K in E4M3. A matrix of ldmatrix has 16 columns, those of one product.
__device__ __forceinline__ void multiply_qk_e4m3(float (&s)[kRowTiles][kScores], Query& query,
                                                 const Storage& storage, int stage) {
  const RowAddress q_address = Query::lane_address();
  const KvRowAddress address(ptx::opaque(threadIdx.x) % 32, 0);
#pragma unroll
  for (int i = 0; i < kDepthSteps; ++i) {
    const uint32_t(&q)[kRowTiles][4] = query.get(storage, q_address, i);
#pragma unroll
    for (int j = 0; j < kKeySteps; j += 2) {
      uint32_t k[4];  // four of 8 keys
      ptx::ldmatrix_x4(k, address.at(storage.k(stage), 16 * j, i));
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const uint2 columns = decode_columns(k[n]);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          ptx::mma_m16n8k16<kBf16Products>(&s[m][8 * j + 4 * n], q[m], columns.x, columns.y);
        }
      }
    }
  }
}

// S (kWarpRows, kTeamKeys) = Q (kWarpRows, D) * K (kTeamKeys, D)^T.
__device__ __forceinline__ void multiply_qk(float (&s)[kRowTiles][kScores], Query& query,
                                            const Storage& storage, int stage) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[m][i] = 0.0f;
  }
  if constexpr (kE4m3) {
    multiply_qk_e4m3(s, query, storage, stage);
    return;
  }
  const unsigned lane = ptx::opaque(threadIdx.x) % 32;  // addresses are cheaper than registers
  const RowAddress q_address = Query::lane_address();
  const KvRowAddress address(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
  for (int i = 0; i < kDepthSteps; ++i) {
    const uint32_t(&q)[kRowTiles][4] = query.get(storage, q_address, i);
#pragma unroll
    for (int j = 0; j < kKeySteps; ++j) {
      uint32_t k[4];  // two of 8 keys, each with two of 8 columns
      ptx::ldmatrix_x4(k, address.at(storage.k(stage), 16 * j, 2 * i));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          ptx::mma_m16n8k16<kBf16Products>(&s[m][8 * j + 4 * n], q[m], k[2 * n], k[2 * n + 1]);
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
    p[i] = pack_output<kBf16Products>(first, second);
  }
}

// O (kWarpRows, D) += P (kWarpRows, kTeamKeys) * V (kTeamKeys, D).
__device__ __forceinline__ void multiply_pv(Rows (&rows)[kRowTiles],
                                            const float (&s)[kRowTiles][kScores],
                                            const Storage& storage, int stage,
                                            float softmax_scale_log2) {
  const unsigned lane = ptx::opaque(threadIdx.x) % 32;
  const KvRowAddress address(lane % 16, lane / 16);
  constexpr int kLoads = kE4m3 ? 2 : 1;  // products of a load
#pragma unroll
  for (int j = 0; j < kKeySteps; ++j) {
    uint32_t p[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      exponentiate(p[m], &s[m][8 * j], rows[m], softmax_scale_log2);
    }
#pragma unroll
    for (int i = 0; i < kDepthSteps; i += kLoads) {
      uint32_t v[4];  // two of 8 columns, each with two of 8 keys
      ptx::ldmatrix_x4_trans(v, address.at(storage.v(stage), 16 * j, 2 * (i / kLoads)));
#pragma unroll
      for (int part = 0; part < kLoads; ++part) {
        uint32_t b[4] = {v[0], v[1], v[2], v[3]};
        if constexpr (kE4m3) decode_v(b, v[2 * part], v[2 * part + 1]);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            ptx::mma_m16n8k16<kBf16Products>(&rows[m].o[8 * (i + part) + 4 * n], p[m], b[2 * n],
                                             b[2 * n + 1]);
          }
        }
      }
    }
  }
}

}  // namespace attention::warp
