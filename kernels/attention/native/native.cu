// Attention on FP16 or BF16 tensors with products in their type, on Hopper (sm_90a). Nothing is
// converted or quantised, so that it is exact up to the rounding of P and the exponentials.
// docs/native.md has the arguments.
//
// Work tiles and their order are those of attention/dense, mask, row max and linear exponentials
// those of attention/softmax16.cuh. The rest is here:
//   traits.cuh   the tile, the knobs and the types
//   storage.cuh  shared memory
//   loads.cuh    TMA loads of Q, K and V
//   softmax.cuh  row state, exponentials, P
//   gemm.cuh     Q·K^T and P·V
//   output.cuh   normalise, store
//   kernel.cuh   the mainloop
#include "kernel.cuh"

extern "C" __global__ void __launch_bounds__(attention::native::kThreads, 1)
native_attention(const uint16_t*, const uint16_t*, const uint16_t*, uint16_t* __restrict__ o,
                 uint16_t* __restrict__ o_bf16, float* __restrict__ lse, int batch, int kv_heads,
                 int group, int queries, int keys, int causal, float softmax_scale,
                 int64_t o_stride_batch, int64_t o_stride_head, int64_t o_stride_row,
                 const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                 const __grid_constant__ TensorMap v_map) {
  attention::native::Problem p = {};
  p.o = attention::native::kBf16 ? o_bf16 : o, p.lse = lse;
  p.heads = batch * kv_heads * group, p.group = group, p.kv_heads = kv_heads;
  p.queries = queries, p.keys = keys;
  p.causal = causal != 0, p.softmax_scale = softmax_scale;
  p.o_strides = {o_stride_batch, o_stride_head, o_stride_row};
  attention::native::forward(p, &q_map, &k_map, &v_map);
}
