// The two products of a step: S = Q·K^T, and O += P·V with the exponentials.
#pragma once

#include <cstdint>
#include <type_traits>

#include "include/e4m3.cuh"
#include "include/mma_m16n8k32.cuh"
#include "include/output.cuh"
#include "include/ptx.cuh"
#include "include/swizzled_rows.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::warp8 {

// Q of a warp as operand A, in registers or read again in every step.
struct Query {
  uint32_t words[Traits::kQInRegisters ? kDepthSteps : 1][kRowTiles][4];
  SwizzledRow<kQkRowBytes> address;

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

// The sums of 16 rows and 8 keys, in the format of the products.
__device__ __forceinline__ void multiply(int32_t (&sum)[4], const uint32_t (&q)[4], uint32_t k0,
                                         uint32_t k1) {
  ptx::mma_m16n8k32_s8(sum, q, k0, k1);
}
__device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&q)[4], uint32_t k0,
                                         uint32_t k1) {
  ptx::mma_m16n8k32_e4m3(sum, q, k0, k1);
}
__device__ __forceinline__ float score(int32_t sum) { return __int_as_float(sum); }
__device__ __forceinline__ float score(float sum) { return sum; }

// S (kWarpRows, TILE_N) = Q (kWarpRows, D) * K (TILE_N, D)^T, with kScoreOrigin added.
__device__ __forceinline__ void multiply_qk(float (&s)[kRowTiles][kScores], Query& query,
                                            const Storage& storage, int stage) {
  using Sum = std::conditional_t<kE4M3Qk, float, int32_t>;
  const int lane = ptx::opaque(threadIdx.x) % 32;  // addresses are cheaper than registers
  const SwizzledRow<kQkRowBytes> address(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  Sum sums[kRowTiles][kBlockN / 8][4];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) sums[m][i / 4][i % 4] = kE4M3Qk ? 0 : kScoreOriginBits;
  }
#pragma unroll
  for (int i = 0; i < kDepthSteps; ++i) {
    const uint32_t(&q)[kRowTiles][4] = query.get(storage, i);
#pragma unroll
    for (int j = 0; j < kBlockN / 16; ++j) {
      uint32_t k[4];  // two of 8 keys, each with two of 16 columns
      ptx::ldmatrix_x4(k, address.at(storage.k(stage), 16 * j, 2 * i));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) multiply(sums[m][2 * j + n], q[m], k[2 * n], k[2 * n + 1]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[m][i] = score(sums[m][i / 4][i % 4]);
  }
}

// P of two adjacent keys of a row: scores i and i + 1 of the lane. The row sums are those before
// the rounding.
__device__ __forceinline__ float2 exponentiate(const float (&s)[kScores], int i, Rows& rows,
                                               const ScoreScale& scale) {
  const int half = i / 2 % 2;
  const float offset = fmaf(-kScoreOrigin, scale.at(i), rows.neg_row_max_scaled[half]);
  const float2 p = {ptx::ex2_approx_ftz(fmaf(s[i], scale.at(i), offset)),
                    ptx::ex2_approx_ftz(fmaf(s[i + 1], scale.at(i), offset))};
  rows.row_sum[half] += p.x + p.y;
  return p;
}

// O (kWarpRows, D) += P (kWarpRows, TILE_N) * V (TILE_N, D), with P and V of 16 bits. P is
// exponentiated 16 keys at a time, between the products.
__device__ __forceinline__ void multiply_pv16(Rows (&rows)[kRowTiles],
                                              const float (&s)[kRowTiles][kScores],
                                              const ScoreScale& scale, const Storage& storage,
                                              int stage) {
  const int lane = ptx::opaque(threadIdx.x) % 32;
  const SwizzledRow<kVRowBytes> address(lane % 16, lane / 16);
#pragma unroll
  for (int j = 0; j < kKeySteps; ++j) {
    uint32_t p[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = exponentiate(s[m], 8 * j + 2 * i, rows[m], scale);
        p[m][i] = pack_output<kBf16>(pair.x, pair.y);
      }
    }
#pragma unroll
    for (int i = 0; i < kHeadDim / 16; ++i) {
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

// P of a step in E4M3, as operand A of each 32 keys. The scores of two keys from each of two score
// tiles are four consecutive bytes of it: bytes 4t to 4t+3 are keys 2t, 2t+1, 2t+8 and 2t+9.
__device__ __forceinline__ void exponentiate_e4m3(uint32_t (&p)[kKeySteps][4],
                                                  const float (&s)[kScores], Rows& rows,
                                                  const ScoreScale& scale) {
#pragma unroll
  for (int j = 0; j < kKeySteps; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = 16 * j + i / 2 * 8 + i % 2 * 2;
      const float2 low = exponentiate(s, first, rows, scale);
      const float2 high = exponentiate(s, first + 4, rows, scale);
      p[j][i] = e4m3::encode4(low.x, low.y, high.x, high.y);
    }
  }
}

// O (kWarpRows, D) = O * rescale + P (kWarpRows, TILE_N) * V (TILE_N, D), with P and V in E4M3. The
// products of a step start from zero and are added in FP32: the tensor cores of sm_89 keep 13 bits
// of a sum.
//
// ldmatrix transposes pairs of bytes: of 8 keys and 16 columns a lane receives keys 2t and 2t+1 of
// columns 2g and 2g+1. Of 16 keys the even bytes are column 2g as operand B, in the order of keys
// that P has, and the odd bytes column 2g+1. So a lane ends with columns 4t and 4t+2 of each 16 by
// the first product, and 4t+1 and 4t+3 by the second.
__device__ __forceinline__ void multiply_pv8(Rows (&rows)[kRowTiles],
                                             const uint32_t (&p)[kRowTiles][kKeySteps][4],
                                             const float (&rescale)[kRowTiles][2],
                                             const Storage& storage, int stage) {
  const int lane = ptx::opaque(threadIdx.x) % 32;
  const SwizzledRow<kVRowBytes> address(lane, 0);
#pragma unroll
  for (int i = 0; i < kHeadDim / 16; ++i) {
    __syncwarp();  // ptxas would read all of V first, and spill
    float sums[kRowTiles][2][4] = {};
#pragma unroll
    for (int j = 0; j < kKeySteps; ++j) {
      uint32_t v[4];  // each of 8 keys
      ptx::ldmatrix_x4_trans(v, address.at(storage.v(stage), 32 * j, i));
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const uint32_t bytes = n == 0 ? 0x6420 : 0x7531;
        const uint32_t first = __byte_perm(v[0], v[1], bytes);
        const uint32_t second = __byte_perm(v[2], v[3], bytes);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          ptx::mma_m16n8k32_e4m3(sums[m][n], p[m][j], first, second);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        float& o = rows[m].o[8 * i + k];
        o = fmaf(o, rescale[m][k / 2 % 2], sums[m][k / 4][k % 4]);
      }
    }
  }
}

}  // namespace attention::warp8
