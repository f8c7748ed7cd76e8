/* The native kernel: q, k and v in 16 bits by one launch, for short sequences. */
#include "attune_internal.h"

enum { BOX_COLUMNS = 64, BOX_QUERIES = 64, SWIZZLE_BYTES = 128, ELEMENT_BYTES = 2 };

static attune_sdpa_status encode_map(const tensor *t, int32_t head_dim, int32_t rows,
                                     encoded_map *into) {
  const tensor_map map = {
      .type = MAP_BF16, /* or FP16: the loads copy bits */
      .l2_promotion = MAP_L2_128B,
      .swizzle_bytes = SWIZZLE_BYTES,
      .rank = 4,
      .address = t->address,
      .dims = {(uint64_t)head_dim, (uint64_t)t->extents[2], (uint64_t)t->extents[1],
               (uint64_t)t->extents[0]},
      .strides = {ELEMENT_BYTES * (uint64_t)t->strides[2], ELEMENT_BYTES * (uint64_t)t->strides[1],
                  ELEMENT_BYTES * (uint64_t)t->strides[0]},
      .box = {BOX_COLUMNS, (unsigned)rows, 1, 1}};
  return attune_encode_map(&map, into);
}

attune_sdpa_status attune_launch_native(const problem *x, context *c,
                                        const attune_sdpa_form_info *form, CUstream stream) {
  attune_sdpa_params p = x->p;
  unsigned grid[3];
  TRY(attune_set_persistent_grid(&p, form, c, grid));
  void *o = form->bf16 ? NULL : p.o, *o_bf16 = form->bf16 ? p.o : NULL;
  tensor output = x->o;
  int32_t group = p.heads / p.kv_heads, causal = x->causal;
  float scale = x->scale;
  encoded_map q_map, k_map, v_map;
  TRY(encode_map(&x->q, p.head_dim, BOX_QUERIES, &q_map));
  TRY(encode_map(&x->k, p.head_dim, form->step_keys, &k_map));
  TRY(encode_map(&x->v, p.head_dim, form->step_keys, &v_map));
  void *parameters[] = {&p.q,       &p.k,
                        &p.v,       &o,
                        &o_bf16,    &p.lse,
                        &p.batch,   &p.kv_heads,
                        &group,     &p.queries,
                        &p.keys,    &causal,
                        &scale,     &output.strides[0],
                        &output.strides[1], &output.strides[2],
                        &q_map,     &k_map,
                        &v_map};
  return attune_launch(c, form, grid, parameters, stream, form->waits);
}
