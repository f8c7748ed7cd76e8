// Attention on FP16 or BF16 tensors by mma.sync, cp.async and ldmatrix: every NVIDIA GPU since
// Ampere (sm_80) runs it. Nothing is converted or quantised.
//   problem.cuh   arguments, and the tile of a block
//   traits.cuh    tile, knobs and what follows from them
//   storage.cuh   shared memory and its swizzle
//   loads.cuh     cp.async copies of Q, K and V
//   softmax.cuh   row state, mask, row max
//   gemm.cuh      Q·K^T, and P·V with the exponentials
//   output.cuh    normalise, store
//   kernel.cuh    the mainloop
#include "kernel.cuh"

extern "C" __global__ void __launch_bounds__(attention::warp::kThreads,
                                             attention::warp::kBlocksPerSm)
warp_attention(const uint16_t* __restrict__ q, const uint16_t* __restrict__ k,
               const uint16_t* __restrict__ v, uint16_t* __restrict__ o,
               uint16_t* __restrict__ o_bf16, float* __restrict__ lse, int batch, int kv_heads,
               int group, int queries, int keys, int causal, float softmax_scale,
               int64_t q_stride_batch, int64_t q_stride_head, int64_t q_stride_row,
               int64_t k_stride_batch, int64_t k_stride_head, int64_t k_stride_row,
               int64_t v_stride_batch, int64_t v_stride_head, int64_t v_stride_row,
               int64_t o_stride_batch, int64_t o_stride_head, int64_t o_stride_row,
               int section) {
  attention::warp::Problem p = {};
  p.q = q, p.k = k, p.v = v;
  p.o = attention::warp::kBf16 ? o_bf16 : o, p.lse = lse;
  p.heads = kv_heads * group, p.group = group, p.all_heads = batch * kv_heads * group;
  p.queries = queries, p.keys = keys, p.causal = causal != 0, p.softmax_scale = softmax_scale;
  p.q_strides = {q_stride_batch, q_stride_head, q_stride_row};
  p.k_strides = {k_stride_batch, k_stride_head, k_stride_row};
  p.v_strides = {v_stride_batch, v_stride_head, v_stride_row};
  p.o_strides = {o_stride_batch, o_stride_head, o_stride_row};
  p.section = section;
  attention::warp::forward(p);
}
