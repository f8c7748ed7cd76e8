/* The decode kernel: few query rows over many keys, dense or paged. */
#include "attune_internal.h"

/* The kernel computes this many query rows of a K/V head at once. */
enum { DECODE_ROWS = 16, MAX_BOX_COLUMNS = 128 };

/* The bounds of the workspace and of the selection are those of an H200. More multiprocessors than
 * that stay idle, so that the size of the workspace does not depend on the device. */
enum { MAX_MULTIPROCESSORS = 132 };

bool attune_decode_rows_fit(const attune_sdpa_params *p) {
  return (int64_t)(p->heads / p->kv_heads) * p->queries <= DECODE_ROWS;
}

const attune_sdpa_form_info *attune_find_decode(int32_t head_dim, int32_t q_bits) {
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel != ATTUNE_KERNEL_DECODE || f->head_dim != head_dim) continue;
    if (f->q_bits == q_bits) return f;
  }
  return NULL;
}

/* Two parts of each block: rows of O with the max and the sum of each. */
size_t attune_decode_part_bytes(const attune_sdpa_form_info *form) {
  const size_t blocks = (size_t)MAX_MULTIPROCESSORS * (size_t)form->blocks_per_multiprocessor;
  return 2 * blocks * DECODE_ROWS * ((size_t)form->head_dim + 2) * sizeof(float);
}

attune_sdpa_status attune_encode_rows_map(const tensor *t, int32_t head_dim, int32_t box_rows,
                                          encoded_map *into) {
  const unsigned columns = head_dim < MAX_BOX_COLUMNS ? (unsigned)head_dim : MAX_BOX_COLUMNS;
  const tensor_map map = {
      .type = MAP_U8,
      .l2_promotion = MAP_L2_128B,
      .swizzle_bytes = (int)columns,
      .rank = 4,
      .address = t->address,
      .dims = {(uint64_t)head_dim, (uint64_t)t->extents[2], (uint64_t)t->extents[1],
               (uint64_t)t->extents[0]},
      .strides = {(uint64_t)t->strides[2], (uint64_t)t->strides[1], (uint64_t)t->strides[0]},
      .box = {columns, (unsigned)box_rows, 1, 1}};
  return attune_encode_map(&map, into);
}

/* Blocks of some multiprocessors for sequences that are equally long. A number that divides the
 * heads, or is divided by them, gives a block one end of a head instead of two; that is worth a few
 * idle multiprocessors (docs/experiments.md, D1). */
static int even_blocks_of(const attune_sdpa_params *p, int multiprocessors) {
  const int32_t heads = p->batch * p->kv_heads; /* at most MAX_DECODE_COUNTERS */
  for (int blocks = multiprocessors; blocks > multiprocessors - multiprocessors / 16; --blocks) {
    if (heads % blocks == 0 || blocks % heads == 0) return blocks;
  }
  return multiprocessors;
}

attune_sdpa_status attune_launch_decode(const problem *x, context *c,
                                        const attune_sdpa_form_info *form, CUstream stream) {
  attune_sdpa_params p = x->p;
  int multiprocessors = attune_multiprocessors(c);
  if (multiprocessors > MAX_MULTIPROCESSORS) multiprocessors = MAX_MULTIPROCESSORS;
  /* Only the kernel knows whether lengths that are given are equal. */
  int32_t even_blocks = even_blocks_of(&p, multiprocessors) * form->blocks_per_multiprocessor;
  const int blocks = p.key_lengths == NULL ? even_blocks
                                           : multiprocessors * form->blocks_per_multiprocessor;
  const unsigned grid[3] = {(unsigned)blocks, 1, 1};
  const bool bf16 = p.out_dtype == ATTUNE_SDPA_BF16;
  void *o = bf16 ? NULL : p.o, *o_bf16 = bf16 ? p.o : NULL, *parts = x->parts;
  int32_t group = p.heads / p.kv_heads, causal = x->causal, window_left = x->window_left;
  float scale = x->scale;
  const void *q = p.q, *q_fp16 = NULL, *q_bf16 = NULL;
  if (form->q_bits == 16) {
    q = NULL;
    *(p.q_dtype == ATTUNE_SDPA_BF16 ? &q_bf16 : &q_fp16) = p.q;
  }
  tensor queries = x->q;
  encoded_map k_map, v_map;
  TRY(attune_encode_rows_map(&x->k, p.head_dim, PAGE_BOX_ROWS, &k_map));
  TRY(attune_encode_rows_map(&x->v, p.head_dim, PAGE_BOX_ROWS, &v_map));
  void *parameters[] = {&q,           &p.k,          &p.v,           &o,
                        &o_bf16,      &p.lse,        &p.descale_q,   &p.descale_k,
                        &p.descale_v, &p.sinks,      &p.key_lengths, &p.page_table,
                        &parts,       &p.workspace,  &p.batch,       &p.kv_heads,
                        &group,       &p.queries,    &p.keys,        &p.max_pages,
                        &p.page_size, &causal,       &window_left,   &even_blocks,
                        &scale,       &k_map,        &v_map,         &q_fp16,
                        &q_bf16,      &queries.strides[0], &queries.strides[1],
                        &queries.strides[2]};
  return attune_launch(c, form, grid, parameters, stream, false);
}
