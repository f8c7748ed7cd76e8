// The kernel: a block computes one tile, or with splits the part of some keys. The warps of a team
// divide the rows of the tile, and the teams the keys of a step.
#pragma once

#include "gemm.cuh"
#include "include/ptx.cuh"
#include "loads.cuh"
#include "merge.cuh"
#include "output.cuh"
#include "problem.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::warp {

// The steps of a warp.
struct Mainloop {
  const Problem& p;
  Tile& tile;
  const Storage& storage;
  float scale_log2;
  Query query;
  Rows rows[kRowTiles];

  // From the last keys to the first: with a causal mask the last steps are the masked ones.
  __device__ __forceinline__ void run() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) rows[m].clear();
    if (tile.end_step == tile.first_step) return;
    if constexpr (kTeams > 1 && kHeadDim < 256) {
      run_as_team();
    } else if constexpr (kStages == 1) {
      run_with_one_stage();
    } else {
      run_with_stages();
    }
  }

 private:
  // K of a step arrives during P·V of the step before, and V during Q·K^T.
  __device__ __forceinline__ void run_with_one_stage() {
    const int last = tile.end_step - 1;
    copy_query(p, tile, storage);
    copy_k(p, tile, storage, last, 0);
    ptx::cp_async_commit_group();
#pragma unroll 1
    for (int n_block = last; n_block >= tile.first_step; --n_block) {
      float s[kRowTiles][kScores];
      await_all();  // K, and P·V of the step before
      copy_v(p, tile, storage, n_block, 0);
      ptx::cp_async_commit_group();
      if (n_block == last) load_query();
      const bool hidden = hides(p, tile, n_block);
      if (!hidden) multiply_qk(s, query, storage, 0);
      await_all();  // V, and Q·K^T
      if (n_block > tile.first_step) copy_k(p, tile, storage, n_block - 1, 0);
      ptx::cp_async_commit_group();
      if (!hidden) softmax_and_pv(s, n_block, 0);
    }
  }

  // K and V of later steps arrive during a step.
  __device__ __forceinline__ void run_with_stages() {
    const int last = tile.end_step - 1;
    copy_query(p, tile, storage);
    if constexpr (kTeams > 1) ptx::cp_async_commit_group();
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) {
      copy_step(p, tile, storage, last - i, first_stage(last, i));
    }
    if constexpr (kTeams > 1) await_query();
#pragma unroll 1
    for (int n_block = last, next = 0; n_block >= tile.first_step; --n_block) {
      const int stage = kStages == 2 ? first_stage(n_block, 0) : next;
      await<kStages - 2>();  // this step, and all of the step before
      copy_step(p, tile, storage, n_block - (kStages - 1), before(stage));
      if (kTeams == 1 && n_block == last) load_query();
      if (!hides(p, tile, n_block)) {
        float s[kRowTiles][kScores];
        multiply_qk(s, query, storage, stage);
        softmax_and_pv(s, n_block, stage);
      }
      if (++next == kStages) next = 0;
    }
  }

  // Few rows have few steps, of which fetching the code takes a share of the time. So a round before
  // the first step requests its K and V by the code of the others. Head dim 256 has no registers for
  // that.
  __device__ __forceinline__ void run_as_team() {
    const int last = tile.end_step - 1;
    copy_query(p, tile, storage);
    ptx::cp_async_commit_group();
#pragma unroll
    for (int i = 0; i < kStages - 2; ++i) copy_step(p, tile, storage, last - i, i);
#pragma unroll 1
    for (int n_block = last + 1, next = kStages - 1; n_block >= tile.first_step; --n_block) {
      const int stage = kStages == 2 ? first_stage(n_block, 0) : next;
      if (n_block <= last) await<kStages - 2>();  // this step, and all of the step before
      copy_step(p, tile, storage, n_block - (kStages - 1), before(stage));
      if (n_block > last) {
        await_query();
      } else if (!hides(p, tile, n_block)) {
        float s[kRowTiles][kScores];
        multiply_qk(s, query, storage, stage);
        softmax_and_pv(s, n_block, stage);
      }
      if (++next == kStages) next = 0;
    }
  }

  // Teams copy Q together, in a group before those of the first steps.
  __device__ __forceinline__ void await_query() {
    ptx::cp_async_wait_group<kStages - 1>();
    __syncthreads();
    load_query();
  }

  __device__ __forceinline__ void load_query() {
    query.load(storage);
    if constexpr (kE4m3) {
      tile.score_scale = query.over_e4m3.unscaled(tile.score_scale);
      scale_log2 = scores_scale_log2(p, tile);
    }
  }

  __device__ __forceinline__ void softmax_and_pv(float (&s)[kRowTiles][kScores], int n_block,
                                                 int stage) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) transform_scores(s[m], p, tile, lane_row(m), n_block);
    if (cuts(p, tile, n_block)) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) apply_mask(s[m], p, tile, lane_row(m), n_block);
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) update_row_max(s[m], rows[m], scale_log2);
    multiply_pv(rows, s, storage, stage, scale_log2);
  }

  // Waits for the copies of all threads of the team but the youngest kPending groups, and for all
  // of them to have done what is before.
  template <int kPending>
  __device__ __forceinline__ static void await() {
    ptx::cp_async_wait_group<kPending>();
    if constexpr (kTeams == 1) {
      __syncthreads();
    } else if constexpr (kTeamWarps == 1) {
      __syncwarp();
    } else {
      ptx::barrier_sync(1 + team_index(), kTeamThreads);
    }
  }
  __device__ __forceinline__ static void await_all() { await<0>(); }

  // The stage of a block's step i, of n_block - i. Two stages are those of even and of odd steps,
  // which takes no register.
  __device__ __forceinline__ static int first_stage(int n_block, int i) {
    return kStages == 2 ? n_block & 1 : i;
  }
  // The stage of the step before.
  __device__ __forceinline__ static int before(int stage) {
    return stage == 0 ? kStages - 1 : stage - 1;
  }
};

__device__ __forceinline__ void forward(const Problem& p) {
  Tile tile = block_tile(p);
  if (kHasOptions && tile.rows == 0) return;
  __shared__ Tile kept;  // for the end: the mainloop needs the registers
  if (kTeams > 1 && threadIdx.x == 0) kept = tile;
  const Storage storage;
  Mainloop mainloop = {p, tile, storage, scores_scale_log2(p, tile)};
  mainloop.run();
  Rows(&rows)[kRowTiles] = mainloop.rows;
  if constexpr (kTeams > 1) __syncthreads();
  // With many rows it is found again, which takes a small share of the time.
  const Tile done = kTeams > 1 ? kept : block_tile(p);
  if (kTeams > 1 || p.splits > 1) {
    merge_parts(p, done, rows);
    return;
  }
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) store_output(p, rows[m], done, lane_row(m));
}

}  // namespace attention::warp
