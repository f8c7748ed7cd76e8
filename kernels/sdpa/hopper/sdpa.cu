// FP8 attention forward on Hopper (sm_90a), stage 7. What it computes and its arguments are those of ../ada/sdpa.cu; maps of Q, where it waits in shared
// memory, of K and of V follow them.
// With USE_LSE=1 it also writes the logarithm of the sum of exp(score) of each query, for those who merge attention over several sets of keys.
// With USE_BF16_OUT=1 O is BF16.
//
//   keys_as_rows.cuh     8 to 64 queries a block, operands straight into registers: problems that must be spread thinly to reach every multiprocessor
//   queries_as_rows.cuh  64 queries a warpgroup, tensor copies and warps with roles: problems that fill the chip
#include "../common/launch.cuh"
#include "../common/problem.cuh"
#include "knobs.cuh"
#include "tma.cuh"
#if USE_KEYS_AS_ROWS
#include "keys_as_rows.cuh"
#else
#include "queries_as_rows.cuh"
#endif

ATTUNE_LAUNCH(attention::kThreads, knob::kTileM, attention::kDynamicBytes, attention::kResident);
ATTUNE_OUTPUTS(knob::kLse ? attention::kLseKind : 0, knob::kBf16Out);
#if USE_Q_IN_SHARED
ATTUNE_TENSOR_MAPS({0, 64, attention::kRowBytes, attention::kRowBytes}, {1, attention::kKeys, attention::kRowBytes, attention::kRowBytes}, {2, attention::kKeys, attention::kRowBytes, attention::kRowBytes});
#elif !USE_KEYS_AS_ROWS
ATTUNE_TENSOR_MAPS({1, attention::kKeys, attention::kRowBytes, attention::kRowBytes}, {2, attention::kKeys, attention::kRowBytes, attention::kRowBytes});
#endif

extern "C" __global__ void __launch_bounds__(attention::kThreads, knob::kBlocks)
sdpa(const uint8_t* __restrict__ q,        // (B*H, queries, D) E4M3
     const uint8_t* __restrict__ k,        // (B*H/group, keys, D) E4M3
     const uint8_t* __restrict__ v,        // (B*H/group, keys, D) E4M3
     uint16_t* __restrict__ o,             // (B*H, queries, D) FP16, or BF16
#if USE_LSE
     float* __restrict__ lse,              // (B*H, queries)
#endif
     const float* __restrict__ descale_q,  // (B*H)
     const float* __restrict__ descale_k,  // (B*H/group)
     const float* __restrict__ descale_v,  // (B*H/group)
     unsigned heads, unsigned group, int queries, int keys, int causal, float softmax_scale
#if USE_Q_IN_SHARED
     , const __grid_constant__ TensorMap q_map
#endif
#if !USE_KEYS_AS_ROWS
     , const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map
#endif
) {
#if !USE_LSE
  float* const lse = nullptr;
#endif
  const Problem problem = {q, k, v, o, lse, descale_q, descale_k, descale_v, heads, group, queries, keys, causal != 0, softmax_scale};
#if USE_KEYS_AS_ROWS
  attention::attend(problem);
#elif USE_Q_IN_SHARED
  attention::attend(problem, &q_map, &k_map, &v_map);
#else
  attention::attend(problem, nullptr, &k_map, &v_map);
#endif
}
