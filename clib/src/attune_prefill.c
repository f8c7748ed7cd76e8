/* The prefill kernel: many query rows with strides, packed, padded or paged sequences, windows and
 * sinks. */
#include "attune_internal.h"

/* A consumer warpgroup of the kernel has this many query rows. */
enum { QUERY_BOX_ROWS = 64 };

attune_sdpa_status attune_set_persistent_grid(const attune_sdpa_params *p,
                                              const attune_sdpa_form_info *form, const context *c,
                                              unsigned grid[3]) {
  const int64_t tiles_of_head = quotient_up(p->queries, form->query_rows);
  const double tiles = (double)p->batch * p->heads * (double)tiles_of_head;
  if (tiles > INT32_MAX) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "batch is %d, heads %d and queries %d: there would be more than 2^31 tiles "
                       "of %d queries",
                       p->batch, p->heads, p->queries, form->query_rows);
  }
  const int per_multiprocessor =
                form->blocks_per_multiprocessor > 1 ? form->blocks_per_multiprocessor : 1,
            blocks = per_multiprocessor * attune_multiprocessors(c);
  grid[0] = tiles < blocks ? (unsigned)tiles : (unsigned)blocks;
  grid[1] = grid[2] = 1;
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_launch_prefill(const problem *x, context *c,
                                         const attune_sdpa_form_info *form, CUstream stream) {
  attune_sdpa_params p = x->p;
  unsigned grid[3];
  TRY(attune_set_persistent_grid(&p, form, c, grid));
  const bool bf16 = p.out_dtype == ATTUNE_SDPA_BF16, packed = p.cu_queries != NULL;
  void *o = bf16 ? NULL : p.o, *o_bf16 = bf16 ? p.o : NULL;
  int32_t group = p.heads / p.kv_heads, causal = x->causal, window_left = x->window_left,
          window_right = x->window_right;
  float scale = x->scale;
  /* Packed rows are found by cu_queries alone. */
  tensor q = x->q, output = x->o;
  if (packed) q.strides[0] = output.strides[0] = 0;
  int64_t lse_head = packed ? p.total_queries : p.queries,
          lse_batch = packed ? 0 : p.heads * lse_head;
  /* One box for a step of keys, but for pages: they need not hold whole steps. */
  const int32_t box_keys = p.page_table != NULL ? PAGE_BOX_ROWS : form->step_keys;
  encoded_map q_map, k_map, v_map;
  TRY(attune_encode_rows_map(&x->q, p.head_dim, QUERY_BOX_ROWS, &q_map));
  TRY(attune_encode_rows_map(&x->k, p.head_dim, box_keys, &k_map));
  TRY(attune_encode_rows_map(&x->v, p.head_dim, box_keys, &v_map));
  void *parameters[] = {
      &p.q,           &p.k,           &p.v,           &o,
      &o_bf16,        &p.lse,         &p.descale_q,   &p.descale_k,
      &p.descale_v,   &p.sinks,       &p.cu_queries,  &p.cu_keys,
      &p.key_lengths, &p.page_table,  &p.batch,       &p.kv_heads,
      &group,         &p.queries,     &p.keys,        &p.max_pages,
      &p.page_size,   &causal,        &window_left,   &window_right,
      &scale,         &q.strides[0],  &q.strides[1],  &q.strides[2],
      &output.strides[0], &output.strides[1], &output.strides[2], &lse_batch,
      &lse_head,      &q_map,         &k_map,         &v_map};
  return attune_launch(c, form, grid, parameters, stream, x->dependent);
}
