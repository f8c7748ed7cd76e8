// A consumer warpgroup: the main loop over the keys of its 64 query rows, tile after tile.
#pragma once

#include "gemm.cuh"
#include "include/named_barrier.cuh"
#include "include/ptx.cuh"
#include "softmax.cuh"
#include "storage.cuh"

namespace attention::pingpong {

// The turns of the two consumers to issue their products (FA3: warp scheduler barriers). While one
// issues and waits for its scores, the other computes its softmax.
struct Turn {
  int consumer;

  // The first turn is that of consumer 0.
  __device__ __forceinline__ void start() const {
    if (consumer == 1) pass();
  }
  __device__ __forceinline__ void wait() const { ptx::barrier_sync(1 + consumer, 256); }
  __device__ __forceinline__ void pass() const { ptx::barrier_arrive(1 + (consumer ^ 1), 256); }
};

// One arrival per warp.
__device__ __forceinline__ void release(uint64_t* empty) {
  __syncwarp();
  if (ptx::opaque(threadIdx.x) % 32 == 0) ptx::mbarrier_arrive(empty);
}

template <class Traits>
struct Consumer {
  using Problem = attention::Problem<Traits>;
  using Tile = WorkTile<Traits>;
  using Mask = attention::Mask<Traits>;
  using Storage = pingpong::Storage<Traits>;
  using Scores = attention::Scores<Traits>;
  using Rows = pingpong::Rows<Traits>;
  using RowResult = pingpong::RowResult<Traits>;
  using Probabilities = pingpong::Probabilities<Traits>;
  using Output = typename Traits::Output;

  const Problem& p;
  int index;  // of the warpgroup
  Turn turn;
  unsigned round = 0;  // tiles whose O is stored
  KState<Traits> k;
  VState<Traits> v;
  uint32_t q_phase = 0;
  Query<Traits> query;

  __device__ __forceinline__ Consumer(const Problem& p, int index)
      : p(p), index(index), turn{index} {}

  // All steps of all tiles in one sequence, each tile from its last keys to its first. The softmax
  // of a step runs beside P·V of the step before (FA3: IntraWGOverlap), and the first scores of a
  // tile beside the last P·V of the tile before.
  __device__ __forceinline__ void run() {
    wait_tile<Traits>(0);
    const Tile first = read_tile<Traits>(0);
    int n_block = uniform(first.steps) - 1;
    if (n_block < 0) return;
    Mask mask(p, first, 0, index);
    wait_k();
    Rows rows;
    Probabilities probs;
    rows.clear();
    enter_query();
    first_step(rows, probs, mask, n_block);
    wait_k();
#pragma unroll 1
    for (;;) {
      Scores s;
      float rescale[2];
      const bool last = n_block == 0;  // P·V of this step is the last of its tile
      RowResult result(rows);
      if (last) {
        wait_tile<Traits>(round + 1);
        const Tile next = read_tile<Traits>(round + 1);
        n_block = uniform(next.steps);
        if (n_block == 0) break;
        mask = Mask(p, next, round + 1, index);
        rows.clear_softmax();
        enter_query();
      }
      --n_block;
      turn.wait();
      issue_scores(s);
      wait_v();
      issue_output(rows, probs);
      turn.pass();

      wait_scores<1>(s, n_block);
      const bool grown = softmax(s, rows, rescale, mask, n_block);
      Probabilities next;
      if constexpr (Traits::kPackEarly) {
        next.pack(s, mask, n_block);
        add_row_sums(rows, next, grown, rescale);
        next.fence();
      } else {
        ptx::fence_registers(s);
      }
      wait_k();  // its branches keep ptxas from moving the exponentials behind the wait for P·V
      wait_output(rows);
      if (!last) {
        if (grown) rows.rescale_output(rescale);
      } else {
        if constexpr (Traits::kSumColumns) result.take_sums(rows);
        Output::store(p, rows, result, round, index);
        rows.clear_output();
        ++round;
      }
      if constexpr (Traits::kPackEarly) {
        probs.copy(next);
      } else {
        ptx::fence_registers(s);
        probs.pack(s, mask, n_block);
        add_row_sums(rows, probs, grown, rescale);
      }
    }
    wait_v();
    issue_output(rows, probs);
    wait_output(rows);
    Output::store(p, rows, RowResult(rows), round, index);
  }

 private:
  // The scores and the softmax of the first tile's first step, beside no P·V.
  __device__ __forceinline__ void first_step(Rows& rows, Probabilities& probs, const Mask& mask,
                                             int n_block) {
    Scores s;
    float rescale[2];
    issue_scores(s);
    wait_scores<0>(s, n_block);
    softmax(s, rows, rescale, mask, n_block);  // O and the row sums are 0
    probs.pack(s, mask, n_block);
    add_row_sums(rows, probs, false, rescale);
  }

  __device__ __forceinline__ void issue_scores(Scores& s) const {
    issue_qk(s, query, uniform(ptx::descriptor_address(Storage::k(k.stage))));
  }
  __device__ __forceinline__ void issue_output(Rows& rows, const Probabilities& probs) const {
    issue_pv(rows, probs, ptx::descriptor_address(Storage::v(v.stage)));
  }
  // Waits for the scores, with kPending younger products, and releases their operands.
  template <int kPending>
  __device__ __forceinline__ void wait_scores(Scores& s, int n_block) {
    ptx::wgmma_wait_group<kPending>();
    ptx::fence_registers(s);
    release_k();
    if (n_block == 0) leave_query();
  }
  __device__ __forceinline__ void wait_output(Rows& rows) {
    ptx::wgmma_wait_group<0>();
    rows.fence();
    release_v();
  }
  // Returns whether O must be rescaled.
  __device__ __forceinline__ bool softmax(Scores& s, Rows& rows, float (&rescale)[2],
                                          const Mask& mask, int n_block) const {
    if constexpr (Traits::kHasSoftcap) cap_scores<Traits>(s, p);
    if constexpr (Traits::kHasBias) mask.add_alibi(s, p, n_block);
    mask.apply(s, n_block);
    if constexpr (Traits::kHasBias) mask.apply_tree(s, p, n_block);
    const bool grown = update_row_max(s, rows, rescale, p.softmax_scale_log2);
    exponentiate(s, rows, p.softmax_scale_log2);
    return grown;
  }

  // Waits for Q of the next tile. In registers it leaves shared memory to the tile after that.
  __device__ __forceinline__ void enter_query() {
    ptx::mbarrier_try_wait_parity(&Storage::barriers().q_full[index], q_phase);
    query.load(Storage::q(index));
    if constexpr (!Traits::kQInShared) release_q();
  }
  // Behind the last product with Q.
  __device__ __forceinline__ void leave_query() {
    if constexpr (Traits::kQInShared) release_q();
  }
  __device__ __forceinline__ void release_q() {
    release(&Storage::barriers().q_empty[index]);
    q_phase ^= 1;
  }

  __device__ __forceinline__ void wait_k() const {
    ptx::mbarrier_try_wait_parity(&Storage::barriers().k_full[k.stage], k.phase);
  }
  __device__ __forceinline__ void wait_v() const {
    ptx::mbarrier_try_wait_parity(&Storage::barriers().v_full[v.stage], v.phase);
  }
  __device__ __forceinline__ void release_k() {
    release(&Storage::barriers().k_empty[k.stage]);
    k.advance();
  }
  __device__ __forceinline__ void release_v() {
    release(&Storage::barriers().v_empty[v.stage]);
    v.advance();
  }
};

template <class Traits>
__device__ __forceinline__ void consumer_loop(const attention::Problem<Traits>& p) {
  Consumer<Traits> consumer(p, uniform(threadIdx.x / 128) - 1);
  consumer.turn.start();
  consumer.run();
}

}  // namespace attention::pingpong
