// Attention of many query rows with options, on FP16 or BF16 tensors with products in their type, on
// Hopper (sm_90a): strides, packed sequences, paged K and V, windows, sinks, log-sum-exp, softcap,
// ALiBi slopes, tree masks.
// docs/prefill16.md has the arguments.
//
// A head dim below HEAD_DIM needs no code but the mask of the stores of O: TMA fills the columns
// beyond the extents of the tensor maps with zeros.
//
// The main loop is that of pingpong, and work tiles, masks and loads of K and V are those of
// prefill. traits.cuh chooses the tile, the knobs and what differs:
//   tiles.cuh   a tile as the warps pass it on; bounds of masks stay in shared memory
//   mask.cuh    which keys a row attends to, and ALiBi, which depends on how far they are
//   loads.cuh   Q of packed rows. K and V by prefill/loads.cuh, with boxes of 64 columns
//   output.cuh  strides, packed rows, sinks
#include "attention/pingpong/kernel.cuh"
#include "traits.cuh"

using Traits = attention::prefill16::Traits;
using Sizes = attention::TileSizes<Traits>;

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, 1)
prefill16(const uint16_t*, const uint16_t*, const uint16_t*, uint16_t* __restrict__ o,
          uint16_t* __restrict__ o_bf16, float* __restrict__ lse, const float* __restrict__ sinks,
          const int* __restrict__ cu_queries, const int* __restrict__ cu_keys,
          const int* __restrict__ lengths, const int* __restrict__ page_table, int batch,
          int kv_heads, int group, int queries, int keys, int max_pages, int page_size, int causal,
          int window_left, int window_right, float softmax_scale, float softcap,
          int64_t o_stride_batch, int64_t o_stride_head, int64_t o_stride_row,
          int64_t lse_stride_batch, int64_t lse_stride_head,
          const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
          const __grid_constant__ TensorMap v_map, int o_columns,
          const float* __restrict__ alibi_slopes, const int64_t* __restrict__ tree_mask,
          int64_t alibi_stride_batch, int total_queries) {
  constexpr float kLog2e = 1.4426950408889634f;
  Traits::Problem p = {};
  p.o = Traits::kBf16 ? o_bf16 : o, p.lse = lse;
  p.sinks = sinks;
  p.cu_queries = cu_queries, p.cu_keys = cu_keys, p.lengths = lengths, p.page_table = page_table;
  p.batch = batch, p.kv_heads = kv_heads, p.group = group;
  p.queries = queries, p.keys = keys;
  p.max_pages = max_pages, p.page_size = page_size;
  p.total_queries = total_queries;
  p.causal = causal != 0;
  p.window_left = window_left, p.window_right = window_right;
  p.softmax_scale = softmax_scale, p.softcap = softcap;
  p.score_scale_log2 = (softcap == 0.0f ? softmax_scale : softcap) * kLog2e;
  p.softmax_scale_log2 = alibi_slopes == nullptr ? p.score_scale_log2 : 1.0f;
  p.alibi_slopes = alibi_slopes, p.alibi_stride_batch = alibi_stride_batch;
  p.tree_mask = reinterpret_cast<const uint64_t*>(tree_mask);
  p.o_strides = {o_stride_batch, o_stride_head, o_stride_row};
  p.lse_strides = {lse_stride_batch, lse_stride_head, 1};
  p.o_columns = o_columns;
  attention::pingpong::forward<Traits>(p, &q_map, &k_map, &v_map);
}
