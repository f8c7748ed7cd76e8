// Attention on FP16 or BF16 tensors with FP8 products, on Hopper (sm_90a). The kernel converts Q,
// K and V itself, so no quantising pass reads and writes them before. docs/fused.md has the
// arguments.
//
// It is made of the headers of kernels/sdpa/hopper/stage7b.cu, which are included with
// STAGE7B_HALVES; that chooses stage7b/halves. Softmax and products are the same. What differs:
//   roles     there is no producer: each consumer warpgroup loads and converts a part of K and V
//   K and V   TMA brings them in 16 bits. A consumer finds the largest magnitude of a tile, scales
//             it to the top of E4M3 by a power of two, and stores K and V^T.
//   scales    the scores of a step are multiplied by the inverse scales of its K and of Q. O has
//             the scale of the last V.
//   Q         a consumer converts its own rows; 16 of them share a scale.
//   O         a lane has columns 2t and 2t+1 of every 8: V^T has the columns in their order.
//
// Headers in stage7b/halves/:
//   problem.cuh     strides
//   convert.cuh     magnitudes, scales, E4M3
//   loads.cuh       TMA loads by maps of four dimensions
//   tiles.cuh       tiles of K and V
//   conversion.cuh  loads and conversion of K and V
//   query.cuh       Q
//   output.cuh      O
//   kernel.cuh      the consumers
#include "knobs.cuh"

#include "hopper/stage7b/halves/kernel.cuh"

using stage7b::Sizes;

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, Sizes::kBlocksPerSm)
fused(const uint16_t*, const uint16_t*, const uint16_t*, uint16_t* __restrict__ o,
      uint16_t* __restrict__ o_bf16, float* __restrict__ lse, int batch, int kv_heads, int group,
      int queries, int keys, int causal, float softmax_scale, int64_t o_stride_batch,
      int64_t o_stride_head, int64_t o_stride_row, const __grid_constant__ TensorMap q_map,
      const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map) {
  stage7b::Problem p = {};
  p.o = knob::kBf16Out ? o_bf16 : o, p.lse = lse;
  p.heads = batch * kv_heads * group, p.group = group, p.kv_heads = kv_heads;
  p.queries = queries, p.keys = keys;
  p.causal = causal != 0, p.softmax_scale = softmax_scale;
  p.o_strides = {o_stride_batch, o_stride_head, o_stride_row};
  stage7b::forward_halves(p, &q_map, &k_map, &v_map);
}
