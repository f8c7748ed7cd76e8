/* The launches of attention. What a form takes, its table says; here is what a problem gives. */
#include "attune_internal.h"

/* ---- decode --------------------------------------------------------------------------------- */

/* Query rows of a K/V head: few are left to the decode kernel. Of k and v that need no quantiser it
 * takes more, if they are of few queries: other kernels would read them once for each query head. */
enum { FEW_ROWS = 16, MAX_DECODE_ROWS = 128, MAX_DECODE_QUERIES = 16 };

static int64_t rows_of(const attune_sdpa_params *p) {
  return (int64_t)(p->heads / p->kv_heads) * p->queries;
}

bool attune_has_few_rows(const attune_sdpa_params *p) { return rows_of(p) <= FEW_ROWS; }

bool attune_decode_rows_fit(const attune_sdpa_params *p, bool quantised) {
  return attune_has_few_rows(p) || (!quantised && rows_of(p) <= MAX_DECODE_ROWS &&
                                    p->queries <= MAX_DECODE_QUERIES);
}

/* The K/V heads of all sequences, each for as many query rows as a block computes at once. */
static int64_t units_of(const attune_sdpa_params *p, const attune_sdpa_form_info *form) {
  return (int64_t)p->batch * p->kv_heads * quotient_up(rows_of(p), form->query_rows);
}

const attune_sdpa_form_info *attune_find_decode(const attune_sdpa_params *p,
                                                attune_sdpa_dtype dtype) {
  const attune_sdpa_form_info *best = NULL; /* fewest units, then fewest rows */
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel != ATTUNE_KERNEL_DECODE || f->head_dim != p->head_dim) continue;
    if (f->cache_dtype != (int32_t)dtype) continue;
    const int64_t fewer = best == NULL ? 1 : units_of(p, best) - units_of(p, f);
    if (fewer > 0 || (fewer == 0 && f->query_rows < best->query_rows)) best = f;
  }
  return best != NULL && units_of(p, best) <= MAX_DECODE_COUNTERS ? best : NULL;
}

/* Two parts of each block: rows of O with the max and the sum of each. */
size_t attune_decode_part_bytes(const attune_sdpa_form_info *form, int32_t multiprocessors) {
  return 2 * (size_t)multiprocessors * (size_t)form->query_rows *
         ((size_t)form->head_dim + 2) * sizeof(float);
}

/* Bytes of K and V that a block may read beyond its equal share, so that no block has parts of two
 * units (docs/experiments.md, D43 and D48). */
static int64_t max_even_bytes(int32_t head_dim) {
  return (head_dim == 64 ? 96 : head_dim == 128 ? 448 : 512) << 10;
}

/* Blocks for units of as many tiles: each unit has as many blocks, or each block as many units. It
 * is 0 where equal shares of all tiles are better. */
static int32_t even_blocks_of(const attune_sdpa_params *p, const attune_sdpa_form_info *form,
                              int64_t multiprocessors) {
  const int64_t units = units_of(p, form), tiles = quotient_up(p->keys, form->step_keys),
                element = form->cache_dtype == ATTUNE_SDPA_E4M3 ? 1 : 2,
                tile_bytes = 2 * (int64_t)form->step_keys * form->head_dim * element;
  int64_t each = multiprocessors / units, blocks = each * units, longest = 0;
  if (each > 0) {
    longest = quotient_up(tiles, each);
  } else {
    each = quotient_up(units, multiprocessors);
    blocks = quotient_up(units, each);
    longest = each * tiles;
  }
  const int64_t more = (longest * multiprocessors - units * tiles) * tile_bytes;
  return more > max_even_bytes(form->head_dim) * multiprocessors ? 0 : (int32_t)blocks;
}

/* Only the kernel knows whether lengths that are given are equal. */
static void set_decode_grid(const attune_sdpa_params *p, const attune_sdpa_form_info *form,
                            int32_t multiprocessors, unsigned grid[3], int32_t *even_blocks) {
  *even_blocks = even_blocks_of(p, form, multiprocessors);
  grid[0] = (unsigned)multiprocessors;
}

/* ---- other grids ---------------------------------------------------------------------------- */

enum { CONSUMER_ROWS = 64 }; /* of a pingpong form */

/* Persistent blocks: one for each multiprocessor, at most one for each tile of query rows. */
static attune_sdpa_status set_persistent_grid(const problem *x, const attune_sdpa_form_info *form,
                                              unsigned grid[3]) {
  const attune_sdpa_params *p = &x->p;
  const int64_t tiles_of_heads = quotient_up((int64_t)p->queries * x->packed, form->query_rows);
  const double tiles = (double)p->batch * (p->heads / x->packed) * (double)tiles_of_heads;
  if (tiles > INT32_MAX) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "batch is %d, heads %d and queries %d: there would be more than 2^31 tiles "
                       "of %d queries",
                       p->batch, p->heads, p->queries, form->query_rows);
  }
  const int per_multiprocessor =
                form->blocks_per_multiprocessor > 1 ? form->blocks_per_multiprocessor : 1,
            blocks = per_multiprocessor * x->target.multiprocessors;
  grid[0] = tiles < blocks ? (unsigned)tiles : (unsigned)blocks;
  return ATTUNE_SDPA_OK;
}

/* One block for each tile of query rows of each head: tiles in x, in whole clusters, heads in y,
 * and also in z if there are too many. With grouped heads y has the heads of a group and z the K/V
 * heads. A persistent form gets as many blocks as the device holds at once. */
static attune_sdpa_status set_dense_grid(const attune_sdpa_params *p,
                                         const attune_sdpa_form_info *form, int32_t multiprocessors,
                                         unsigned grid[3]) {
  enum { MAX_GRID_YZ = 65535 };
  const int64_t heads = (int64_t)p->batch * p->heads,
                tiles = quotient_up(p->queries, form->query_rows),
                cluster = form->cluster > 1 ? form->cluster : 1;
  if (form->blocks_per_multiprocessor > 0) {
    const int64_t wanted = quotient_up(heads * tiles, cluster);
    int64_t room = (int64_t)form->blocks_per_multiprocessor * multiprocessors / cluster;
    if (room < 1) room = 1;
    grid[0] = (unsigned)((wanted < room ? wanted : room) * cluster);
    return ATTUNE_SDPA_OK;
  }
  int64_t y = p->heads / p->kv_heads, z = (int64_t)p->batch * p->kv_heads;
  if (y == 1) {
    z = quotient_up(heads, MAX_GRID_YZ);
    y = quotient_up(heads, z);
  }
  if (y > MAX_GRID_YZ || z > MAX_GRID_YZ) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "batch is %d, heads %d and kv_heads %d; the form takes at most %d heads in "
                       "a group and %d K/V heads",
                       p->batch, p->heads, p->kv_heads, MAX_GRID_YZ, MAX_GRID_YZ);
  }
  grid[0] = (unsigned)(quotient_up(tiles, cluster) * cluster);
  grid[1] = (unsigned)y, grid[2] = (unsigned)z;
  return ATTUNE_SDPA_OK;
}

/* ---- tensor maps ---------------------------------------------------------------------------- */

/* The rows of a box: of pages a power of two that divides their keys. */
static unsigned box_rows(const attune_sdpa_map *map, int32_t page_size) {
  if (page_size == 0) return (unsigned)map->rows;
  const int32_t divides = page_size & -page_size;
  return (unsigned)(divides < map->paged_rows ? divides : map->paged_rows);
}

/* Rows of a contiguous tensor are adjacent, so the bytes that L2 fetches beyond a box are used soon
 * after. */
static attune_sdpa_status encode_map(const problem *x, const attune_sdpa_map *map,
                                     encoded_map *into) {
  enum { TENSOR_Q, TENSOR_K, TENSOR_V, TENSOR_O };
  const tensor *all[] = {&x->q, &x->k, &x->v, &x->o}, *t = all[map->tensor];
  const bool paged = x->p.page_table != NULL && (map->tensor == TENSOR_K || map->tensor == TENSOR_V),
             fp16 = map->tensor == TENSOR_O && x->p.out_dtype == ATTUNE_SDPA_FP16;
  const uint64_t size = (uint64_t)map->element_bytes, columns = (uint64_t)t->columns,
                 batch = (uint64_t)t->extents[0], heads = (uint64_t)t->extents[1],
                 rows = (uint64_t)t->extents[2];
  tensor_map whole = {.type = size == 1 ? MAP_U8 : fp16 ? MAP_F16 : MAP_BF16, /* loads copy bits */
                      .swizzle_bytes = map->swizzle_bytes,
                      .rank = (unsigned)map->rank,
                      .address = t->address,
                      .box = {(unsigned)map->columns, box_rows(map, paged ? x->p.page_size : 0), 1,
                              1}};
  if (map->tensor == TENSOR_Q) whole.box[1] /= (unsigned)x->packed;
  if (map->rank == 3) {
    whole.l2_promotion = MAP_L2_256B;
    whole.dims[0] = columns, whole.dims[1] = rows, whole.dims[2] = heads * batch;
    whole.strides[0] = columns * size, whole.strides[1] = rows * columns * size;
  } else {
    whole.l2_promotion = MAP_L2_128B;
    whole.dims[0] = columns, whole.dims[1] = rows, whole.dims[2] = heads, whole.dims[3] = batch;
    for (int i = 0; i < 3; ++i) whole.strides[i] = size * (uint64_t)t->strides[2 - i];
  }
  return attune_encode_map(&whole, into);
}

/* Rows of a K/V head: of all pages, of all packed sequences, or of one. */
static int32_t all_keys(const problem *x) {
  const int64_t pages = x->p.page_table != NULL ? x->k.extents[0] : 1,
                keys = pages * x->k.extents[2];
  return (int32_t)(keys < INT32_MAX ? keys : INT32_MAX);
}

/* ---- the launch ----------------------------------------------------------------------------- */

attune_sdpa_status attune_launch_attention(const problem *x, context *c,
                                           const attune_sdpa_form_info *form, CUstream stream) {
  attune_sdpa_params p = x->p; /* the driver takes addresses of values that it does not write to */
  unsigned grid[3] = {1, 1, 1};
  int32_t even_blocks = 0;
  if (form->kernel == ATTUNE_KERNEL_DECODE) {
    set_decode_grid(&p, form, x->target.multiprocessors, grid, &even_blocks);
  } else if (form->kernel == ATTUNE_KERNEL_DENSE) {
    TRY(set_dense_grid(&p, form, x->target.multiprocessors, grid));
  } else if (form->kernel == ATTUNE_KERNEL_WARP) {
    attune_set_warp_grid(x, form, grid);
  } else if (form->kernel == ATTUNE_KERNEL_WARP8) {
    grid[0] = (unsigned)(p.batch * p.heads * quotient_up(p.queries, form->query_rows));
  } else {
    TRY(set_persistent_grid(x, form, grid));
  }
  const bool bf16 = p.out_dtype == ATTUNE_SDPA_BF16, packed = p.cu_queries != NULL;
  void *o = bf16 ? NULL : p.o, *o_bf16 = bf16 ? p.o : NULL, *parts = x->parts,
       *counters = x->counters, *arrived = parts == NULL ? NULL : p.workspace;
  int32_t heads = p.batch * p.heads, group = p.heads / p.kv_heads, causal = x->causal,
          window_left = x->window_left, window_right = x->window_right,
          head_rows = CONSUMER_ROWS / x->packed, o_columns = x->o.columns,
          columns = x->q.columns,
          total_keys = all_keys(x), splits = x->splits,
          section = attune_warp_section(x, form, attune_l2_bytes(c));
  float scale = x->scale, softcap = p.softcap;
  /* A decode form takes q in 16 bits by another argument, and mixed forms take its type. */
  const void *q = p.q, *q_fp16 = NULL, *q_bf16 = NULL;
  const float *q_dot_mean = x->q_dot_mean;
  int32_t q_is_bf16 = p.q_dtype == ATTUNE_SDPA_BF16;
  if (form->kernel == ATTUNE_KERNEL_DECODE && x->converts_q) {
    q = NULL, *(q_is_bf16 ? &q_bf16 : &q_fp16) = p.q;
  }
  /* Packed rows are found by cu_queries alone. */
  tensor queries = x->q, output = x->o, keys = x->k, values_of_keys = x->v;
  if (packed) queries.strides[0] = output.strides[0] = 0;
  if (p.cu_keys != NULL) keys.strides[0] = values_of_keys.strides[0] = 0;
  int64_t lse_head = packed ? p.total_queries : p.queries,
          lse_batch = packed ? 0 : p.heads * lse_head;
  encoded_map maps[ATTUNE_SDPA_MAX_MAPS];
  void *values[ATTUNE_ARGUMENTS] = {
      [ATTUNE_ARG_Q] = &q,
      [ATTUNE_ARG_K] = &p.k,
      [ATTUNE_ARG_V] = &p.v,
      [ATTUNE_ARG_OUTPUT] = &p.o,
      [ATTUNE_ARG_O] = &o,
      [ATTUNE_ARG_O_BF16] = &o_bf16,
      [ATTUNE_ARG_LSE] = &p.lse,
      [ATTUNE_ARG_DESCALE_Q] = &p.descale_q,
      [ATTUNE_ARG_DESCALE_K] = &p.descale_k,
      [ATTUNE_ARG_DESCALE_V] = &p.descale_v,
      [ATTUNE_ARG_SINKS] = &p.sinks,
      [ATTUNE_ARG_CU_QUERIES] = &p.cu_queries,
      [ATTUNE_ARG_CU_KEYS] = &p.cu_keys,
      [ATTUNE_ARG_LENGTHS] = &p.key_lengths,
      [ATTUNE_ARG_PAGE_TABLE] = &p.page_table,
      [ATTUNE_ARG_PARTS] = &parts,
      [ATTUNE_ARG_ARRIVED] = &arrived,
      [ATTUNE_ARG_COUNTERS] = &counters,
      [ATTUNE_ARG_HEAD_ROWS] = &head_rows,
      [ATTUNE_ARG_BATCH] = &p.batch,
      [ATTUNE_ARG_HEADS] = &heads,
      [ATTUNE_ARG_KV_HEADS] = &p.kv_heads,
      [ATTUNE_ARG_GROUP] = &group,
      [ATTUNE_ARG_QUERIES] = &p.queries,
      [ATTUNE_ARG_KEYS] = &p.keys,
      [ATTUNE_ARG_MAX_PAGES] = &p.max_pages,
      [ATTUNE_ARG_PAGE_SIZE] = &p.page_size,
      [ATTUNE_ARG_CAUSAL] = &causal,
      [ATTUNE_ARG_WINDOW_LEFT] = &window_left,
      [ATTUNE_ARG_WINDOW_RIGHT] = &window_right,
      [ATTUNE_ARG_EVEN_BLOCKS] = &even_blocks,
      [ATTUNE_ARG_SOFTMAX_SCALE] = &scale,
      [ATTUNE_ARG_SOFTCAP] = &softcap,
      [ATTUNE_ARG_ALIBI_SLOPES] = &p.alibi_slopes,
      [ATTUNE_ARG_TREE_MASK] = &p.tree_mask,
      [ATTUNE_ARG_ALIBI_STRIDE_BATCH] = &p.alibi_stride,
      [ATTUNE_ARG_Q_FP16] = &q_fp16,
      [ATTUNE_ARG_Q_BF16] =
          form->kernel == ATTUNE_KERNEL_MIXED ? (void *)&q_is_bf16 : (void *)&q_bf16,
      [ATTUNE_ARG_Q_STRIDE_BATCH] = &queries.strides[0],
      [ATTUNE_ARG_Q_STRIDE_HEAD] = &queries.strides[1],
      [ATTUNE_ARG_Q_STRIDE_ROW] = &queries.strides[2],
      [ATTUNE_ARG_Q_BATCH_STRIDE] = &queries.strides[0],
      [ATTUNE_ARG_Q_HEAD_STRIDE] = &queries.strides[1],
      [ATTUNE_ARG_Q_ROW_STRIDE] = &queries.strides[2],
      [ATTUNE_ARG_K_STRIDE_BATCH] = &keys.strides[0],
      [ATTUNE_ARG_K_STRIDE_HEAD] = &keys.strides[1],
      [ATTUNE_ARG_K_STRIDE_ROW] = &keys.strides[2],
      [ATTUNE_ARG_V_STRIDE_BATCH] = &values_of_keys.strides[0],
      [ATTUNE_ARG_V_STRIDE_HEAD] = &values_of_keys.strides[1],
      [ATTUNE_ARG_V_STRIDE_ROW] = &values_of_keys.strides[2],
      [ATTUNE_ARG_Q_S8] = &q,
      [ATTUNE_ARG_K_S8] = &p.k,
      [ATTUNE_ARG_Q_DOT_MEAN] = &q_dot_mean,
      [ATTUNE_ARG_SECTION] = &section,
      [ATTUNE_ARG_SPLITS] = &splits,
      [ATTUNE_ARG_COLUMNS] = &columns,
      [ATTUNE_ARG_TOTAL_KEYS] = &total_keys,
      [ATTUNE_ARG_O_STRIDE_BATCH] = &output.strides[0],
      [ATTUNE_ARG_O_STRIDE_HEAD] = &output.strides[1],
      [ATTUNE_ARG_O_STRIDE_ROW] = &output.strides[2],
      [ATTUNE_ARG_LSE_STRIDE_BATCH] = &lse_batch,
      [ATTUNE_ARG_LSE_STRIDE_HEAD] = &lse_head,
      [ATTUNE_ARG_TOTAL_QUERIES] = &p.total_queries,
      [ATTUNE_ARG_O_COLUMNS] = &o_columns};
  for (int i = 0; i < form->map_count; ++i) {
    TRY(encode_map(x, &form->maps[i], &maps[i]));
    values[ATTUNE_ARG_MAP_0 + i] = &maps[i];
  }
  return attune_launch(c, form, grid, values, stream, x->dependent);
}
