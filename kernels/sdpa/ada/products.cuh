// The two products of a step on the tensor cores:
//
//   S = Q K^T   (16, TILE_N) floats for each row tile
//   O += P V    (16, D) floats for each row tile; V has a column of ones more, which gives the sums of the rows of P as P was rounded
//
// The operands are halves, to which the codes of K and V are decoded on the way. With USE_FP8_MMA they are E4M3, on chips that have such products
// (before sm_89: halves as ever): the codes as they came, and P, which softmax.cuh has scaled by 2^8 for that, rounded to codes. P V is then summed
// afresh every PROMOTE_KEYS keys and added to O in FP32, because the tensor cores of sm_89 keep only some 13 bits of a sum. P of rows that see few
// keys is multiplied in two parts.
#pragma once

#include <cstdint>

#include "../common/e4m3.cuh"
#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "block.cuh"
#include "fragments.cuh"

namespace attention {

// S = Q K^T, (16, TILE_N) for each row tile.
template <typename Keys>
__device__ __forceinline__ void multiply_qk(Scores& scores, const Query& query, const Keys& keys, const Shared& shared, const Place& at) {
#pragma unroll
  for (int j = 0; j < kScoreTiles; ++j) {
    const Words k = keys.get(j, at);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores.s[m][j][i] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kWordsK; i += kFp8Mma ? 2 : 1) {
      if constexpr (kFp8Mma) {
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) ptx::mma_m16n8k32_e4m3(scores.s[m][j], query.a[m][i / 2], k.w[i], k.w[i + 1]);
      } else {
        const uint2 b = decode4(shared, k.w[i]);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) ptx::mma_m16n8k16_f16(scores.s[m][j], query.a[m][i], b.x, b.y);
      }
    }
  }
}

constexpr uint32_t kOnesF16 = 0x3C003C00u, kOnesE4m3 = 0x38383838u;  // a word of the column of ones

// O += P V with halves, 16 keys at a time.
template <typename ValueSource>
__device__ __forceinline__ void multiply_pv_f16(Output& out, const Scores& p, const ValueSource& source, const Shared& shared, const Place& at) {
#pragma unroll
  for (int b = 0; b < kKeyBlocks; ++b) {
    const Values v = source.get(b, at);
    uint32_t a[kRowTiles][4];  // P of the 16 keys
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = half2_bits(p.s[m][2 * b + i / 2][i % 2 * 2], p.s[m][2 * b + i / 2][i % 2 * 2 + 1]);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) ptx::mma_m16n8k16_f16(out.o[m][kOutTiles], a[m], kOnesF16, kOnesF16);
#pragma unroll
    for (int w = 0; w < kWordsV; ++w) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // bytes 0 and 1 of the words, then 2 and 3: two columns of V each
        const unsigned pick = half == 0 ? 0x5140 : 0x7362;
        const uint2 b0 = decode4(shared, __byte_perm(v.w[0][w], v.w[1][w], pick));
        const uint2 b1 = decode4(shared, __byte_perm(v.w[2][w], v.w[3][w], pick));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          ptx::mma_m16n8k16_f16(out.o[m][4 * w + 2 * half], a[m], b0.x, b1.x);
          ptx::mma_m16n8k16_f16(out.o[m][4 * w + 2 * half + 1], a[m], b0.y, b1.y);
        }
      }
    }
  }
}

// The transpose of four words of four bytes: word i of the result has byte i of each.
__device__ __forceinline__ void transpose4(uint32_t (&x)[4], uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  x[0] = __byte_perm(ab_low, cd_low, 0x5410);
  x[1] = __byte_perm(ab_low, cd_low, 0x7632);
  x[2] = __byte_perm(ab_high, cd_high, 0x5410);
  x[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

// Four numbers of P to codes; what rounding took stays behind in them, for another part, if there is to be one.
__device__ __forceinline__ uint32_t encode_p(float (&s)[2][4], int row, bool more) {
  const uint32_t codes = e4m3::encode4(s[0][row], s[0][row + 1], s[1][row], s[1][row + 1]);
  if (more) {
    const uint2 halves = e4m3::decode4(codes);
    const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&halves.x)), b = __half22float2(*reinterpret_cast<const __half2*>(&halves.y));
    s[0][row] -= a.x, s[0][row + 1] -= a.y, s[1][row] -= b.x, s[1][row + 1] -= b.y;
  }
  return codes;
}

// O += P V with E4M3, 32 keys at a time; each PROMOTE_KEYS keys are summed by the tensor cores from zero, and that sum is added to O in FP32.
template <typename ValueSource>
__device__ __forceinline__ void multiply_part_e4m3(Output& out, Scores& p, const ValueSource& source, bool more, const Place& at) {
  constexpr int kRun = kPromoteKeys / 32;  // products before the sum leaves the tensor cores
#pragma unroll
  for (int first = 0; first < kTileN / 32; first += kRun) {
    uint32_t a[kRun][kRowTiles][4];      // P of 32 keys
    uint32_t v[kRun][2][kOutTiles + 1];  // V of 32 keys: two words of a column, and of one of ones
#pragma unroll
    for (int b = 0; b < kRun; ++b) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          auto& pair = reinterpret_cast<float(&)[2][4]>(p.s[m][4 * (first + b) + i / 2 * 2]);
          a[b][m][i] = encode_p(pair, i % 2 * 2, more);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Values rows = source.get(2 * (first + b) + half, at);
        v[b][half][kOutTiles] = kOnesE4m3;
#pragma unroll
        for (int w = 0; w < kWordsV; ++w) {
          uint32_t columns[4];
          transpose4(columns, rows.w[0][w], rows.w[1][w], rows.w[2][w], rows.w[3][w]);
#pragma unroll
          for (int i = 0; i < 4; ++i) v[b][half][4 * w + i] = columns[i];
        }
      }
    }
#pragma unroll
    for (int n = 0; n <= kOutTiles; ++n) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        float sum[4] = {};
#pragma unroll
        for (int b = 0; b < kRun; ++b) ptx::mma_m16n8k32_e4m3(sum, a[b][m], v[b][0][n], v[b][1][n]);
#pragma unroll
        for (int i = 0; i < 4; ++i) out.o[m][n][i] += sum[i];
      }
    }
  }
}

// A row that sees many keys averages over the rounding of its P. One that sees few does not: the rounded P, and then what rounding took, each by
// itself.
constexpr int kFewKeys = 32;

template <typename ValueSource>
__device__ __forceinline__ void multiply_pv(Output& out, Scores& p, const ValueSource& source, const Problem& problem, const Tile& tile,
                                            const Shared& shared, const Place& at) {
  if constexpr (kFp8Mma) {
    const int fewest = problem.causal ? min(problem.keys, tile.visible + at.row_warp * kRowTiles * 16) : problem.keys;
    const int parts = fewest < kFewKeys ? 2 : 1;
#pragma unroll 1
    for (int part = 0; part < parts; ++part) multiply_part_e4m3(out, p, source, part + 1 < parts, at);
  } else {
    multiply_pv_f16(out, p, source, shared, at);
  }
}

}  // namespace attention
