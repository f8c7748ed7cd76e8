// Attention on FP16 or BF16 tensors with products in their type, for head dims 128 and 256, on
// Hopper (sm_90a), with the schedule of FlashAttention-3. docs/pingpong.md has the arguments.
//
// Mask, row max and linear exponentials are those of attention/softmax16.cuh, which native shares.
// The rest is here. prefill16 has tiles.cuh, loads.cuh, output.cuh and traits.cuh of its own:
//   traits.cuh    the tile, the knobs and the types
//   tiles.cuh     work tiles and their order
//   loads.cuh     addresses of Q, K and V
//   storage.cuh   shared memory
//   producer.cuh  TMA loads of Q, K and V
//   softmax.cuh   row state, exponentials, P
//   gemm.cuh      Q·K^T and P·V
//   output.cuh    normalise, store
//   mainloop.cuh  a consumer warpgroup
//   kernel.cuh    the roles
#include "kernel.cuh"
#include "traits.cuh"

using Traits = attention::pingpong::Traits;
using Sizes = attention::TileSizes<Traits>;

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, 1)
pingpong_attention(const uint16_t*, const uint16_t*, const uint16_t*,
                   uint16_t* __restrict__ o, uint16_t* __restrict__ o_bf16, float* __restrict__ lse,
                   int batch, int kv_heads, int group, int queries, int keys, int causal,
                   float softmax_scale, int64_t o_stride_batch, int64_t o_stride_head,
                   int64_t o_stride_row, const __grid_constant__ TensorMap q_map,
                   const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
                   int head_rows, unsigned* __restrict__ counters) {
  constexpr float kLog2e = 1.4426950408889634f;
  Traits::Problem p = {};
  p.o = Traits::kBf16 ? o_bf16 : o, p.lse = lse;
  p.heads = batch * kv_heads * group, p.group = group, p.kv_heads = kv_heads;
  p.queries = queries, p.keys = keys;
  p.causal = causal != 0, p.softmax_scale_log2 = softmax_scale * kLog2e;
  p.o_strides = {o_stride_batch, o_stride_head, o_stride_row};
  p.head_rows = head_rows, p.counters = counters;
  attention::pingpong::forward<Traits>(p, &q_map, &k_map, &v_map);
}
