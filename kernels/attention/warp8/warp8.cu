// Attention with products of 8 bits by mma.sync, cp.async and ldmatrix, from what
// quantize/quantize8 makes of FP16 or BF16 tensors. Three forms of one source:
//
//   i8f16  Q·K^T in s8, P·V in FP16 or BF16   sm_80 and later
//   i8f8   Q·K^T in s8, P·V in E4M3           sm_89, sm_120
//   f8     both in E4M3                       sm_89, sm_120
//
//   problem.cuh   arguments, and the tile of a block
//   traits.cuh    tile, knobs and what follows from them
//   storage.cuh   shared memory and its swizzle
//   loads.cuh     cp.async copies of Q, K and V
//   softmax.cuh   row state, factors, mask, row max
//   gemm.cuh      Q·K^T, and P·V with the exponentials
//   output.cuh    normalise, store
//   kernel.cuh    the mainloop
#include "kernel.cuh"

extern "C" __global__ void __launch_bounds__(attention::warp8::kThreads,
                                             attention::warp8::kBlocksPerSm)
warp8_attention(const uint8_t* __restrict__ q, const uint8_t* __restrict__ k,
                const uint8_t* __restrict__ q_s8, const uint8_t* __restrict__ k_s8,
                const uint8_t* __restrict__ v, const float* __restrict__ descale_q,
                const float* __restrict__ descale_k, const float* __restrict__ descale_v,
                const float* __restrict__ q_dot_mean, uint8_t* __restrict__ o,
                uint8_t* __restrict__ o_bf16, float* __restrict__ lse, int batch, int kv_heads,
                int group, int queries, int keys, int causal, float softmax_scale,
                int64_t q_stride_batch, int64_t q_stride_head, int64_t q_stride_row,
                int64_t k_stride_batch, int64_t k_stride_head, int64_t k_stride_row,
                int64_t v_stride_batch, int64_t v_stride_head, int64_t v_stride_row,
                int64_t o_stride_batch, int64_t o_stride_head, int64_t o_stride_row,
                int section) {
  using namespace attention::warp8;
  constexpr int kVBytes = kE4M3Pv ? 1 : 2;  // of an element
  attention::warp8::Problem p = {};
  p.q = kE4M3Qk ? q : q_s8, p.k = kE4M3Qk ? k : k_s8, p.v = v;
  p.descale_q = descale_q, p.descale_k = descale_k, p.descale_v = descale_v;
  p.q_dot_mean = q_dot_mean, p.o = kBf16 ? o_bf16 : o, p.lse = lse;
  p.heads = kv_heads * group, p.group = group, p.all_heads = batch * kv_heads * group;
  p.queries = queries, p.keys = keys, p.causal = causal != 0, p.softmax_scale = softmax_scale;
  p.q_strides = {q_stride_batch, q_stride_head, q_stride_row};
  p.k_strides = {k_stride_batch, k_stride_head, k_stride_row};
  p.v_strides = {kVBytes * v_stride_batch, kVBytes * v_stride_head, kVBytes * v_stride_row};
  p.o_strides = {2 * o_stride_batch, 2 * o_stride_head, 2 * o_stride_row};
  p.section = section;
  forward(p);
}
