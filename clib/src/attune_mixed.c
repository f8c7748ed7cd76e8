/* The mixed kernel: q in FP16 or BF16, converted on the way, with k and v in E4M3. */
#include "attune_internal.h"

enum { BOX_QUERIES = 16 }; /* the rows of a warp */

/* A contiguous tensor: columns, rows, and the heads of all batches. */
static attune_sdpa_status encode_map(const tensor *t, int32_t head_dim, int element_bytes,
                                     int32_t rows, encoded_map *into) {
  const uint64_t row = (uint64_t)(head_dim * element_bytes), count = (uint64_t)t->extents[2];
  const tensor_map map = {
      .type = element_bytes == 1 ? MAP_U8 : MAP_BF16, /* or FP16: TMA copies bits */
      .l2_promotion = MAP_L2_256B,
      .swizzle_bytes = head_dim * element_bytes,
      .rank = 3,
      .address = t->address,
      .dims = {(uint64_t)head_dim, count, (uint64_t)(t->extents[0] * t->extents[1])},
      .strides = {row, count * row},
      .box = {(unsigned)head_dim, (unsigned)rows, 1}};
  return attune_encode_map(&map, into);
}

attune_sdpa_status attune_launch_mixed(const problem *x, context *c,
                                       const attune_sdpa_form_info *form, CUstream stream) {
  attune_sdpa_params p = x->p;
  unsigned grid[3];
  TRY(attune_set_persistent_grid(&p, form, c, grid));
  const bool bf16 = p.out_dtype == ATTUNE_SDPA_BF16;
  void *o = bf16 ? NULL : p.o, *o_bf16 = bf16 ? p.o : NULL;
  int32_t heads = p.batch * p.heads, group = p.heads / p.kv_heads, causal = x->causal,
          q_bf16 = p.q_dtype == ATTUNE_SDPA_BF16;
  float scale = x->scale;
  encoded_map q_map, k_map, v_map;
  TRY(encode_map(&x->q, p.head_dim, 2, BOX_QUERIES, &q_map));
  TRY(encode_map(&x->k, p.head_dim, 1, form->step_keys, &k_map));
  TRY(encode_map(&x->v, p.head_dim, 1, form->step_keys, &v_map));
  void *parameters[] = {&p.q,    &p.k,   &p.v,         &o,           &o_bf16, &p.lse,
                        &p.descale_k, &p.descale_v, &heads, &group, &p.queries, &p.keys,
                        &causal, &q_bf16, &scale,      &q_map,       &k_map,  &v_map};
  return attune_launch(c, form, grid, parameters, stream, x->dependent);
}
