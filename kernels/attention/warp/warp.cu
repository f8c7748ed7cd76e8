// Attention on FP16 or BF16 tensors by mma.sync, cp.async and ldmatrix: every NVIDIA GPU since
// Ampere (sm_80) runs it. Nothing is quantised; a cache may be in E4M3.
//   problem.cuh   arguments, and the tile of a block
//   traits.cuh    tile, knobs and what follows from them
//   storage.cuh   shared memory and its swizzle
//   loads.cuh     cp.async copies of Q, K and V
//   mask.cuh      which keys a row attends to
//   softmax.cuh   row state, softcap, row max
//   gemm.cuh      Q·K^T, and P·V with the exponentials
//   merge.cuh     parts of a tile, of the warps of a block or of several blocks
//   output.cuh    normalise, store
//   kernel.cuh    the mainloop
#include "kernel.cuh"

extern "C" __global__ void __launch_bounds__(attention::warp::kThreads,
                                             attention::warp::kBlocksPerSm)
warp_attention(const uint16_t* __restrict__ q, const uint16_t* __restrict__ k,
               const uint16_t* __restrict__ v, uint16_t* __restrict__ o,
               uint16_t* __restrict__ o_bf16, float* __restrict__ lse,
               const float* __restrict__ sinks, const int* __restrict__ cu_queries,
               const int* __restrict__ cu_keys, const int* __restrict__ lengths,
               const int* __restrict__ page_table, float* parts, unsigned* arrived, int batch,
               int kv_heads, int group, int queries, int keys, int max_pages, int page_size,
               int causal, int window_left, int window_right, float softmax_scale, float softcap,
               int64_t q_stride_batch, int64_t q_stride_head, int64_t q_stride_row,
               int64_t k_stride_batch, int64_t k_stride_head, int64_t k_stride_row,
               int64_t v_stride_batch, int64_t v_stride_head, int64_t v_stride_row,
               int64_t o_stride_batch, int64_t o_stride_head, int64_t o_stride_row,
               int64_t lse_stride_batch, int64_t lse_stride_head, int columns, int o_columns,
               const float* __restrict__ alibi_slopes, const int64_t* __restrict__ tree_mask,
               int64_t alibi_stride_batch, int total_queries, int total_keys,
               const float* __restrict__ descale_k, const float* __restrict__ descale_v,
               int section, int splits) {
  attention::warp::Problem p = {};
  p.q = q, p.k = k, p.v = v;
  p.o = attention::warp::kBf16 ? o_bf16 : o, p.lse = lse;
  p.heads = kv_heads * group, p.group = group, p.all_heads = batch * kv_heads * group;
  p.queries = queries, p.keys = keys, p.causal = causal != 0, p.softmax_scale = softmax_scale;
  p.q_strides = {q_stride_batch, q_stride_head, q_stride_row};
  p.k_strides = {k_stride_batch, k_stride_head, k_stride_row};
  p.v_strides = {v_stride_batch, v_stride_head, v_stride_row};
  p.o_strides = {o_stride_batch, o_stride_head, o_stride_row};
  p.lse_strides = {lse_stride_batch, lse_stride_head, 1};
  p.section = section, p.splits = attention::warp::kSplits ? splits : 1;
  p.parts = parts, p.arrived = arrived;
  p.sinks = sinks, p.cu_queries = cu_queries, p.cu_keys = cu_keys, p.lengths = lengths;
  p.page_table = page_table, p.max_pages = max_pages, p.page_size = page_size;
  p.total_queries = total_queries, p.total_keys = total_keys;
  p.window_left = window_left, p.window_right = window_right;
  p.softcap = softcap, p.columns = columns, p.o_columns = o_columns;
  p.alibi_slopes = alibi_slopes, p.alibi_stride_batch = alibi_stride_batch;
  p.tree_mask = reinterpret_cast<const uint64_t*>(tree_mask);
  p.descale_k = descale_k, p.descale_v = descale_v;
  attention::warp::forward(p);
}
