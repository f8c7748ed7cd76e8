// The consumer side of the K/V pipeline: wait for a stage, use it, release it.
#pragma once

#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "../include/wgmma.cuh"
#include "shared_storage.cuh"

namespace attention {

// One arrival per warp. It depends on `computed`, which is at most 1 or NaN: ptxas keeps the order
// of arrivals and waits, but moves arithmetic across them, and this keeps the computation before
// the arrival.
__device__ __forceinline__ void arrive_warp(uint64_t* barrier, float computed = 0.0f) {
  __syncwarp();
  if (threadIdx.x % 32 == 0 && !(computed > 1.0f)) ptx::mbarrier_arrive(barrier);
}

// Without USE_OVERLAP k_state and v_state are equal between steps. With it K is one step ahead of
// V^T. k_state refers to a variable of the caller: as a member nvcc would number registers
// differently, and the machine code would no longer be the measured one.
template <class Traits>
struct KvPipeline {
  using Sizes = TileSizes<Traits>;
  Barriers<Traits>* barriers;
  uint32_t k, v_t;  // descriptor addresses of stage 0
  KvState<Traits> v_state;
  KvState<Traits>& k_state;

  __device__ __forceinline__ KvPipeline(const SharedStorage<Traits>& smem, KvState<Traits>& k_state)
      : barriers(smem.barriers),
        k(ptx::descriptor_address(smem.k)),
        v_t(ptx::descriptor_address(smem.v_t)),
        k_state(k_state) {}

  // Waits for K and returns its descriptor address.
  __device__ __forceinline__ uint32_t wait_k() const {
    ptx::mbarrier_try_wait_parity(&barriers->k_full[k_state.stage], k_state.phase);
    return k + k_state.stage * (Sizes::kTileBytes / 16);
  }

  // Releases K after the row max. With USE_OVERLAP the arrival depends on the rescale factor, so
  // that the row max is computed while P·V runs; otherwise ptxas waits for P·V first. This is also
  // faster with four consumers.
  __device__ __forceinline__ void release_k(float rescale) {
    arrive_warp(&barriers->k_empty[k_state.stage],
                Traits::kOverlap || Sizes::kConsumers > 3 ? rescale : 0.0f);
    if (Traits::kOverlap) k_state.advance();
  }

  // Waits for V^T and returns its descriptor address.
  __device__ __forceinline__ uint32_t wait_v_t() const {
    ptx::mbarrier_try_wait_parity(&barriers->v_t_full[v_state.stage], v_state.phase);
    return v_t + v_state.stage * (Sizes::kVtBytes / 16);
  }

  __device__ __forceinline__ void release_v_t() {
    arrive_warp(&barriers->v_t_empty[v_state.stage]);
    v_state.advance();
    if (!Traits::kOverlap) k_state = v_state;
  }

  // Releases a step that is not used.
  __device__ __forceinline__ void skip_step() {
    wait_k();
    release_k(0.0f);
    wait_v_t();
    release_v_t();
  }

  // With split keys: passes over a step of the other consumer.
  __device__ __forceinline__ void skip_other_consumer(int& n_block) {
    if (!Sizes::kSplitKeys || n_block < 0) return;
    v_state.advance();
    k_state = v_state;
    --n_block;
  }
};

}  // namespace attention
