// FP8 attention forward on Hopper (sm_90a) with 64 query rows per warpgroup, for problems that fill
// the chip with such tiles (stage7b). The arguments are those of ladder/sdpa.cu, with the tensor
// maps of Q (only with USE_Q_IN_SHARED), K and V appended. stage7a.cu is the form for small
// problems.
//
//   S = Q·K^T                  (rows, keys) Q in registers or shared memory, K in shared memory
//   P = exp2(S - row_max)      rounded to E4M3, scaled by 2^8, in registers as operand A of P·V
//   O = O * rescale + P·V      (rows, D) V^T in shared memory
//
// Roles, with registers moved between them by setmaxnreg:
//   producer   one warpgroup loads K and V by TMA into a pipeline of KV_STAGES tiles and
//              transposes V. wgmma takes E4M3 operands only with the summed dimension contiguous,
//              and V has D contiguous.
//   consumers  TILE_M / 64 warpgroups compute 64 rows each. With USE_OVERLAP the softmax of a step
//              runs during P·V of the step before. Without it one consumer should have the tensor
//              cores while another computes exponentials; STAGGER_CYCLES sets their distance.
//              With KEY_GROUPS=2 two consumers have the same 64 rows, alternate over the steps, and
//              merge at the end: tiles of 64 rows are few, and one consumer alone leaves the
//              multiprocessor idle half of the time.
//
// The kernel is persistent: the loads of the next tile run while O of the last one is stored.
//
// Layouts:
//   keys      a lane has the scores of keys 2t, 2t+1, 8+2t, 9+2t of every 16. As operand A its P
//             are at positions 4t .. 4t+3. V^T has its keys in the same permuted order.
//   O         row n of each 16 rows of V^T is column 2n of O for n < 8, and 2(n-8)+1 else. So a
//             lane has columns 4t .. 4t+3 of every 16. With USE_DIRECT_V row 8q+2t+e of each 64 is
//             column 16t+2q+e, and a lane has 16 adjacent columns.
//   row sums  eight rows of ones below V^T add the row sum of P as one more column of P·V: the sum
//             of what was multiplied, rounding included.
//
// The tensor cores keep 13 bits of an E4M3 sum. Sums leave them after every step of TILE_N keys and
// are FP32 from there on.
//
// traits.cuh chooses the tile, the knobs and the types of this form. kernels/README.md has the map
// of the headers.
#include "../../include/launch.cuh"
#include "../../include/problem.cuh"
#include "../../include/tma.cuh"
#include "../kernel.cuh"
#include "traits.cuh"

using Traits = attention::dense::Traits;
using Sizes = attention::TileSizes<Traits>;

ATTUNE_LAUNCH(Sizes::kThreads, Sizes::kBlockM, Sizes::kSharedBytes, Sizes::kBlocksPerSm);
ATTUNE_OUTPUTS(Traits::kLse ? 2 : 0, Traits::kBf16Out);
#if USE_Q_IN_SHARED
ATTUNE_TENSOR_MAPS({0, 64, Sizes::kRowBytes, Sizes::kRowBytes},
                   {1, Sizes::kBlockN, Sizes::kRowBytes, Sizes::kRowBytes},
                   {2, Sizes::kBlockN, Sizes::kRowBytes, Sizes::kRowBytes});
#else
ATTUNE_TENSOR_MAPS({1, Sizes::kBlockN, Sizes::kRowBytes, Sizes::kRowBytes},
                   {2, Sizes::kBlockN, Sizes::kRowBytes, Sizes::kRowBytes});
#endif

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, Sizes::kBlocksPerSm)
sdpa(const uint8_t* __restrict__ q,        // (B*H, queries, D) E4M3
     const uint8_t* __restrict__ k,        // (B*H/group, keys, D) E4M3
     const uint8_t* __restrict__ v,        // (B*H/group, keys, D) E4M3
     uint16_t* __restrict__ o,             // (B*H, queries, D) FP16, or BF16 with USE_BF16_OUT
#if USE_LSE
     float* __restrict__ lse,              // (B*H, queries) natural log-sum-exp of the scores
#endif
     const float* __restrict__ descale_q,  // (B*H)
     const float* __restrict__ descale_k,  // (B*H/group)
     const float* __restrict__ descale_v,  // (B*H/group)
     unsigned heads, unsigned group, int queries, int keys, int causal, float softmax_scale,
#if USE_Q_IN_SHARED
     const __grid_constant__ TensorMap q_map,
#endif
     const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map) {
#if !USE_LSE
  float* const lse = nullptr;
#endif
  const Problem problem = {q,         k,         v,     o,     lse,     descale_q,
                           descale_k, descale_v, heads, group, queries, keys,
                           causal != 0, softmax_scale};
#if USE_Q_IN_SHARED
  attention::forward<Traits>(problem, &q_map, &k_map, &v_map);
#else
  attention::forward<Traits>(problem, nullptr, &k_map, &v_map);
#endif
}
