// The two products of a step on the tensor cores:
//
//   S = Q·K^T   (16, TILE_N) floats per row tile
//   O += P·V    (16, D) floats per row tile. V has one more column, of ones: it gives the row sums
//               of P as P was rounded
//
// The operands are halves, decoded from the codes of K and V. With USE_FP8_MMA on sm_89 and later
// they are E4M3: the codes as loaded, and P scaled by 2^8 (softmax.cuh) and rounded. The tensor
// cores of sm_89 keep about 13 bits of a sum, so P·V is summed from zero over kPromoteKeys keys and
// then added to O in FP32. For rows that attend to few keys P is multiplied in two parts.
#pragma once

#include <cstdint>

#include "../../include/e4m3.cuh"
#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "fragments.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace register_scores {

// S = Q·K^T.
template <typename KSource>
__device__ __forceinline__ void compute_scores(Scores& scores, const QFragment& q,
                                               const KSource& source, const SharedStorage& smem,
                                               const Position& at) {
#pragma unroll
  for (int j = 0; j < Sizes::kScoreTiles; ++j) {
    const RowWords k = source.get(j, at);
#pragma unroll
    for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores.s[m][j][i] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < Sizes::kWordsK; i += knob::kFp8Mma ? 2 : 1) {
      if constexpr (knob::kFp8Mma) {
#pragma unroll
        for (int m = 0; m < Sizes::kRowTiles; ++m) {
          ptx::mma_m16n8k32_e4m3(scores.s[m][j], q.a[m][i / 2], k.w[i], k.w[i + 1]);
        }
      } else {
        const uint2 b = decode4(smem, k.w[i]);
#pragma unroll
        for (int m = 0; m < Sizes::kRowTiles; ++m) {
          ptx::mma_m16n8k16_f16(scores.s[m][j], q.a[m][i], b.x, b.y);
        }
      }
    }
  }
}

constexpr uint32_t kOnesF16 = 0x3C003C00u, kOnesE4m3 = 0x38383838u;  // a word of the column of ones

// O += P·V with halves, 16 keys at a time.
template <typename VSource>
__device__ __forceinline__ void multiply_pv_f16(RowState& rows, const Scores& p,
                                                const VSource& source, const SharedStorage& smem,
                                                const Position& at) {
#pragma unroll
  for (int b = 0; b < Sizes::kKeyBlocks; ++b) {
    const VWords v = source.get(b, at);
    uint32_t a[Sizes::kRowTiles][4];  // P of the 16 keys
#pragma unroll
    for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&s)[4] = p.s[m][2 * b + i / 2];
        a[m][i] = half2_bits(s[i % 2 * 2], s[i % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int m = 0; m < Sizes::kRowTiles; ++m) {
      ptx::mma_m16n8k16_f16(rows.o[m][Sizes::kOutTiles], a[m], kOnesF16, kOnesF16);
    }
#pragma unroll
    for (int w = 0; w < Sizes::kWordsV; ++w) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // bytes 0 and 1 of the words, then 2 and 3
        const unsigned select = half == 0 ? 0x5140 : 0x7362;
        const uint2 b0 = decode4(smem, __byte_perm(v.w[0][w], v.w[1][w], select));
        const uint2 b1 = decode4(smem, __byte_perm(v.w[2][w], v.w[3][w], select));
#pragma unroll
        for (int m = 0; m < Sizes::kRowTiles; ++m) {
          ptx::mma_m16n8k16_f16(rows.o[m][4 * w + 2 * half], a[m], b0.x, b1.x);
          ptx::mma_m16n8k16_f16(rows.o[m][4 * w + 2 * half + 1], a[m], b0.y, b1.y);
        }
      }
    }
  }
}

// The transpose of four words of four bytes: word i of the result has byte i of each.
__device__ __forceinline__ void transpose4(uint32_t (&x)[4], uint32_t a, uint32_t b, uint32_t c,
                                           uint32_t d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  x[0] = __byte_perm(ab_low, cd_low, 0x5410);
  x[1] = __byte_perm(ab_low, cd_low, 0x7632);
  x[2] = __byte_perm(ab_high, cd_high, 0x5410);
  x[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// Rounds four values of P to codes. If another part follows, the rounding error replaces the
// values.
__device__ __forceinline__ uint32_t encode_p(float (&s)[2][4], int row, bool more) {
  const uint32_t codes = e4m3::encode4(s[0][row], s[0][row + 1], s[1][row], s[1][row + 1]);
  if (more) {
    const uint2 halves = e4m3::decode4(codes);
    const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&halves.x));
    const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&halves.y));
    s[0][row] -= a.x, s[0][row + 1] -= a.y, s[1][row] -= b.x, s[1][row + 1] -= b.y;
  }
  return codes;
}

// Keys that the tensor cores sum before the sum is added to O in FP32. One instruction has 32.
constexpr int kPromoteKeys = 32;

// O += P·V with E4M3, 32 keys at a time.
template <typename VSource>
__device__ __forceinline__ void multiply_pv_part(RowState& rows, Scores& p, const VSource& source,
                                                 bool more, const Position& at) {
  constexpr int kRun = kPromoteKeys / 32;  // instructions before the sum leaves the tensor cores
#pragma unroll
  for (int first = 0; first < Sizes::kBlockN / 32; first += kRun) {
    uint32_t a[kRun][Sizes::kRowTiles][4];      // P of 32 keys
    uint32_t v[kRun][2][Sizes::kOutTiles + 1];  // V of 32 keys: two words per column and of ones
#pragma unroll
    for (int b = 0; b < kRun; ++b) {
#pragma unroll
      for (int m = 0; m < Sizes::kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          auto& pair = reinterpret_cast<float(&)[2][4]>(p.s[m][4 * (first + b) + i / 2 * 2]);
          a[b][m][i] = encode_p(pair, i % 2 * 2, more);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const VWords words = source.get(2 * (first + b) + half, at);
        v[b][half][Sizes::kOutTiles] = kOnesE4m3;
#pragma unroll
        for (int w = 0; w < Sizes::kWordsV; ++w) {
          uint32_t columns[4];
          transpose4(columns, words.w[0][w], words.w[1][w], words.w[2][w], words.w[3][w]);
#pragma unroll
          for (int i = 0; i < 4; ++i) v[b][half][4 * w + i] = columns[i];
        }
      }
    }
#pragma unroll
    for (int n = 0; n <= Sizes::kOutTiles; ++n) {
#pragma unroll
      for (int m = 0; m < Sizes::kRowTiles; ++m) {
        float sum[4] = {};
#pragma unroll
        for (int b = 0; b < kRun; ++b) {
          ptx::mma_m16n8k32_e4m3(sum, a[b][m], v[b][0][n], v[b][1][n]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) rows.o[m][n][i] += sum[i];
      }
    }
  }
}

// A row that attends to fewer keys does not average out the rounding of its P. It multiplies the
// rounded P, and then the rounding error as a second part.
constexpr int kFewKeys = 32;

template <typename VSource>
__device__ __forceinline__ void multiply_pv(RowState& rows, Scores& p, const VSource& source,
                                            const Problem& problem, const WorkTile& tile,
                                            const SharedStorage& smem, const Position& at) {
  if constexpr (knob::kFp8Mma) {
    const int fewest =
        problem.causal
            ? min(problem.keys, tile.causal_key_end + at.row_warp * Sizes::kRowTiles * 16)
            : problem.keys;
    const int parts = fewest < kFewKeys ? 2 : 1;
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      multiply_pv_part(rows, p, source, part + 1 < parts, at);
    }
  } else {
    multiply_pv_f16(rows, p, source, smem, at);
  }
}

}  // namespace register_scores
