// The kernel: a block computes one tile, and each warp its rows of it.
#pragma once

#include "gemm.cuh"
#include "include/ptx.cuh"
#include "loads.cuh"
#include "output.cuh"
#include "problem.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::warp8 {

// The steps of a warp.
struct Mainloop {
  const Problem& p;
  const Tile& tile;
  const Storage& storage;
  const float row_scale;
  Query query;
  Rows rows[kRowTiles];

  // From the last keys to the first: with a causal mask the last steps are the masked ones.
  __device__ __forceinline__ void run() {
    const int steps = (tile.key_end + kBlockN - 1) / kBlockN;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) rows[m].clear();
    if (steps == 0) return;
    if constexpr (kStages == 1) {
      run_with_one_stage(steps);
    } else {
      run_with_stages(steps);
    }
  }

 private:
  // K of a step arrives during P·V of the step before, and V during Q·K^T.
  __device__ __forceinline__ void run_with_one_stage(int steps) {
    copy_query(p, tile, storage);
    copy_k(p, tile, storage, steps - 1, 0);
    ptx::cp_async_commit_group();
#pragma unroll 1
    for (int n_block = steps - 1; n_block >= 0; --n_block) {
      float s[kRowTiles][kScores];
      await_all();  // K, and P·V of the step before
      copy_v(p, tile, storage, n_block, 0);
      ptx::cp_async_commit_group();
      if (n_block == steps - 1) query.load(storage);
      const bool hidden = hides(n_block);
      const ScoreScale scale(storage, 0, row_scale);
      if (!hidden) multiply_qk(s, query, storage, 0);
      await_all();  // V, and Q·K^T
      if (n_block > 0) copy_k(p, tile, storage, n_block - 1, 0);
      ptx::cp_async_commit_group();
      if (!hidden) softmax_and_pv(s, scale, n_block, 0);
    }
  }

  // K and V of later steps arrive during a step.
  __device__ __forceinline__ void run_with_stages(int steps) {
    copy_query(p, tile, storage);
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) copy_step(p, tile, storage, steps - 1 - i, i);
#pragma unroll 1
    for (int n_block = steps - 1, stage = 0; n_block >= 0; --n_block) {
      await<kStages - 2>();  // this step, and all of the step before
      copy_step(p, tile, storage, n_block - (kStages - 1), before(stage));
      if (n_block == steps - 1) query.load(storage);
      if (!hides(n_block)) {
        float s[kRowTiles][kScores];
        multiply_qk(s, query, storage, stage);
        softmax_and_pv(s, ScoreScale(storage, stage, row_scale), n_block, stage);
      }
      if (++stage == kStages) stage = 0;
    }
  }

  __device__ __forceinline__ void softmax_and_pv(float (&s)[kRowTiles][kScores],
                                                 const ScoreScale& scale, int n_block, int stage) {
    if (cuts(n_block)) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) apply_mask(s[m], p, tile, lane_row(m), n_block);
    }
    float rescale[kRowTiles][2];
    if constexpr (kE4M3Pv) {
      uint32_t probabilities[kRowTiles][kKeySteps][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        update_row_max(s[m], rows[m], scale, rescale[m]);
        exponentiate_e4m3(probabilities[m], s[m], rows[m], scale);
      }
      multiply_pv8(rows, probabilities, rescale, storage, stage);
    } else {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        if (update_row_max(s[m], rows[m], scale, rescale[m])) rescale_output(rows[m], rescale[m]);
      }
      multiply_pv16(rows, s, scale, storage, stage);
    }
  }

  __device__ __forceinline__ static void rescale_output(Rows& rows, const float (&rescale)[2]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) rows.o[i] *= rescale[i / 2 % 2];
  }

  // Waits for the copies of all threads but the youngest kPending groups, and for all threads to
  // have done what is before.
  template <int kPending>
  __device__ __forceinline__ static void await() {
    ptx::cp_async_wait_group<kPending>();
    __syncthreads();
  }
  __device__ __forceinline__ static void await_all() { await<0>(); }

  // The keys of the warp's first row end here.
  __device__ __forceinline__ int first_end() const {
    const int end = tile.causal_key_end + static_cast<int>(threadIdx.x) / 32 * kWarpRows;
    return p.causal ? min(p.keys, end) : p.keys;
  }
  // Whether a row of the warp does not attend to all keys of the step; whether none attends to one.
  __device__ __forceinline__ bool cuts(int n_block) const {
    return (n_block + 1) * kBlockN > first_end();
  }
  __device__ __forceinline__ bool hides(int n_block) const {
    return p.causal && n_block * kBlockN >= first_end() + kWarpRows - 1;
  }
  // The stage of the step before.
  __device__ __forceinline__ static int before(int stage) {
    return stage == 0 ? kStages - 1 : stage - 1;
  }
};

__device__ __forceinline__ void forward(const Problem& p) {
  const Tile tile = block_tile(p);
  const Storage storage;
  Mainloop mainloop = {p, tile, storage, row_scale(p, tile)};
  mainloop.run();
  const Tile done = block_tile(p);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) store_output(p, mainloop.rows[m], done, lane_row(m));
}

}  // namespace attention::warp8
