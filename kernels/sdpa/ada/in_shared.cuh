// Attention with scores and P in shared memory (stages 0 to 3a).
//
// One block of NUM_WARPS warps takes TILE_M query rows of one head and walks the keys in steps of TILE_N, with the online softmax:
//
//   bytes of K and V  --decode-->  kv (TILE_N, D) halves
//   S = Q K^T         (TILE_M, TILE_N) floats in shared memory
//   P = exp2(S - max) (TILE_M, TILE_N) halves in shared memory
//   O += P V          (TILE_M, D) floats in the registers of the warp that owns the row
//
// A warp owns TILE_M/NUM_WARPS rows: it reduces their maxima and sums, and holds their part of O. K and V share the buffer `kv`:
// V is decoded into it when every warp is done with K.
//
// Stages, each with what it changes:
//   stage0  all products by scalar FMA; K and V loaded straight from global memory, decoded on the way to `kv`
//   stage1  Q K^T by WMMA (S now crosses warps: a block barrier); K and V brought by cp.async into two buffers, one step ahead
//   stage2  P V by WMMA; the product returns to the owners of the rows through the score buffer, which is free by then
//   stage3a P in the place of the scores it comes from, a buffer less; the product waits in registers until P is no longer read
//
// Budget at TILE_M=32, TILE_N=64, D=64 (stage2): q 4.5 KB, kv 9 KB, scores 8.5 KB, p 4.5 KB, two times K and V bytes 16 KB.
// Rows are padded by 16 bytes, so that eight rows of a fragment fall into different banks.
#pragma once

#include <mma.h>

#include <cstdio>
#include <type_traits>

#include "../common/e4m3.cuh"
#include "../common/exp2.cuh"
#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "knobs.cuh"

namespace attention {

using namespace knob;
namespace wmma = nvcuda::wmma;

constexpr int kThreads = 32 * kWarps;
constexpr int kRows = kTileM / kWarps;   // rows a warp owns
constexpr int kScores = kTileN / 32;     // scores of a row a lane holds
constexpr int kColumns = kHeadDim / 32;  // columns of O a lane holds, side by side
constexpr int kChunks = kHeadDim / 16;   // 16-byte pieces of a row of codes
constexpr int kResident = 0;             // a block takes one tile

static_assert(kTileM % 16 == 0 && kTileN % 32 == 0, "tiles are made of 16x16 fragments and of warps");
static_assert(kTileM % kWarps == 0, "every warp owns as many rows");
static_assert(kHeadDim == 64 || kHeadDim == 128, "a lane holds two or four columns of O");

// Row pitches in elements.
constexpr int kPitchQ = kHeadDim + 8;       // halves: q and kv
constexpr int kPitchP = kFusedSoftmaxPv ? 2 * (kTileN + 4) : kTileN + 8;  // halves; in the scores' place a row lies where its scores lay
constexpr int kPitchScores = kTileN + 4;    // floats
constexpr int kPitchProduct = kHeadDim + 4; // floats: P V, in the score buffer

// Where each tile lies in the block's shared memory.
constexpr int kStageBytes = kTileN * kHeadDim;  // codes of one K or V tile
constexpr int kScoreFloats = kTileM * kPitchScores;
constexpr int kProductFloats = kWmmaPv ? kTileM * kPitchProduct : 0;
constexpr int kOffsetKv = kTileM * kPitchQ * 2;
constexpr int kOffsetScores = kOffsetKv + kTileN * kPitchQ * 2;
constexpr int kAfterScores = kOffsetScores + 4 * (kScoreFloats > kProductFloats ? kScoreFloats : kProductFloats);
constexpr int kOffsetP = kFusedSoftmaxPv ? kOffsetScores : kAfterScores;
constexpr int kOffsetStages = kFusedSoftmaxPv ? kAfterScores : kOffsetP + kTileM * kPitchP * 2;
constexpr int kOffsetTable = kOffsetStages + (kCpAsync ? kSlots * 2 * kStageBytes : 0);
constexpr int kSharedBytes = kOffsetTable + (kKvLut ? 256 * 2 : 0);

struct Tiles {
  __half* q;         // (TILE_M, D)
  __half* kv;        // (TILE_N, D)
  float* scores;     // (TILE_M, TILE_N), later P V (TILE_M, D)
  __half* p;         // (TILE_M, TILE_N)
  uint8_t* stages;   // (slots, K and V, TILE_N, D) codes
  uint16_t* table;   // (256)
};

// What one warp carries from step to step for the rows it owns.
struct Rows {
  float max[kRows];               // running maximum, in units of log2
  float sum[kRows];               // this lane's part of the running sum
  float out[kRows][kColumns];     // unnormalised O
};

__device__ __forceinline__ uint2 decode4(const Tiles& tiles, uint32_t codes) {
  if constexpr (kKvLut) {
    return e4m3::decode4_by_table(codes, tiles.table);
  } else {
    return e4m3::decode4(codes);
  }
}

// 16 codes to 16 halves in a row of q or kv.
__device__ __forceinline__ void decode_chunk(const Tiles& tiles, uint4 codes, __half* row) {
  const uint2 a = decode4(tiles, codes.x), b = decode4(tiles, codes.y);
  const uint2 c = decode4(tiles, codes.z), d = decode4(tiles, codes.w);
  reinterpret_cast<uint4*>(row)[0] = make_uint4(a.x, a.y, b.x, b.y);
  reinterpret_cast<uint4*>(row)[1] = make_uint4(c.x, c.y, d.x, d.y);
}

// Calls work(i) for every i below kCount, shared out over the threads of the block: in rounds whose number the compiler knows.
template <int kCount, typename Work>
__device__ __forceinline__ void share_out(Work work) {
#pragma unroll
  for (int round = 0; round < kCount / kThreads; ++round) work(round * kThreads + threadIdx.x);
  constexpr int kRest = kCount % kThreads;
  if constexpr (kRest != 0) {
    if (threadIdx.x < kRest) work(kCount - kRest + threadIdx.x);
  }
}

// Codes [first, first + kTileRows) of a head in global memory, decoded into a tile; rows past `rows` become zeros.
template <int kTileRows>
__device__ __forceinline__ void load_direct(const Tiles& tiles, const uint8_t* head, int first, int rows, __half* tile) {
  share_out<kTileRows * kChunks>([&](unsigned i) {
    const int row = i / kChunks, chunk = i % kChunks;
    uint4 codes = make_uint4(0, 0, 0, 0);
    if (first + row < rows) {
      codes = *reinterpret_cast<const uint4*>(head + static_cast<size_t>(first + row) * kHeadDim + chunk * 16);
    }
    decode_chunk(tiles, codes, tile + row * kPitchQ + chunk * 16);
  });
}

// Where 16-byte piece `chunk` of `row` lies in a staged tile. The swizzle spreads one column of pieces over the banks.
__device__ __forceinline__ int staged_offset(int row, int chunk) {
  const int place = kXorSwizzle ? chunk ^ (row % kChunks) : chunk;
  return row * kHeadDim + place * 16;
}

__device__ __forceinline__ uint8_t* staged_tile(const Tiles& tiles, int step, int which) {
  return tiles.stages + (step % kSlots * 2 + which) * kStageBytes;
}

// Starts the copy of step `step`'s K and V codes; keys past the end arrive as zeros.
__device__ __forceinline__ void copy_step_async(const Tiles& tiles, const uint8_t* k, const uint8_t* v, int step, int keys) {
  share_out<kTileN * kChunks>([&](unsigned i) {
    const int row = i / kChunks, chunk = i % kChunks;
    const int key = step * kTileN + row;
    const size_t from = static_cast<size_t>(key < keys ? key : 0) * kHeadDim + chunk * 16;
    const uint32_t bytes = key < keys ? 16 : 0;
    ptx::cp_async_cg_16(staged_tile(tiles, step, 0) + staged_offset(row, chunk), k + from, bytes);
    ptx::cp_async_cg_16(staged_tile(tiles, step, 1) + staged_offset(row, chunk), v + from, bytes);
  });
}

__device__ __forceinline__ void decode_staged(const Tiles& tiles, const uint8_t* staged) {
  share_out<kTileN * kChunks>([&](unsigned i) {
    const int row = i / kChunks, chunk = i % kChunks;
    const uint4 codes = *reinterpret_cast<const uint4*>(staged + staged_offset(row, chunk));
    decode_chunk(tiles, codes, tiles.kv + row * kPitchQ + chunk * 16);
  });
}

// K (which = 0) or V (which = 1) of a step into kv.
__device__ __forceinline__ void fill_kv(const Tiles& tiles, const uint8_t* head, int step, int which, int keys) {
  if constexpr (kCpAsync) {
    decode_staged(tiles, staged_tile(tiles, step, which));
  } else {
    load_direct<kTileN>(tiles, head, step * kTileN, keys, tiles.kv);
  }
}

// S = Q K^T for the rows of this warp, by scalar FMA; a lane takes the keys lane, lane + 32, ...
__device__ __forceinline__ void scores_scalar(const Tiles& tiles, int first_row, int lane) {
  float acc[kRows][kScores] = {};  // (rows of the warp, keys of the lane)
  for (int d = 0; d < kHeadDim; d += 8) {
    float2 k[kScores][4];
#pragma unroll
    for (int c = 0; c < kScores; ++c) {
      const uint4 bits = *reinterpret_cast<const uint4*>(tiles.kv + (lane + 32 * c) * kPitchQ + d);
      const __half2* halves = reinterpret_cast<const __half2*>(&bits);
#pragma unroll
      for (int i = 0; i < 4; ++i) k[c][i] = __half22float2(halves[i]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const uint4 bits = *reinterpret_cast<const uint4*>(tiles.q + (first_row + r) * kPitchQ + d);
      const __half2* halves = reinterpret_cast<const __half2*>(&bits);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 q = __half22float2(halves[i]);
#pragma unroll
        for (int c = 0; c < kScores; ++c) acc[r][c] = fmaf(q.y, k[c][i].y, fmaf(q.x, k[c][i].x, acc[r][c]));
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kScores; ++c) tiles.scores[(first_row + r) * kPitchScores + lane + 32 * c] = acc[r][c];
  }
}

// D (rows, columns) = A (rows, depth) B (depth, columns) in 16x16 fragments, shared out over the warps. With kWait D may lie where A or B lies: it is
// stored when every warp is done with those.
template <typename LayoutB, int kRowsD, int kColumnsD, int kDepth, bool kWait = false>
__device__ __forceinline__ void product_wmma(const __half* a, int pitch_a, const __half* b, int pitch_b, float* d, int pitch_d,
                                             int warp) {
  constexpr int kFragment = 16;  // WMMA is m16n16k16
  constexpr int kAcross = kColumnsD / kFragment;
  constexpr int kTiles = kRowsD / kFragment * kAcross;
  constexpr int kRounds = (kTiles + kWarps - 1) / kWarps;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int tile = round * kWarps + warp;
    if (kTiles % kWarps != 0 && tile >= kTiles) break;
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
    const int tile = round * kWarps + warp;
    if (kTiles % kWarps != 0 && tile >= kTiles) break;
    const int row = tile / kAcross * kFragment, column = tile % kAcross * kFragment;
    wmma::store_matrix_sync(d + row * pitch_d + column, acc[round], pitch_d, wmma::mem_row_major);
  }
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, offset));
  return x;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, offset);
  return x;
}

// Online softmax of the warp's rows over one step: P, the new maxima and sums, and O scaled to the new maxima.
// With a causal mask row r of the warp sees the keys below visible + r.
__device__ __forceinline__ void softmax(const Tiles& tiles, Rows& rows, int first_row, int lane, int step, int keys, int visible,
                                        bool causal, float scale_log2) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float* scores = tiles.scores + (first_row + r) * kPitchScores;
    const int limit = causal ? min(keys, visible + r) : keys;
    float x[kScores];
    float top = -INFINITY;
#pragma unroll
    for (int c = 0; c < kScores; ++c) {
      const int key = step * kTileN + lane + 32 * c;
      x[c] = key < limit ? scores[lane + 32 * c] * scale_log2 : -INFINITY;
      top = fmaxf(top, x[c]);
    }
    top = fmaxf(rows.max[r], warp_max(top));
    const float base = top == -INFINITY ? 0.0f : top;  // a row that has seen no key yet must not compute inf - inf
    const float shrink = ptx::ex2_approx_ftz(rows.max[r] - base);
    rows.max[r] = top;
    rows.sum[r] *= shrink;
    if constexpr (kFusedSoftmaxPv) __syncwarp();  // every lane has its scores: P goes in their place
#pragma unroll
    for (int c = 0; c < kScores; ++c) {
      const __half p = __float2half_rn(exp2_of<knob::kPolynomialEighths>(x[c] - base, r + c));
      rows.sum[r] += __half2float(p);  // the sum of what P V will use
      tiles.p[(first_row + r) * kPitchP + lane + 32 * c] = p;
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) rows.out[r][c] *= shrink;
  }
}

// O += P V for the rows of this warp, by scalar FMA.
__device__ __forceinline__ void output_scalar(const Tiles& tiles, Rows& rows, int first_row, int lane) {
  for (int key = 0; key < kTileN; key += 2) {
    float v[2][kColumns];  // (two keys, columns of the lane)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        const float2 pair =
            __half22float2(*reinterpret_cast<const __half2*>(tiles.kv + (key + i) * kPitchQ + lane * kColumns + c));
        v[i][c] = pair.x;
        v[i][c + 1] = pair.y;
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float2 p = __half22float2(*reinterpret_cast<const __half2*>(tiles.p + (first_row + r) * kPitchP + key));
#pragma unroll
      for (int c = 0; c < kColumns; ++c) rows.out[r][c] = fmaf(p.y, v[1][c], fmaf(p.x, v[0][c], rows.out[r][c]));
    }
  }
}

// Takes the product P V, which WMMA left in the score buffer, into the rows of this warp.
__device__ __forceinline__ void collect_product(const Tiles& tiles, Rows& rows, int first_row, int lane) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      rows.out[r][c] += tiles.scores[(first_row + r) * kPitchProduct + lane * kColumns + c];
    }
  }
}

__device__ __forceinline__ void store_output(const Rows& rows, uint16_t* head, int first_row, int lane, int queries, float descale_v) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float sum = warp_sum(rows.sum[r]);
    const float factor = sum > 0.0f ? __fdiv_rn(descale_v, sum) : 0.0f;  // a row that sees no key gives zeros
    if (first_row + r >= queries) continue;
    __half2* row = reinterpret_cast<__half2*>(head + static_cast<size_t>(first_row + r) * kHeadDim + lane * kColumns);
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      row[c / 2] = __floats2half2_rn(rows.out[r][c] * factor, rows.out[r][c + 1] * factor);
    }
  }
}

__device__ __forceinline__ void attend(const Problem& problem) {
  unsigned char* memory = shared_memory<kSharedBytes>();
  const Tiles tiles = {reinterpret_cast<__half*>(memory),
                       reinterpret_cast<__half*>(memory + kOffsetKv),
                       reinterpret_cast<float*>(memory + kOffsetScores),
                       reinterpret_cast<__half*>(memory + kOffsetP),
                       memory + kOffsetStages,
                       reinterpret_cast<uint16_t*>(memory + kOffsetTable)};
  const int warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
  const int first_row = warp * kRows;  // of the tile
  const Head head = head_of_block(problem);
  if (head.q >= problem.heads) return;
  const Tile tile = tile_of(problem, head, blockIdx.x);
  const Factors factors = factors_of(problem, head);
  const int keys = problem.keys;
  const int steps = (static_cast<unsigned>(tile.seen) + kTileN - 1) / kTileN;

  if constexpr (kCpAsync) {
#pragma unroll
    for (int step = 0; step < kSlots - 1; ++step) {
      if (step < steps) copy_step_async(tiles, tile.k, tile.v, step, keys);
      ptx::cp_async_commit_group();
    }
  }
  if constexpr (kKvLut) {
    share_out<64>([&](unsigned i) {
      reinterpret_cast<uint2*>(tiles.table)[i] = e4m3::decode4(0x03020100u + 0x04040404u * i);
    });
    __syncthreads();
  }
  load_direct<kTileM>(tiles, tile.q, tile.first_query, problem.queries, tiles.q);

  Rows rows;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    rows.max[r] = -INFINITY;
    rows.sum[r] = 0.0f;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) rows.out[r][c] = 0.0f;
  }

  for (int step = 0; step < steps; ++step) {
    if constexpr (kCpAsync) {
      // The slot of step + kSlots - 1 was last read while V of step - 1 was decoded, two barriers ago.
      const int ahead = step + kSlots - 1;
      if (ahead < steps) copy_step_async(tiles, tile.k, tile.v, ahead, keys);
      ptx::cp_async_commit_group();
      ptx::cp_async_wait_group<kSlots - 1>();
    }
    __syncthreads();  // this step's bytes have arrived for every thread, and the last P V is done with kv
    if constexpr (kWmmaPv) {
      if (step > 0) collect_product(tiles, rows, first_row, lane);
    }
    fill_kv(tiles, tile.k, step, 0, keys);
    __syncthreads();  // K is whole (and in the first step Q), and the last P V has left the score buffer
    if constexpr (kWmmaQk) {
      product_wmma<wmma::col_major, kTileM, kTileN, kHeadDim>(tiles.q, kPitchQ, tiles.kv, kPitchQ, tiles.scores, kPitchScores,
                                                              warp);
    } else {
      scores_scalar(tiles, first_row, lane);
    }
    __syncthreads();  // every fragment of S is stored, and K is no longer read
    fill_kv(tiles, tile.v, step, 1, keys);
    softmax(tiles, rows, first_row, lane, step, keys, tile.visible + first_row, problem.causal, factors.scores_log2);
    if constexpr (kDebugPrint) {
      if (head.q == 0 && tile.first_query == 0 && threadIdx.x == 0) {
        printf("sdpa: keys from %d, row 0: max %g, sum of lane 0 %g, out[0] %g\n", step * kTileN, rows.max[0], rows.sum[0],
               rows.out[0][0]);
      }
    }
    __syncthreads();  // V and P are whole
    if constexpr (kWmmaPv) {
      product_wmma<wmma::row_major, kTileM, kHeadDim, kTileN, kFusedSoftmaxPv>(tiles.p, kPitchP, tiles.kv, kPitchQ, tiles.scores,
                                                                               kPitchProduct, warp);
    } else {
      output_scalar(tiles, rows, first_row, lane);
    }
  }
  if constexpr (kWmmaPv) {
    __syncthreads();  // the last P V is stored
    if (steps > 0) collect_product(tiles, rows, first_row, lane);
  }
  if constexpr (kCpAsync) ptx::cp_async_wait_group<0>();
  store_output(rows, tile.o, tile.first_query + first_row, lane, problem.queries, factors.out);
}

}  // namespace attention
