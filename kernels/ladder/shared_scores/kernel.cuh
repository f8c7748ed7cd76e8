// Attention with scores and P in shared memory (stages 0 to 3a).
//
// A block of NUM_WARPS warps computes TILE_M query rows of one head, in steps of TILE_N keys:
//
//   K and V codes          decoded to kv (TILE_N, D) halves
//   S = Q·K^T              (TILE_M, TILE_N) floats in shared memory
//   P = exp2(S - row_max)  (TILE_M, TILE_N) halves in shared memory
//   O = O * rescale + P·V  (TILE_M, D) floats in the registers of the warp that owns the row
//
// A warp owns TILE_M/NUM_WARPS rows: it computes their row max and row sum, and has their O. K and
// V share the buffer kv: V is decoded into it when every warp has read K.
//
// Stages, each with its change:
//   stage0   both products by scalar FMA; K and V loaded from global memory and decoded into kv
//   stage1   Q·K^T by WMMA, whose scores cross warps: one more block barrier. K and V copied by
//            cp.async into two stages, one step ahead
//   stage2   P·V by WMMA; the product returns to the owners of the rows through the score buffer,
//            which is free by then
//   stage3a  P overwrites the scores it is computed from, which saves a buffer. The product stays
//            in registers until every warp has read P
//
// Shared memory at TILE_M=32, TILE_N=64, D=64 (stage2): q 4.5 KB, kv 9 KB, scores 8.5 KB, p 4.5 KB,
// two stages of K and V codes 16 KB.
#pragma once

#include "../../include/e4m3.cuh"
#include "../../include/problem.cuh"
#include "../../include/ptx.cuh"
#include "load.cuh"
#include "mainloop.cuh"
#include "shared_storage.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace shared_scores {

// Issues the copies of the first steps, and loads Q.
__device__ __forceinline__ void prologue(const SharedStorage& smem, const Problem& problem,
                                         const WorkTile& tile, int steps) {
  if constexpr (knob::kCpAsync) {
#pragma unroll
    for (int step = 0; step < Sizes::kStages - 1; ++step) {
      if (step < steps) copy_step_async(smem, tile.k, tile.v, step, problem.keys);
      ptx::cp_async_commit_group();
    }
  }
  if constexpr (knob::kKvLut) {
    parallel_for<64>([&](unsigned i) {
      reinterpret_cast<uint2*>(smem.table)[i] = e4m3::decode4(0x03020100u + 0x04040404u * i);
    });
    __syncthreads();
  }
  load_direct<Sizes::kBlockM>(smem, tile.q, tile.first_query, problem.queries, smem.q);
}

// Normalises O and stores it.
__device__ __forceinline__ void epilogue(const RowState& rows, uint16_t* head, int first_row,
                                         int lane, int queries, float descale_v) {
#pragma unroll
  for (int r = 0; r < Sizes::kRows; ++r) {
    const float row_sum = warp_sum(rows.row_sum[r]);
    // A row that attends to no key is 0.
    const float scale = row_sum > 0.0f ? __fdiv_rn(descale_v, row_sum) : 0.0f;
    if (first_row + r >= queries) continue;
    __half2* row = reinterpret_cast<__half2*>(
        head + static_cast<size_t>(first_row + r) * Sizes::kHeadDim + lane * Sizes::kColumns);
#pragma unroll
    for (int c = 0; c < Sizes::kColumns; c += 2) {
      row[c / 2] = __floats2half2_rn(rows.o[r][c] * scale, rows.o[r][c + 1] * scale);
    }
  }
}

__device__ __forceinline__ void forward(const Problem& problem) {
  const SharedStorage smem = shared_storage(shared_memory<Sizes::kSharedBytes>());
  const int warp = threadIdx.x / 32u, lane = threadIdx.x % 32u;
  const Head head = block_head(problem);
  if (head.q >= problem.heads) return;
  const WorkTile tile = work_tile<Sizes::kBlockM, Sizes::kHeadDim>(problem, head, blockIdx.x);
  const Scales scales = load_scales(problem, head);
  const int steps = (static_cast<unsigned>(tile.key_end) + Sizes::kBlockN - 1) / Sizes::kBlockN;
  prologue(smem, problem, tile, steps);
  RowState rows;
  rows.clear();
  mainloop(rows, smem, problem, tile, scales.softmax_scale_log2, warp, lane, steps);
  epilogue(rows, tile.o, tile.first_query + warp * Sizes::kRows, lane, problem.queries,
           scales.descale_v);
}

}  // namespace shared_scores
