// The kernel: consumer warpgroups with 64 query rows each, which also issue the loads.
#pragma once

#include "gemm.cuh"
#include "hopper/stage7b/form.cuh"
#include "hopper/stage7b/schedule.cuh"
#include "hopper/tma.cuh"
#include "loads.cuh"
#include "ptx.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace native {

// A consumer, in all its tiles.
struct Consumer {
  const Problem& p;
  const Storage& smem;
  const Query& q;
  const KvLoads& loads;
  float scale_log2;
  KvState state;

  // All steps of a work tile, from the last keys to the first.
  __device__ __forceinline__ void mainloop(RowState& rows, unsigned round, const WorkTile& tile) {
    const Mask mask(p, tile, q.consumer);
    const int steps = num_n_blocks(tile);
    if (steps == 0) q.issue_next(round);
#pragma unroll 1
    for (int n_block = steps - 1; n_block >= 0; --n_block) {
      if (knob::kSkipMasked && mask.hides(n_block)) {
        skip_step(round, n_block);
      } else {
        step(rows, round, mask, n_block);
      }
      loads.release(round, n_block, state);
      state.advance();
    }
  }

 private:
  __device__ __forceinline__ void step(RowState& rows, unsigned round, const Mask& mask,
                                       int n_block) {
    float s[Sizes::kScores];
    Probabilities probabilities;
    wait(smem.barriers->k_full);
    multiply_qk(s, ptx::descriptor_address(q.shared), operand(smem.k));
    mask.apply(s, n_block);
    update_row_max(s, rows, scale_log2);
    rescale(rows);
    probabilities.exponentiate(s, rows, scale_log2);
    wait(smem.barriers->v_full);
    issue_pv(rows, probabilities, operand(smem.v));
    if (n_block == 0) q.issue_next(round);
    wait_pv(rows);
  }

  // Passes over a step that is not used: its loads must land before those of the next phase.
  __device__ __forceinline__ void skip_step(unsigned round, int n_block) const {
    wait(smem.barriers->k_full);
    wait(smem.barriers->v_full);
    if (n_block == 0) q.issue_next(round);
  }

  __device__ __forceinline__ void wait(uint64_t* full) const {
    ptx::mbarrier_try_wait_parity(&full[state.stage], state.phase);
  }
  // The descriptor address of K or V of this step.
  __device__ __forceinline__ uint32_t operand(const unsigned char* tiles) const {
    return ptx::descriptor_address(tiles) + state.stage * (kTileBytes / 16);
  }
};

__device__ __forceinline__ void consumer_loop(const Problem& p, const Storage& smem, const Query& q,
                                              const KvLoads& loads) {
  Consumer consumer = {p, smem, q, loads, softmax_scale_log2(p, 1.0f, 1.0f), {}};
  unsigned round = 0;
#pragma unroll 1
  do {
    RowState rows;
    rows.clear();
    q.wait(round);
    consumer.mainloop(rows, round, smem.schedule().tile(p, smem.at(round)));
    reduce_row_sums(rows);
    stage7b::store_output(p, rows, smem.schedule().tile(p, smem.at(round)), 1.0f, 0);
  } while (smem.schedule().has(smem.at(++round)));
}

__device__ __forceinline__ void forward(const Problem& p, const TensorMap* q_map,
                                        const TensorMap* k_map, const TensorMap* v_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Storage smem(memory);
  const int consumer = stage7b::consumer_index();
  const Query q = {p, smem, q_map, smem.q + consumer * kQBytes, &smem.barriers->q_full[consumer],
                   consumer};
  const KvLoads loads = {p, smem, k_map, v_map};
  if (threadIdx.x == 0) {
    smem.barriers->init();
    *smem.scheduler = TileScheduler(p);
  }
  __syncthreads();
  if (threadIdx.x % 128 == 0) q.issue(0);
  if (threadIdx.x == 0) loads.issue_first();
  __syncwarp();
  consumer_loop(p, smem, q, loads);
}

}  // namespace native
