// The kernel: consumer warpgroups with 64 query rows each, which also issue the loads.
#pragma once

#include "gemm.cuh"
#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "loads.cuh"
#include "output.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::native {

// x, which all lanes have. The shuffle tells the compiler so.
__device__ __forceinline__ uint32_t uniform(uint32_t x) { return __shfl_sync(0xFFFFFFFF, x, 0); }

// A consumer, in all its tiles.
struct Consumer {
  const Problem& p;
  const Loads& loads;
  float scale_log2;
  unsigned round = 0;  // tiles before this one
  KvState state;

  // Waits for K and V of this step, and for the Tile that was written before them.
  __device__ __forceinline__ void wait_kv() const {
    ptx::mbarrier_try_wait_parity(&Storage::barriers().full[state.stage], state.phase);
  }
  __device__ __forceinline__ const Tile& tile() const { return Storage::tile(round); }
  __device__ __forceinline__ int steps() const { return uniform(tile().steps); }

  // All steps of a work tile, from the last keys to the first. K and V of the first are there.
  __device__ __forceinline__ void mainloop(Rows& rows) {
    const Mask mask(p, tile().causal_key_end, index());
    ptx::mbarrier_try_wait_parity(&Storage::barriers().q_full[index()], round % 2);
#pragma unroll 1
    for (int n_block = steps() - 1;; --n_block) {
      if (Traits::kSkipMasked && mask.hides(n_block)) {
        issue_loads(n_block);
      } else {
        step(rows, mask, n_block);
      }
      release();
      if (n_block == 0) break;
      wait_kv();
    }
  }

 private:
  __device__ __forceinline__ void step(Rows& rows, const Mask& mask, int n_block) {
    float s[Sizes::kScores];
    Probabilities probabilities;
    const uint32_t v = operand(Storage::v());
    multiply_qk(s, query(), uniform(operand(Storage::k())));
    mask.apply(s, n_block);
    update_row_max(s, rows, scale_log2);
    probabilities.exponentiate(s, rows, scale_log2);
    if (!kBf16 && Traits::kExp2Segments == 2) mask.clear(probabilities.words, n_block);
    issue_pv(rows, probabilities, uniform(v),
             uniform(with_ones(v, ptx::descriptor_address(Storage::ones()))));
    issue_loads(n_block);
    wait_pv(rows);
  }

  // The loads of later steps. P·V hides them.
  __device__ __forceinline__ void issue_loads(int n_block) const {
    issue_next_kv();
    if (n_block == 0) issue_next_query();
  }
  // K and V into the stage of the step before. The warps take turns, one of each consumer after the
  // other.
  __device__ __forceinline__ void issue_next_kv() const {
    const int turn = state.stage + state.phase * Sizes::kStages;
    const int warp = turn % Sizes::kConsumers * 4 + turn / Sizes::kConsumers % 4;
    if (ptx::opaque(threadIdx.x) % kTeamThreads == 32 * warp) {
      const KvState empty = before(state);
      ptx::mbarrier_try_wait_parity(&Storage::barriers().empty[empty.stage], empty.phase);
      loads.issue(empty.stage);
    }
    __syncwarp();
  }
  // Q of the next tile, once all warps have read that of this one.
  __device__ __forceinline__ void issue_next_query() const {
    ptx::barrier_sync(1 + ptx::opaque(threadIdx.x) / 128, 128);
    if (ptx::opaque(threadIdx.x) % 128 == 0) {
      KvState next = state;
      next.advance();
      ptx::mbarrier_try_wait_parity(&Storage::barriers().full[next.stage], next.phase);
      const Tile& tile = Storage::tile(round + 1);
      if (tile.steps > 0) loads.issue_query(tile, index());
    }
    __syncwarp();
  }
  // One arrival per warp.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (ptx::opaque(threadIdx.x) % 32 == 0) {
      ptx::mbarrier_arrive(&Storage::barriers().empty[state.stage]);
    }
    state.advance();
  }
  // Of this consumer in its team. Derived again at each use: the mainloop needs the registers.
  __device__ __forceinline__ static int index() {
    return ptx::opaque(threadIdx.x) % kTeamThreads / 128;
  }

  // The descriptor addresses of its Q, and of K or V of this step.
  __device__ __forceinline__ uint32_t query() const {
    return uniform(ptx::descriptor_address(Storage::q()) + index() * (kQBytes / 16));
  }
  __device__ __forceinline__ uint32_t operand(const unsigned char* tiles) const {
    return ptx::descriptor_address(tiles) + state.stage * (kTileBytes / 16);
  }
};

__device__ __forceinline__ void consumer_loop(const Problem& p, const Loads& loads) {
  Consumer consumer = {p, loads, softmax_scale_log2(p, 1.0f, 1.0f)};
#pragma unroll 1
  for (;; ++consumer.round) {
    consumer.wait_kv();
    if (consumer.steps() == 0) break;
    Rows rows;
    rows.clear();
    consumer.mainloop(rows);
    store_output(p, rows, consumer.tile());
  }
}

// The launch may overlap the end of the one before, which may write the inputs or read O: the loads
// wait for it, and everything else waits for the loads.
__device__ __forceinline__ void forward(const Problem& p, const TensorMap* q_map,
                                        const TensorMap* k_map, const TensorMap* v_map) {
  const Loads loads = {p, q_map, k_map, v_map};
  ptx::griddepcontrol_launch_dependents();
  if (threadIdx.x == 32) {
    ptx::prefetch_tensormap(q_map);
    ptx::prefetch_tensormap(k_map);
    ptx::prefetch_tensormap(v_map);
  }
  if (threadIdx.x % kTeamThreads == 0) {
    Storage::barriers().init();
    ptx::griddepcontrol_wait();
    loads.start();
  }
  __syncwarp();
  fill_ones();
  __syncthreads();
  if (threadIdx.x % kTeamThreads == 0) loads.fill();
  __syncwarp();
  consumer_loop(p, loads);
}

}  // namespace attention::native
