// FP8 attention forward on mma.sync hardware (sm_80 and later), stages 0 to 6.
//
//   O[b,h,i,:] = sum_j softmax_j(q_i . k_j * dq * dk * scale) * v_j * dv
//
// Q, K, V are E4M3 codes [heads, S, D] with one descale factor a head; O is FP16 [B*H, Sq, D]. The scale and the descale factors are not negative.
// K and V may have fewer heads than Q: `group` neighbouring heads of Q share one.
//
//   in_shared.cuh     stages 0 to 3a: scores and P cross the warps of a block through shared memory
//   in_registers.cuh  stages 3b to 6: scores and P stay in the registers of the warp that computes them
#include "../common/launch.cuh"
#include "../common/problem.cuh"
#include "knobs.cuh"
#if USE_FUSED_SOFTMAX
#include "in_registers.cuh"
#else
#include "in_shared.cuh"
#endif

ATTUNE_LAUNCH(attention::kThreads, knob::kTileM, dynamic_bytes(attention::kSharedBytes), attention::kResident);

extern "C" __global__ void __launch_bounds__(attention::kThreads, knob::kBlocks)
sdpa(const uint8_t* __restrict__ q,        // (B*H, queries, D) E4M3
     const uint8_t* __restrict__ k,        // (B*H/group, keys, D) E4M3
     const uint8_t* __restrict__ v,        // (B*H/group, keys, D) E4M3
     uint16_t* __restrict__ o,             // (B*H, queries, D) FP16
     const float* __restrict__ descale_q,  // (B*H)
     const float* __restrict__ descale_k,  // (B*H/group)
     const float* __restrict__ descale_v,  // (B*H/group)
     unsigned heads, unsigned group, int queries, int keys, int causal, float softmax_scale) {
  attention::attend({q, k, v, o, nullptr, descale_q, descale_k, descale_v, heads, group, queries, keys, causal != 0, softmax_scale});
}
