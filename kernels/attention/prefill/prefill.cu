// FP8 attention of many query rows with options, on Hopper (sm_90a): strides, packed sequences,
// paged K and V, windows, sinks, log-sum-exp, FP16 or BF16. docs/prefill.md has the arguments.
//
// Main loop, softmax, products and transpose are those of attention/dense/stage7b.cu. traits.cuh
// chooses the tile, the knobs and what differs:
//   tiles   a tile belongs to a sequence with own numbers of queries and keys. Its steps start at
//           the first key that a row attends to, rounded down to 64.
//   mask    each row has a first and a last key. Steps between those of all rows have no mask.
//   loads   a step of keys, or up to 64 keys of a page, by maps of four dimensions. One thread loads K,
//           another V. V behind the last key becomes 0 before it is transposed.
//   stores  strides, the type of O, the log-sum-exp and sinks are decided at run time.
#include "attention/kernel.cuh"
#include "traits.cuh"

using Traits = attention::prefill::Traits;
using Sizes = attention::TileSizes<Traits>;

extern "C" __global__ void __launch_bounds__(Sizes::kThreads, Sizes::kBlocksPerSm)
prefill(const uint8_t* __restrict__ q, const uint8_t*, const uint8_t*, uint16_t* __restrict__ o,
        uint16_t* __restrict__ o_bf16, float* __restrict__ lse,
        const float* __restrict__ descale_q, const float* __restrict__ descale_k,
        const float* __restrict__ descale_v, const float* __restrict__ sinks,
        const int* __restrict__ cu_queries, const int* __restrict__ cu_keys,
        const int* __restrict__ lengths, const int* __restrict__ page_table, int batch,
        int kv_heads, int group, int queries, int keys, int max_pages, int page_size, int causal,
        int window_left, int window_right, float softmax_scale, int64_t q_stride_batch,
        int64_t q_stride_head, int64_t q_stride_row, int64_t o_stride_batch,
        int64_t o_stride_head, int64_t o_stride_row, int64_t lse_stride_batch,
        int64_t lse_stride_head, const __grid_constant__ TensorMap q_map,
        const __grid_constant__ TensorMap k_map, const __grid_constant__ TensorMap v_map,
        int total_queries) {
  Traits::Problem p;
  p.q = q, p.k = nullptr, p.v = nullptr;
  p.o = o_bf16 != nullptr ? o_bf16 : o, p.bf16 = o_bf16 != nullptr;
  p.lse = lse;
  p.descale_q = descale_q, p.descale_k = descale_k, p.descale_v = descale_v;
  p.sinks = sinks;
  p.cu_queries = cu_queries, p.cu_keys = cu_keys, p.lengths = lengths, p.page_table = page_table;
  p.heads = 0, p.batch = batch, p.kv_heads = kv_heads, p.group = group;
  p.queries = queries, p.keys = keys;
  p.max_pages = max_pages, p.page_size = page_size;
  p.total_queries = total_queries;
  p.causal = causal != 0;
  p.window_left = window_left, p.window_right = window_right;
  p.softmax_scale = softmax_scale;
  p.q_strides = {q_stride_batch, q_stride_head, q_stride_row};
  p.o_strides = {o_stride_batch, o_stride_head, o_stride_row};
  p.lse_strides = {lse_stride_batch, lse_stride_head, 1};
  attention::forward<Traits>(p, &q_map, &k_map, &v_map);
}
