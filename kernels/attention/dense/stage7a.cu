// FP8 attention forward on Hopper (sm_90a) with keys as rows and queries as columns of both
// products, for problems that must spread over the chip in small tiles (stage7a). The arguments are
// those of ladder/sdpa.cu. stage7b.cu is the form for problems that fill the chip.
//
//   S^T = K·Q^T                    (keys, queries): K in registers, loaded from global memory; Q in
//                                  shared memory
//   P^T = exp2(S^T - row_max)      rounded to E4M3, scaled by 2^8, in shared memory
//   O^T = O^T * rescale + V^T·P^T  (D, queries): V^T in registers, loaded from shared memory
//
// wgmma has 64 rows, but as few as 8 columns. With queries as rows 1x8x512x64 has 64 tiles; with
// queries as columns and TILE_M=32 it has 128, one for nearly every multiprocessor.
//
// At these sizes a chain of latencies decides. The warps of a warpgroup synchronise twice a step:
// when V has arrived and the row max of every warp is known, and when P is stored. Row sums stay
// with the lanes until the last step. KEY_GROUPS warpgroups split the keys, TILE_N each per step,
// and merge at the end.
//
// Sums over keys or over d may be taken in any order, so operands keep the order of their loads:
//   d     lane t of a quad takes 16 bytes of its row of K in one load. So byte 16t+4c+i of a row is
//         at position 16c+4t+i, in K and in Q.
//   keys  a warp has 16 keys of each 64, and 32 positions of P for two times 16. A lane has keys g
//         and g+8; key g+8h is at position 2g+h, in P and in V^T.
//   O     rows g and g+8 of the product are columns 2g and 2g+1 of O: a pair in one lane.
//
// Headers in stage7a/, each built only on those above it:
//   tile_sizes.cuh      threads, fragments and bytes
//   shared_storage.cuh  shared memory
//   load.cuh            K, V and Q from global memory
//   gemm.cuh            K·Q^T and V^T·P^T
//   softmax.cuh         mask, row max, exponentials, P
//   mainloop.cuh        the steps of a tile
//   epilogue.cuh        merge, normalise, store
//   kernel.cuh          one tile
#include "../../include/launch.cuh"
#include "../../include/problem.cuh"
#include "stage7a/kernel.cuh"

using stage7a::Sizes;

ATTUNE_LAUNCH(Sizes::kThreads, Sizes::kBlockM, Sizes::kDynamicBytes, 0);
ATTUNE_OUTPUTS(knob::kLse ? stage7a::kLseKind : 0, knob::kBf16Out);

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
     unsigned heads, unsigned group, int queries, int keys, int causal, float softmax_scale) {
#if !USE_LSE
  float* const lse = nullptr;
#endif
  stage7a::forward({q, k, v, o, lse, descale_q, descale_k, descale_v, heads, group, queries, keys,
                    causal != 0, softmax_scale});
}
