/* The quantisers: q, k and v to E4M3 with factors of their own, or to 8 bits for warp8, and new rows
 * into a cache whose factors are given. */
#include "attune_internal.h"

enum { CHUNK_ELEMENTS = 8, MAX_QUANTIZE_DIM = 256 };

static attune_sdpa_status no_form(const char *kernel, int32_t arch) {
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "this library was exported without the kernel %s for sm_%d", kernel, arch);
}

static attune_sdpa_status check_elements(const tensor *t, const char *rows, int32_t head_dim) {
  if ((double)t->extents[0] * (double)t->extents[1] * (double)t->extents[2] * head_dim <=
      MAX_ELEMENTS) {
    return ATTUNE_SDPA_OK;
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "batch is %lld, %s %lld heads of %lld %s and head_dim %d: the tensor would "
                     "have more than 2^31 elements",
                     (long long)t->extents[0], t->name, (long long)t->extents[1],
                     (long long)t->extents[2], rows, head_dim);
}

/* ---- quantize ------------------------------------------------------------------------------- */

/* Lanes that a row takes. */
static int lanes_of(int32_t head_dim) { return head_dim <= 64 ? 8 : head_dim <= 128 ? 16 : 32; }

/* Tiles of a problem, if a row takes some lanes. */
static int64_t tiles_of(const quantization *z, const attune_sdpa_form_info *form, int lanes) {
  const int64_t rows = (int64_t)form->chunks * form->threads / lanes;
  return z->batch * (z->heads * quotient_up(z->q_rows, rows) +
                     2 * (int64_t)z->kv_heads * quotient_up(z->kv_rows, rows));
}

/* Whether the zeroed bytes have room for the counters of the one-pass form: 8 bytes for each head of
 * q, k and v. Other kernels use the same bytes, and each leaves zeros. Heads of one tile are not
 * counted. */
static bool has_room(const quantization *z, const attune_sdpa_form_info *cast) {
  const int64_t rows = (int64_t)cast->chunks * cast->threads / lanes_of(z->head_dim);
  if (z->q_rows <= rows && z->kv_rows <= rows) return true;
  return 8 * (int64_t)z->batch * (z->heads + 2 * (int64_t)z->kv_heads) <= QUANTIZE_OFFSET;
}

const attune_sdpa_form_info *attune_find_quantiser(const quantization *z, int32_t arch) {
  const attune_sdpa_form_info *cast = attune_find_form(ATTUNE_KERNEL_CAST, z->head_dim, arch);
  if (cast != NULL && !z->smooth && !z->hadamard && has_room(z, cast)) return cast;
  return attune_find_form(ATTUNE_KERNEL_QUANTIZE, z->head_dim, arch);
}

/* Of quantize8 (docs/quantize.md): rows of q and of k whose factors are numbered together, rows of a
 * warp, and rows of a tile of columns. */
enum { FACTOR_ROWS = 32, FACTOR_KEYS = 64, UNIT_ROWS = 16, COLUMN_TILE_ROWS = 128 };

/* The runs of rows that the warps of quantize8 share. */
static int64_t units_of(const quantization *z, const attune_sdpa_form_info *form) {
  const int64_t of_q = FACTOR_ROWS / UNIT_ROWS * quotient_up(z->q_rows, FACTOR_ROWS),
                of_k = FACTOR_KEYS / UNIT_ROWS * quotient_up(z->kv_rows, FACTOR_KEYS),
                of_v = form->e4m3_v ? quotient_up(z->kv_rows, UNIT_ROWS) : 0;
  return z->batch * (z->heads * of_q + z->kv_heads * (of_k + of_v));
}

head_factors attune_factors_of(const quantization *z, const attune_sdpa_form_info *form) {
  if (form->kernel != ATTUNE_KERNEL_QUANTIZE8) return (head_factors){1, 1, 1};
  return (head_factors){.q = 8 * (size_t)quotient_up(z->q_rows, FACTOR_ROWS),
                        .k = 4 * (size_t)quotient_up(z->kv_rows, FACTOR_KEYS),
                        .v = form->e4m3_v ? (size_t)z->head_dim : 0};
}

/* kernels/quantize/quantize multiplies tiles by blocks in 32 bits; kernels/quantize/cast has a block
 * for each. quantize8 counts its units in 32 bits. */
attune_sdpa_status attune_check_quantization(const quantization *z,
                                             const attune_sdpa_form_info *form) {
  const bool units = form->kernel == ATTUNE_KERNEL_QUANTIZE8;
  const int64_t tiles = units ? units_of(z, form) : tiles_of(z, form, lanes_of(z->head_dim)),
                most = form->kernel == ATTUNE_KERNEL_QUANTIZE
                           ? ((int64_t)1 << 32) / form->max_blocks - 1
                           : INT32_MAX;
  if (tiles <= most) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "batch is %d with %d heads of %d queries and %d of %d keys: the quantiser "
                     "would have %lld tiles, and it takes at most %lld",
                     z->batch, z->heads, z->q_rows, z->kv_heads, z->kv_rows, (long long)tiles,
                     (long long)most);
}

/* The counters, the amax of each warp of each tile, and with smooth-K three statistics of each
 * column of each tile of K. */
size_t attune_quantization_bytes(const quantization *z, const attune_sdpa_form_info *form) {
  if (form->kernel == ATTUNE_KERNEL_CAST) return QUANTIZE_COUNTER_BYTES;
  if (form->kernel == ATTUNE_KERNEL_QUANTIZE8) {
    const size_t rows = 1 + (size_t)quotient_up(z->kv_rows, COLUMN_TILE_ROWS),
                 columns = 2 * (size_t)z->batch * (size_t)z->kv_heads * (size_t)z->head_dim;
    return QUANTIZE_COUNTER_BYTES + 4 * columns * rows;
  }
  const int lanes = lanes_of(z->head_dim);
  int64_t words = tiles_of(z, form, lanes) * (form->threads / 32);
  if (z->smooth) {
    const int64_t rows = (int64_t)form->chunks * form->threads / lanes;
    words += 3 * (int64_t)z->head_dim * z->batch * z->kv_heads * quotient_up(z->kv_rows, rows);
  }
  return QUANTIZE_COUNTER_BYTES + 4 * (size_t)words;
}

/* cast has a block for each tile. Blocks of quantize wait for each other, so that all
 * of them must be resident. */
static attune_sdpa_status count_blocks(const quantization *z, context *c,
                                       const attune_sdpa_form_info *form, int64_t *blocks) {
  if (form->kernel == ATTUNE_KERNEL_CAST) {
    *blocks = tiles_of(z, form, lanes_of(z->head_dim));
    return ATTUNE_SDPA_OK;
  }
  if (form->kernel == ATTUNE_KERNEL_QUANTIZE8) { /* its registers have room for these blocks */
    const int64_t room =
                      (int64_t)form->blocks_per_multiprocessor * attune_target_of(c).multiprocessors,
                  most = room < form->max_blocks ? room : form->max_blocks,
                  wanted = quotient_up(units_of(z, form), form->threads / 32);
    *blocks = most < wanted ? most : wanted;
    return ATTUNE_SDPA_OK;
  }
  int resident = 0;
  TRY(attune_resident_blocks(c, form, &resident));
  const int64_t room = (int64_t)resident * attune_target_of(c).multiprocessors,
                tiles = tiles_of(z, form, lanes_of(0)),
                most = room < form->max_blocks ? room : form->max_blocks;
  *blocks = most < tiles ? most : tiles;
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_launch_quantization(const quantization *z, context *c,
                                              const attune_sdpa_form_info *form, CUstream stream) {
  int64_t blocks = 0;
  TRY(count_blocks(z, c, form, &blocks));
  const unsigned grid[3] = {(unsigned)blocks, 1, 1};
  quantization copy = *z; /* the driver takes addresses of values that it does not write to */
  void *values[ATTUNE_ARGUMENTS] = {
      [ATTUNE_ARG_Q] = &copy.q.address,
      [ATTUNE_ARG_K] = &copy.k.address,
      [ATTUNE_ARG_V] = &copy.v.address,
      [ATTUNE_ARG_Y_Q] = &copy.y_q,
      [ATTUNE_ARG_Y_K] = &copy.y_k,
      [ATTUNE_ARG_Y_V] = &copy.y_v,
      [ATTUNE_ARG_DESCALE_Q] = &copy.descale_q,
      [ATTUNE_ARG_DESCALE_K] = &copy.descale_k,
      [ATTUNE_ARG_DESCALE_V] = &copy.descale_v,
      [ATTUNE_ARG_MEAN_K] = &copy.mean_k,
      [ATTUNE_ARG_Q_DOT_MEAN] = &copy.q_dot_mean,
      [ATTUNE_ARG_COUNTERS] = &copy.counters,
      [ATTUNE_ARG_WORKSPACE] = &copy.workspace,
      [ATTUNE_ARG_Q_BATCH_STRIDE] = &copy.q.strides[0],
      [ATTUNE_ARG_Q_HEAD_STRIDE] = &copy.q.strides[1],
      [ATTUNE_ARG_Q_ROW_STRIDE] = &copy.q.strides[2],
      [ATTUNE_ARG_K_BATCH_STRIDE] = &copy.k.strides[0],
      [ATTUNE_ARG_K_HEAD_STRIDE] = &copy.k.strides[1],
      [ATTUNE_ARG_K_ROW_STRIDE] = &copy.k.strides[2],
      [ATTUNE_ARG_V_BATCH_STRIDE] = &copy.v.strides[0],
      [ATTUNE_ARG_V_HEAD_STRIDE] = &copy.v.strides[1],
      [ATTUNE_ARG_V_ROW_STRIDE] = &copy.v.strides[2],
      [ATTUNE_ARG_BATCH] = &copy.batch,
      [ATTUNE_ARG_HEADS] = &copy.heads,
      [ATTUNE_ARG_KV_HEADS] = &copy.kv_heads,
      [ATTUNE_ARG_Q_ROWS] = &copy.q_rows,
      [ATTUNE_ARG_KV_ROWS] = &copy.kv_rows,
      [ATTUNE_ARG_DIM] = &copy.head_dim,
      [ATTUNE_ARG_BF16] = &copy.bf16,
      [ATTUNE_ARG_SMOOTH] = &copy.smooth,
      [ATTUNE_ARG_HADAMARD] = &copy.hadamard,
      [ATTUNE_ARG_COPIES] = &copy.copies};
  return attune_launch(c, form, grid, values, stream, false);
}

static attune_sdpa_status check_quantize(const attune_quantize_params *p, bool has_q, bool has_kv) {
  const extent sizes[] = {{"batch", p->batch}, {"head_dim", p->head_dim}},
               q_sizes[] = {{"heads", p->heads}, {"queries", p->queries}},
               kv_sizes[] = {{"kv_heads", p->kv_heads}, {"keys", p->keys}};
  if (!has_q && !has_kv) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "q, k and v are NULL; there is nothing to quantise");
  }
  TRY(attune_check_extents(sizes, 2));
  if (has_q) TRY(attune_check_extents(q_sizes, 2));
  if (has_kv) TRY(attune_check_extents(kv_sizes, 2));
  TRY(attune_check_dtype("dtype", p->dtype, 1 << ATTUNE_SDPA_FP16 | 1 << ATTUNE_SDPA_BF16));
  if (p->head_dim % CHUNK_ELEMENTS != 0 || p->head_dim > MAX_QUANTIZE_DIM) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "head_dim is %d; the quantiser takes multiples of %d up to %d", p->head_dim,
                       CHUNK_ELEMENTS, MAX_QUANTIZE_DIM);
  }
  if (p->hadamard && (p->head_dim & (p->head_dim - 1)) != 0) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "hadamard is %d and head_dim %d; the transform needs a power of two",
                       p->hadamard, p->head_dim);
  }
  return ATTUNE_SDPA_OK;
}

/* The architecture of a context; without one, that of Hopper. */
static int32_t arch_of(const context *c) {
  return c != NULL ? attune_target_of(c).arch : attune_sdpa_arch;
}

/* Checks everything but pointers, for the device of a context or, without one, an H200. */
static attune_sdpa_status read_quantize(const attune_quantize_params *given, const context *c,
                                        attune_quantize_params *p, quantization *z,
                                        const attune_sdpa_form_info **form) {
  TRY(attune_copy_params("attune_quantize_params", given, p, sizeof *p, sizeof *p));
  TRY(attune_check_flags(p->flags));
  const bool has_q = p->q != NULL || p->y_q != NULL,
             has_kv = p->k != NULL || p->v != NULL || p->y_k != NULL || p->y_v != NULL;
  TRY(check_quantize(p, has_q, has_kv));
  *z = (quantization){
      .q = {"q", "q_stride", p->q, p->q_stride, {p->batch, p->heads, p->queries}, {0}, false},
      .k = {"k", "k_stride", p->k, p->k_stride, {p->batch, p->kv_heads, p->keys}, {0}, false},
      .v = {"v", "v_stride", p->v, p->v_stride, {p->batch, p->kv_heads, p->keys}, {0}, false},
      .y_q = p->y_q, .y_k = p->y_k, .y_v = p->y_v,
      .descale_q = p->descale_q, .descale_k = p->descale_k, .descale_v = p->descale_v,
      .mean_k = has_kv ? p->mean_k : NULL,
      .batch = p->batch, .heads = has_q ? p->heads : 1, .kv_heads = has_kv ? p->kv_heads : 1,
      .q_rows = has_q ? p->queries : 0, .kv_rows = has_kv ? p->keys : 0, .head_dim = p->head_dim,
      .copies = 1, .bf16 = p->dtype == ATTUNE_SDPA_BF16, .smooth = has_kv && p->smooth_k != 0,
      .hadamard = p->hadamard != 0};
  if (has_q) {
    TRY(check_elements(&z->q, "queries", p->head_dim));
    TRY(attune_set_strides(&z->q, p->head_dim, 2, false));
  }
  if (has_kv) {
    TRY(check_elements(&z->k, "keys", p->head_dim));
    TRY(attune_set_strides(&z->k, p->head_dim, 2, false));
    TRY(attune_set_strides(&z->v, p->head_dim, 2, false));
  }
  *form = attune_find_form(ATTUNE_KERNEL_QUANTIZE, p->head_dim, arch_of(c));
  return *form == NULL ? no_form("quantize", arch_of(c)) : attune_check_quantization(z, *form);
}

static size_t quantize_bytes(const quantization *z, const attune_sdpa_form_info *form) {
  return QUANTIZE_OFFSET + attune_quantization_bytes(z, form);
}

attune_sdpa_status attune_sdpa_quantize(const attune_quantize_params *params,
                                        struct CUstream_st *stream) {
  attune_quantize_params p;
  quantization z;
  const attune_sdpa_form_info *form = NULL;
  context *c = NULL;
  TRY(attune_started_context(&c));
  TRY(read_quantize(params, c, &p, &z, &form));
  TRY(attune_check_workspace(p.workspace_bytes, quantize_bytes(&z, form)));
  pointer all[11];
  int n = 0;
  if (z.q_rows > 0) {
    all[n++] = (pointer){"q", p.q, 16};
    all[n++] = (pointer){"y_q", p.y_q, 16};
    all[n++] = (pointer){"descale_q", p.descale_q, sizeof(float)};
  }
  if (z.kv_rows > 0) {
    all[n++] = (pointer){"k", p.k, 16};
    all[n++] = (pointer){"v", p.v, 16};
    all[n++] = (pointer){"y_k", p.y_k, 16};
    all[n++] = (pointer){"y_v", p.y_v, 16};
    all[n++] = (pointer){"descale_k", p.descale_k, sizeof(float)};
    all[n++] = (pointer){"descale_v", p.descale_v, sizeof(float)};
    if (p.mean_k != NULL) all[n++] = (pointer){"mean_k", p.mean_k, sizeof(float)};
  }
  all[n++] = (pointer){"workspace", p.workspace, 16};
  TRY(attune_check_addresses(all, n));
  z.workspace = (char *)p.workspace + QUANTIZE_OFFSET;
  if (c == NULL) { /* the first call, for a device that is not known yet */
    TRY(attune_start_driver());
    TRY(attune_current_context(&c));
    form = attune_find_form(ATTUNE_KERNEL_QUANTIZE, p.head_dim, arch_of(c));
    if (form == NULL) return no_form("quantize", arch_of(c));
    TRY(attune_check_workspace(p.workspace_bytes, quantize_bytes(&z, form)));
  }
  if ((p.flags & ATTUNE_SDPA_TRUST_POINTERS) == 0) TRY(attune_check_memory(c, all, n));
  TRY(attune_load(c, form));
  return attune_launch_quantization(&z, c, form, stream);
}

size_t attune_sdpa_quantize_workspace_bytes(const attune_quantize_params *params) {
  attune_quantize_params p;
  quantization z;
  const attune_sdpa_form_info *form = NULL;
  const context *c = attune_peek_context();
  return read_quantize(params, c, &p, &z, &form) == ATTUNE_SDPA_OK ? quantize_bytes(&z, form) : 0;
}

/* ---- append --------------------------------------------------------------------------------- */

static attune_sdpa_status read_append(const attune_append_params *p, const context *c, tensor *k,
                                      tensor *v, const attune_sdpa_form_info **form) {
  const extent sizes[] = {{"batch", p->batch}, {"kv_heads", p->kv_heads}, {"rows", p->rows},
                          {"head_dim", p->head_dim}},
               capacity[] = {{"capacity", p->capacity}},
               pages[] = {{"page_size", p->page_size}, {"max_pages", p->max_pages},
                          {"pages", p->pages}};
  TRY(attune_check_extents(sizes, 4));
  TRY(p->page_table == NULL ? attune_check_extents(capacity, 1) : attune_check_extents(pages, 3));
  if (p->page_table != NULL) TRY(attune_check_page_table(p->batch, p->max_pages));
  TRY(attune_check_dtype("dtype", p->dtype, 1 << ATTUNE_SDPA_FP16 | 1 << ATTUNE_SDPA_BF16));
  if (p->head_dim % CHUNK_ELEMENTS != 0) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "head_dim is %d; append takes multiples of %d",
                       p->head_dim, CHUNK_ELEMENTS);
  }
  *k = (tensor){"k", "k_stride", p->k, p->k_stride, {p->batch, p->kv_heads, p->rows}, {0}, false, 0};
  *v = (tensor){"v", "v_stride", p->v, p->v_stride, {p->batch, p->kv_heads, p->rows}, {0}, false, 0};
  TRY(check_elements(k, "rows", p->head_dim));
  TRY(attune_set_strides(k, p->head_dim, 2, false));
  TRY(attune_set_strides(v, p->head_dim, 2, false));
  *form = attune_find_form(ATTUNE_KERNEL_APPEND, p->head_dim, arch_of(c));
  return *form == NULL ? no_form("append", arch_of(c)) : ATTUNE_SDPA_OK;
}

static attune_sdpa_status launch_append(attune_append_params p, tensor *k, tensor *v, context *c,
                                        const attune_sdpa_form_info *form, CUstream stream) {
  const int64_t chunks = (int64_t)p.batch * p.kv_heads * p.rows * (p.head_dim / CHUNK_ELEMENTS);
  const unsigned grid[3] = {(unsigned)quotient_up(chunks, form->threads), 2, 1};
  int32_t paged = p.page_table != NULL, bf16 = p.dtype == ATTUNE_SDPA_BF16;
  if (!paged) p.page_size = p.capacity, p.max_pages = 1, p.pages = p.batch;
  void *values[ATTUNE_ARGUMENTS] = {[ATTUNE_ARG_K] = &p.k,
                                    [ATTUNE_ARG_V] = &p.v,
                                    [ATTUNE_ARG_DESCALE_K] = &p.descale_k,
                                    [ATTUNE_ARG_DESCALE_V] = &p.descale_v,
                                    [ATTUNE_ARG_LENGTHS] = &p.lengths,
                                    [ATTUNE_ARG_PAGE_TABLE] = &p.page_table,
                                    [ATTUNE_ARG_K_CACHE] = &p.k_cache,
                                    [ATTUNE_ARG_V_CACHE] = &p.v_cache,
                                    [ATTUNE_ARG_K_BATCH_STRIDE] = &k->strides[0],
                                    [ATTUNE_ARG_K_HEAD_STRIDE] = &k->strides[1],
                                    [ATTUNE_ARG_K_ROW_STRIDE] = &k->strides[2],
                                    [ATTUNE_ARG_V_BATCH_STRIDE] = &v->strides[0],
                                    [ATTUNE_ARG_V_HEAD_STRIDE] = &v->strides[1],
                                    [ATTUNE_ARG_V_ROW_STRIDE] = &v->strides[2],
                                    [ATTUNE_ARG_BATCH] = &p.batch,
                                    [ATTUNE_ARG_HEADS] = &p.kv_heads,
                                    [ATTUNE_ARG_ROWS] = &p.rows,
                                    [ATTUNE_ARG_DIM] = &p.head_dim,
                                    [ATTUNE_ARG_PAGED] = &paged,
                                    [ATTUNE_ARG_PAGE_SIZE] = &p.page_size,
                                    [ATTUNE_ARG_MAX_PAGES] = &p.max_pages,
                                    [ATTUNE_ARG_PAGES] = &p.pages,
                                    [ATTUNE_ARG_BF16] = &bf16};
  return attune_launch(c, form, grid, values, stream, false);
}

attune_sdpa_status attune_sdpa_append(const attune_append_params *params,
                                      struct CUstream_st *stream) {
  attune_append_params p;
  tensor k, v;
  const attune_sdpa_form_info *form = NULL;
  context *c = NULL;
  TRY(attune_started_context(&c));
  TRY(attune_copy_params("attune_append_params", params, &p, sizeof p, sizeof p));
  TRY(attune_check_flags(p.flags));
  TRY(read_append(&p, c, &k, &v, &form));
  const pointer all[] = {{"k", p.k, 16},
                         {"v", p.v, 16},
                         {"descale_k", p.descale_k, sizeof(float)},
                         {"descale_v", p.descale_v, sizeof(float)},
                         {"lengths", p.lengths, sizeof(int32_t)},
                         {"k_cache", p.k_cache, 16},
                         {"v_cache", p.v_cache, 16},
                         {"page_table", p.page_table, sizeof(int32_t)}};
  const int n = p.page_table == NULL ? 7 : 8;
  TRY(attune_check_addresses(all, n));
  if (c == NULL) { /* the first call, for a device that is not known yet */
    TRY(attune_start_driver());
    TRY(attune_current_context(&c));
    form = attune_find_form(ATTUNE_KERNEL_APPEND, p.head_dim, arch_of(c));
    if (form == NULL) return no_form("append", arch_of(c));
  }
  if ((p.flags & ATTUNE_SDPA_TRUST_POINTERS) == 0) TRY(attune_check_memory(c, all, n));
  TRY(attune_load(c, form));
  return launch_append(p, &k, &v, c, form, stream);
}
