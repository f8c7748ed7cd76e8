// Attention on Q in FP16 or BF16 with K and V in E4M3, on Hopper (sm_90a). The kernel converts Q
// itself, so that a pass before it has only K and V to convert. docs/mixed.md has the arguments.
//
// The kernel is that of kernels/sdpa/hopper/stage7b.cu: its headers are included with
// STAGE7B_MIXED, which chooses stage7b/mixed beside stage7b/plain. Producer, main loop, softmax and
// products are the same. What differs:
//   Q         a lane loads its two rows from global memory to registers, while O of the tile before
//             is stored. 16 rows share a scale, a power of two, which multiplies their scores.
//   O         strides and the type are decided at run time, and so is the log-sum-exp.
//
// Headers in stage7b/:
//   halves/problem.cuh  strides and types
//   halves/convert.cuh  magnitudes, scales, E4M3
//   mixed/query.cuh     Q
//   mixed/output.cuh    O
#include "knobs.cuh"

#include "hopper/stage7b/mixed/kernel.cuh"

using stage7b::Sizes;

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, Sizes::kBlocksPerSm)
mixed(const uint16_t* __restrict__ q, const uint8_t* __restrict__, const uint8_t* __restrict__ v,
      uint16_t* __restrict__ o, uint16_t* __restrict__ o_bf16, float* __restrict__ lse,
      const float* __restrict__ descale_k, const float* __restrict__ descale_v, int heads,
      int kv_heads, int group, int queries, int keys, int causal, int q_bf16, float softmax_scale,
      int64_t q_stride_batch, int64_t q_stride_head, int64_t q_stride_row, int64_t o_stride_batch,
      int64_t o_stride_head, int64_t o_stride_row, const __grid_constant__ TensorMap k_map,
      const __grid_constant__ TensorMap v_map) {
  stage7b::Problem p = {};
  p.q = reinterpret_cast<const uint8_t*>(q), p.v = v;
  p.o = o_bf16 != nullptr ? o_bf16 : o, p.lse = lse;
  p.descale_k = descale_k, p.descale_v = descale_v;
  p.heads = heads, p.group = group, p.kv_heads = kv_heads;
  p.queries = queries, p.keys = keys;
  p.causal = causal != 0, p.softmax_scale = softmax_scale;
  p.q_strides = {q_stride_batch, q_stride_head, q_stride_row};
  p.o_strides = {o_stride_batch, o_stride_head, o_stride_row};
  p.q_bf16 = q_bf16 != 0, p.o_bf16 = o_bf16 != nullptr;
  stage7b::forward_mixed(p, &k_map, &v_map);
}
