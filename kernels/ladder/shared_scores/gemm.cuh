// The two products of a step, S = Q·K^T and O += P·V: by scalar FMA or by WMMA.
#pragma once

#include <mma.h>

#include <type_traits>

#include "shared_storage.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace shared_scores {

namespace wmma = nvcuda::wmma;

// S = Q·K^T for the rows of a warp by scalar FMA; a lane has the keys lane, lane + 32, ...
__device__ __forceinline__ void compute_scores_scalar(const SharedStorage& smem, int first_row,
                                                      int lane) {
  constexpr int kRows = Sizes::kRows, kScores = Sizes::kScores;
  float acc[kRows][kScores] = {};  // (rows of the warp, keys of the lane)
  for (int d = 0; d < Sizes::kHeadDim; d += 8) {
    float2 k[kScores][4];
#pragma unroll
    for (int c = 0; c < kScores; ++c) {
      const uint4 bits =
          *reinterpret_cast<const uint4*>(smem.kv + (lane + 32 * c) * Sizes::kPitchQ + d);
      const __half2* halves = reinterpret_cast<const __half2*>(&bits);
#pragma unroll
      for (int i = 0; i < 4; ++i) k[c][i] = __half22float2(halves[i]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint4 bits =
          *reinterpret_cast<const uint4*>(smem.q + (first_row + r) * Sizes::kPitchQ + d);
      const __half2* halves = reinterpret_cast<const __half2*>(&bits);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 q = __half22float2(halves[i]);
#pragma unroll
        for (int c = 0; c < kScores; ++c) {
          acc[r][c] = fmaf(q.y, k[c][i].y, fmaf(q.x, k[c][i].x, acc[r][c]));
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kScores; ++c) {
      smem.scores[(first_row + r) * Sizes::kPitchScores + lane + 32 * c] = acc[r][c];
    }
  }
}

// D (rows, columns) = A (rows, depth) * B (depth, columns) in 16x16 fragments, split over the
// warps. With kWait D may overlap A or B: it is stored when every warp has read those.
template <typename LayoutB, int kRowsD, int kColumnsD, int kDepth, bool kWait = false>
__device__ __forceinline__ void gemm_wmma(const __half* a, int pitch_a, const __half* b,
                                          int pitch_b, float* d, int pitch_d, int warp) {
  constexpr int kFragment = 16;  // WMMA is m16n16k16
  constexpr int kAcross = kColumnsD / kFragment;
  constexpr int kTiles = kRowsD / kFragment * kAcross;
  constexpr int kRounds = (kTiles + Sizes::kWarps - 1) / Sizes::kWarps;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int tile = round * Sizes::kWarps + warp;
    if (kTiles % Sizes::kWarps != 0 && tile >= kTiles) break;
    const int row = tile / kAcross * kFragment, column = tile % kAcross * kFragment;
    wmma::fill_fragment(acc[round], 0.0f);
#pragma unroll
    for (int k = 0; k < kDepth; k += kFragment) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
      wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, LayoutB> fb;
      wmma::load_matrix_sync(fa, a + row * pitch_a + k, pitch_a);
      if constexpr (std::is_same_v<LayoutB, wmma::col_major>) {
        wmma::load_matrix_sync(fb, b + column * pitch_b + k, pitch_b);
      } else {
        wmma::load_matrix_sync(fb, b + k * pitch_b + column, pitch_b);
      }
      wmma::mma_sync(acc[round], fa, fb, acc[round]);
    }
  }
  if constexpr (kWait) __syncthreads();
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int tile = round * Sizes::kWarps + warp;
    if (kTiles % Sizes::kWarps != 0 && tile >= kTiles) break;
    const int row = tile / kAcross * kFragment, column = tile % kAcross * kFragment;
    wmma::store_matrix_sync(d + row * pitch_d + column, acc[round], pitch_d, wmma::mem_row_major);
  }
}

// S = Q·K^T to the score buffer.
__device__ __forceinline__ void compute_scores(const SharedStorage& smem, int first_row, int warp,
                                               int lane) {
  if constexpr (knob::kWmmaQk) {
    gemm_wmma<wmma::col_major, Sizes::kBlockM, Sizes::kBlockN, Sizes::kHeadDim>(
        smem.q, Sizes::kPitchQ, smem.kv, Sizes::kPitchQ, smem.scores, Sizes::kPitchScores, warp);
  } else {
    compute_scores_scalar(smem, first_row, lane);
  }
}

// O += P·V for the rows of a warp by scalar FMA.
__device__ __forceinline__ void multiply_pv_scalar(const SharedStorage& smem, RowState& rows,
                                                   int first_row, int lane) {
  constexpr int kColumns = Sizes::kColumns;
  for (int key = 0; key < Sizes::kBlockN; key += 2) {
    float v[2][kColumns];  // (two keys, columns of the lane)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(
            smem.kv + (key + i) * Sizes::kPitchQ + lane * kColumns + c));
        v[i][c] = pair.x;
        v[i][c + 1] = pair.y;
      }
    }
#pragma unroll
    for (int r = 0; r < Sizes::kRows; ++r) {
      const float2 p = __half22float2(
          *reinterpret_cast<const __half2*>(smem.p + (first_row + r) * Sizes::kPitchP + key));
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        rows.o[r][c] = fmaf(p.y, v[1][c], fmaf(p.x, v[0][c], rows.o[r][c]));
      }
    }
  }
}

// P·V of a step: to the score buffer by WMMA, or added to O by scalar FMA.
__device__ __forceinline__ void multiply_pv(const SharedStorage& smem, RowState& rows,
                                            int first_row, int warp, int lane) {
  if constexpr (knob::kWmmaPv) {
    gemm_wmma<wmma::row_major, Sizes::kBlockM, Sizes::kHeadDim, Sizes::kBlockN,
              knob::kFusedSoftmaxPv>(smem.p, Sizes::kPitchP, smem.kv, Sizes::kPitchQ, smem.scores,
                                     Sizes::kPitchProduct, warp);
  } else {
    multiply_pv_scalar(smem, rows, first_row, lane);
  }
}

// Adds P·V, which WMMA left in the score buffer, to O of the warp that owns the rows.
__device__ __forceinline__ void accumulate_pv(const SharedStorage& smem, RowState& rows,
                                              int first_row, int lane) {
#pragma unroll
  for (int r = 0; r < Sizes::kRows; ++r) {
#pragma unroll
    for (int c = 0; c < Sizes::kColumns; ++c) {
      rows.o[r][c] +=
          smem.scores[(first_row + r) * Sizes::kPitchProduct + lane * Sizes::kColumns + c];
    }
  }
}

}  // namespace shared_scores
