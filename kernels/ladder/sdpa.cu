// FP8 attention forward on mma.sync hardware (sm_80 and later), stages 0 to 6.
//
//   O[b,h,i,:] = sum_j softmax_j(q_i · k_j * dq * dk * scale) * v_j * dv
//
// Q, K and V are E4M3 codes [heads, S, D] with one descale factor per head; O is FP16 [B*H, Sq, D].
// The scale and the descale factors are not negative. K and V may have fewer heads than Q: `group`
// consecutive heads of Q share one.
//
//   shared_scores/    stages 0 to 3a: scores and P cross the warps of a block through shared memory
//   register_scores/  stages 3b to 6: scores and P stay in the registers of their warp
#include "../include/launch.cuh"
#include "../include/problem.cuh"
#include "knobs.cuh"
#if USE_FUSED_SOFTMAX
#include "register_scores/kernel.cuh"
namespace form = register_scores;
#else
#include "shared_scores/kernel.cuh"
namespace form = shared_scores;
#endif

ATTUNE_LAUNCH(form::Sizes::kThreads, form::Sizes::kBlockM,
              dynamic_bytes(form::Sizes::kSharedBytes), form::Sizes::kPersistentBlocks);

extern "C" __global__ void __launch_bounds__(form::Sizes::kThreads, 1)
sdpa(const uint8_t* __restrict__ q,        // (B*H, queries, D) E4M3
     const uint8_t* __restrict__ k,        // (B*H/group, keys, D) E4M3
     const uint8_t* __restrict__ v,        // (B*H/group, keys, D) E4M3
     uint16_t* __restrict__ o,             // (B*H, queries, D) FP16
     const float* __restrict__ descale_q,  // (B*H)
     const float* __restrict__ descale_k,  // (B*H/group)
     const float* __restrict__ descale_v,  // (B*H/group)
     unsigned heads, unsigned group, int queries, int keys, int causal, float softmax_scale) {
  form::forward({q, k, v, o, nullptr, descale_q, descale_k, descale_v, heads, group, queries, keys,
                 causal != 0, softmax_scale});
}
