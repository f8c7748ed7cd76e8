/* attune_sdpa_forward: checks of a problem, the choice of a form, the workspace, the launch. */
#include "attune_sdpa.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attune_internal.h"

/* ---- the problem as it is given ------------------------------------------------------------- */

static attune_sdpa_status copy_params(const attune_sdpa_params *given, attune_sdpa_params *p) {
  const size_t first = offsetof(attune_sdpa_params, precision); /* of 0.2.0 */
  TRY(attune_copy_params("attune_sdpa_params", given, p, sizeof *p, first));
  TRY(attune_check_flags(p->flags));
  if (p->reserved != 0) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT, "reserved is %d; it must be 0", p->reserved);
  }
  if ((int)p->q_dtype == 0) p->q_dtype = p->dtype;
  if (p->v_head_dim == 0) p->v_head_dim = p->head_dim;
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status check_packed(const attune_sdpa_params *p) {
  const extent queries[] = {{"total_queries", p->total_queries}},
               keys[] = {{"total_keys", p->total_keys}};
  if (p->cu_queries != NULL) {
    TRY(attune_check_extents(queries, 1));
    if (attune_has_many(p, 1, p->heads, p->total_queries)) {
      return attune_too_many_elements(p, (extent){"heads", p->heads}, queries[0]);
    }
  }
  if (p->cu_keys == NULL) return ATTUNE_SDPA_OK;
  if (p->cu_queries == NULL) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "cu_keys is %p and cu_queries NULL; keys are packed only beside queries",
                       (const void *)p->cu_keys);
  }
  if (p->page_table != NULL) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "cu_keys is %p and page_table %p; packed keys have no pages",
                       (const void *)p->cu_keys, (const void *)p->page_table);
  }
  TRY(attune_check_extents(keys, 1));
  if (attune_has_many(p, 1, p->kv_heads, p->total_keys)) {
    return attune_too_many_elements(p, (extent){"kv_heads", p->kv_heads}, keys[0]);
  }
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status check_pages(const attune_sdpa_params *p) {
  enum { PAGE_UNIT = 16 }; /* so that a page holds whole boxes */
  if (p->page_table == NULL) return ATTUNE_SDPA_OK;
  const extent sizes[] = {{"max_pages", p->max_pages}, {"page_size", p->page_size},
                          {"pages", p->pages}};
  TRY(attune_check_extents(sizes, 3));
  if (p->page_size % PAGE_UNIT != 0) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "page_size is %d; the forms of this library take multiples of %d keys",
                       p->page_size, PAGE_UNIT);
  }
  if ((int64_t)p->max_pages * p->page_size < p->keys) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "keys is %d, more than max_pages, %d, times page_size, %d", p->keys,
                       p->max_pages, p->page_size);
  }
  return attune_check_page_table(p->batch, p->max_pages);
}

static attune_sdpa_status check_sizes(const attune_sdpa_params *p) {
  const extent sizes[] = {{"batch", p->batch},     {"heads", p->heads}, {"kv_heads", p->kv_heads},
                          {"queries", p->queries}, {"keys", p->keys},   {"head_dim", p->head_dim},
                          {"v_head_dim", p->v_head_dim}};
  TRY(attune_check_extents(sizes, 7));
  if (p->heads % p->kv_heads != 0) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "kv_heads is %d, which does not divide heads, %d", p->kv_heads, p->heads);
  }
  TRY(check_packed(p));
  TRY(check_pages(p));
  const bool keys = attune_keys_are_many(p) && !attune_decode_rows_fit(p, false),
             queries = p->cu_queries == NULL && attune_has_many(p, p->batch, p->heads, p->queries);
  if (keys) return attune_too_many_keys(p);
  if (!queries) return ATTUNE_SDPA_OK;
  return attune_too_many_elements(p, (extent){"heads", p->heads}, (extent){"queries", p->queries});
}

/* Without has_window a limit would have no effect, so one that is set is a mistake of the caller. */
static attune_sdpa_status check_window(const attune_sdpa_params *p) {
  const extent limits[] = {{"window_left", p->window_left}, {"window_right", p->window_right}};
  for (int i = 0; i < 2; ++i) {
    if (!p->has_window && limits[i].value != 0) {
      return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                         "%s is %d and has_window 0; set has_window to 1 for a window", limits[i].name,
                         limits[i].value);
    }
    if (limits[i].value < -1) {
      return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                         "%s is %d; it must be -1 for no limit, or at least 0", limits[i].name,
                         limits[i].value);
    }
  }
  return ATTUNE_SDPA_OK;
}

/* Slopes without a stride are those of every sequence. */
static attune_sdpa_status check_alibi(const attune_sdpa_params *p) {
  if (p->alibi_stride == 0) return ATTUNE_SDPA_OK;
  if (p->alibi_slopes == NULL) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "alibi_stride is %lld and alibi_slopes NULL; without slopes it is 0",
                       (long long)p->alibi_stride);
  }
  if (p->alibi_stride >= p->heads && p->alibi_stride <= MAX_EXTENT) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                     "alibi_stride is %lld; it must be 0 for [heads], or from heads, %d, to 2^24",
                     (long long)p->alibi_stride, p->heads);
}

/* A tree mask is in place of the causal one. */
static attune_sdpa_status check_tree(const attune_sdpa_params *p) {
  enum { MAX_TOKENS = 64 };
  if (p->tree_mask == NULL) return ATTUNE_SDPA_OK;
  if (p->causal) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "tree_mask is %p and causal %d; it must be 0, for the tree replaces it",
                       (const void *)p->tree_mask, p->causal);
  }
  if (p->has_window && (p->window_left >= 0 || p->window_right >= 0)) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "tree_mask is %p and the window {%d, %d}; a tree has no window",
                       (const void *)p->tree_mask, p->window_left, p->window_right);
  }
  if (p->queries <= MAX_TOKENS) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                     "queries is %d; tree_mask has a bit for each, at most %d", p->queries,
                     MAX_TOKENS);
}

/* What the quantiser is for, and what it is not. */
static attune_sdpa_status check_quantiser(const attune_sdpa_params *p) {
  const bool q = p->q_dtype != ATTUNE_SDPA_E4M3, kv = p->dtype != ATTUNE_SDPA_E4M3;
  if (kv && p->q_dtype != p->dtype) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "q_dtype is %d and dtype %d; k and v in FP16 or BF16 need q in the same",
                       (int)p->q_dtype, (int)p->dtype);
  }
  if (p->smooth_k && !kv) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "smooth_k is %d; it must be 0 for k in E4M3, which is not quantised",
                       p->smooth_k);
  }
  if (p->smooth_k && p->sinks != NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "sinks is %p; smooth_k shifts the scores of a row, and the sinks not",
                       (const void *)p->sinks);
  }
  if (p->hadamard && !q) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "hadamard is %d; it must be 0 for q in E4M3, which is not quantised",
                       p->hadamard);
  }
  const pointer computed[] = {{"descale_q", q ? p->descale_q : NULL, 0},
                              {"descale_k", kv ? p->descale_k : NULL, 0},
                              {"descale_v", kv ? p->descale_v : NULL, 0}};
  for (int i = 0; i < 3; ++i) {
    if (computed[i].address == NULL) continue;
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "%s is %p; it must be NULL for a tensor in FP16 or BF16, whose factors are "
                       "computed",
                       computed[i].name, computed[i].address);
  }
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status check_precision(const attune_sdpa_params *p) {
  if (p->precision < ATTUNE_SDPA_PRECISION_AUTO || p->precision > ATTUNE_SDPA_PRECISION_16) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "precision is %d; it must be a value of attune_sdpa_precision", p->precision);
  }
  if (p->precision != ATTUNE_SDPA_PRECISION_16) return ATTUNE_SDPA_OK;
  if (p->dtype == ATTUNE_SDPA_E4M3 || p->q_dtype == ATTUNE_SDPA_E4M3) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "precision is ATTUNE_SDPA_PRECISION_16 and %s ATTUNE_SDPA_E4M3; E4M3 tensors "
                       "are computed in FP8",
                       p->dtype == ATTUNE_SDPA_E4M3 ? "dtype" : "q_dtype");
  }
  if (!p->smooth_k && !p->hadamard) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                     "%s is %d and precision ATTUNE_SDPA_PRECISION_16; it is an option of the "
                     "quantiser, which that precision does not use",
                     p->smooth_k ? "smooth_k" : "hadamard", p->smooth_k ? p->smooth_k : p->hadamard);
}

static attune_sdpa_status check_formats(const attune_sdpa_params *p) {
  enum {
    HALF = 1 << ATTUNE_SDPA_FP16 | 1 << ATTUNE_SDPA_BF16,
    ANY = HALF | 1 << ATTUNE_SDPA_E4M3
  };
  TRY(attune_check_dtype("dtype", p->dtype, ANY));
  TRY(attune_check_dtype("q_dtype", p->q_dtype, ANY));
  TRY(attune_check_dtype("out_dtype", p->out_dtype, HALF));
  TRY(check_precision(p));
  /* The row max is taken of the scores before they are scaled. */
  if (!isfinite(p->scale) || p->scale < 0) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "scale is %g; it must be finite and not negative", (double)p->scale);
  }
  if (!isfinite(p->softcap) || p->softcap < 0) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "softcap is %g; it must be finite and not negative", (double)p->softcap);
  }
  TRY(check_window(p));
  TRY(check_alibi(p));
  TRY(check_tree(p));
  return check_quantiser(p);
}

/* ---- the problem in E4M3 -------------------------------------------------------------------- */

static int element_bytes(attune_sdpa_dtype dtype) { return dtype == ATTUNE_SDPA_E4M3 ? 1 : 2; }

/* Tensors as they are given, with their strides. Packed ones are one batch entry. */
static attune_sdpa_status set_tensors(call_plan *plan) {
  problem *x = &plan->x;
  const attune_sdpa_params *p = &x->p;
  const bool packed_q = p->cu_queries != NULL, packed_k = p->cu_keys != NULL,
             paged = p->page_table != NULL;
  const int64_t q_batch = packed_q ? 1 : p->batch,
                q_rows = packed_q ? p->total_queries : p->queries,
                k_batch = packed_k ? 1 : paged ? p->pages : p->batch,
                k_rows = packed_k ? p->total_keys : paged ? p->page_size : p->keys;
  x->q = (tensor){"q", "q_stride", p->q, p->q_stride, {q_batch, p->heads, q_rows}, {0}, false, 0};
  x->k = (tensor){"k", "k_stride", p->k, p->k_stride, {k_batch, p->kv_heads, k_rows}, {0}, false, 0};
  x->v = (tensor){"v", "v_stride", p->v, p->v_stride, {k_batch, p->kv_heads, k_rows}, {0}, false, 0};
  x->o = (tensor){"o", "o_stride", p->o, p->o_stride, {q_batch, p->heads, q_rows}, {0}, false, 0};
  TRY(attune_set_strides(&x->q, p->head_dim, element_bytes(p->q_dtype), packed_q));
  TRY(attune_set_strides(&x->k, p->head_dim, element_bytes(p->dtype), packed_k));
  TRY(attune_set_strides(&x->v, p->v_head_dim, element_bytes(p->dtype), packed_k));
  return attune_set_strides(&x->o, p->v_head_dim, 2, packed_q);
}

/* Whether the quantiser can read k and v: they have no pages, and are packed if the queries are. */
static bool is_quantisable(const attune_sdpa_params *p) {
  return p->page_table == NULL && (p->cu_queries == NULL || p->cu_keys != NULL);
}

/* K and V that are not E4M3, and for which there is neither a form nor a quantiser. */
static attune_sdpa_status check_cache(const attune_sdpa_params *p) {
  if (is_quantisable(p)) return ATTUNE_SDPA_OK;
  if (p->page_table != NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "page_table is %p; paged k and v must be in E4M3%s", (const void *)p->page_table,
                       p->precision == ATTUNE_SDPA_PRECISION_FP8
                           ? " with ATTUNE_SDPA_PRECISION_FP8: no quantiser reads pages"
                           : " or in the type of o, without smooth_k and hadamard");
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "cu_keys is NULL; beside packed queries, k and v that are not packed must be "
                     "in E4M3 or in the type of o, without smooth_k and hadamard");
}

/* Options of the scores of a problem that prefill16 does not compute. */
static attune_sdpa_status check_score_options(const attune_sdpa_params *p) {
  char value[64];
  if (p->softcap != 0) {
    snprintf(value, sizeof value, "softcap is %g", (double)p->softcap);
  } else if (p->alibi_slopes != NULL) {
    snprintf(value, sizeof value, "alibi_slopes is %p", (const void *)p->alibi_slopes);
  } else if (p->tree_mask != NULL) {
    snprintf(value, sizeof value, "tree_mask is %p", (const void *)p->tree_mask);
  } else {
    return ATTUNE_SDPA_OK;
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "%s; with it q, k, v and o must all be FP16 or all BF16, without smooth_k, "
                     "hadamard and ATTUNE_SDPA_PRECISION_FP8, and the library exported with prefill16",
                     value);
}

/* The factors of a packed tensor are those of all its sequences. A mixed form, which the plan has
 * already, takes q as it is. */
static attune_sdpa_status plan_quantisation(call_plan *plan) {
  problem *x = &plan->x;
  const attune_sdpa_params *p = &x->p;
  const bool q = p->q_dtype != ATTUNE_SDPA_E4M3 && plan->form == NULL,
             kv = p->dtype != ATTUNE_SDPA_E4M3, packed = p->cu_queries != NULL;
  if (!q && !kv) return ATTUNE_SDPA_OK;
  if (p->smooth_k && p->lse != NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "lse is %p; with smooth_k it would be that of k without its mean",
                       (const void *)p->lse);
  }
  if (kv) TRY(check_cache(p));
  plan->z = (quantization){.q = x->q,
                           .k = x->k,
                           .v = x->v,
                           .batch = packed ? 1 : p->batch,
                           .heads = q ? p->heads : 1,
                           .kv_heads = p->kv_heads,
                           .q_rows = q ? (int32_t)x->q.extents[2] : 0,
                           .kv_rows = kv ? (int32_t)x->k.extents[2] : 0,
                           .head_dim = p->head_dim,
                           .copies = packed ? p->batch : 1,
                           .bf16 = p->q_dtype == ATTUNE_SDPA_BF16,
                           .smooth = p->smooth_k != 0,
                           .hadamard = p->hadamard != 0};
  if (!q) plan->z.q.address = NULL;
  if (!kv) plan->z.k.address = plan->z.v.address = NULL;
  plan->quantiser = attune_find_quantiser(&plan->z, x->target.arch);
  if (plan->quantiser == NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "%s is %d; this library was exported without the kernel quantize, so it "
                       "must be ATTUNE_SDPA_E4M3",
                       kv ? "dtype" : "q_dtype", (int)p->q_dtype);
  }
  if (q) attune_make_contiguous(&x->q);
  if (kv) attune_make_contiguous(&x->k), attune_make_contiguous(&x->v);
  return attune_check_quantization(&plan->z, plan->quantiser);
}

/* Limits that no row reaches are left out, because forms without a window are faster. The last
 * query of a sequence is at its last key. */
static void set_masks(problem *x) {
  const attune_sdpa_params *p = &x->p;
  const int32_t left = p->has_window ? p->window_left : -1,
                right = p->has_window ? p->window_right : -1;
  x->causal = p->causal != 0 || right == 0;
  x->window_left = left >= p->keys - 1 ? -1 : left;
  x->window_right = x->causal || right >= p->queries - 1 ? -1 : right;
  x->scale = p->scale != 0 ? p->scale : (float)(1 / sqrt((double)p->head_dim));
}

/* ---- the choice of a form ------------------------------------------------------------------- */

/* Whether a problem has sequences, sinks, a window or options of the scores. */
static bool has_options(const problem *x) { return attune_option_of(x) != NULL; }

/* Whether a problem has nothing that dense forms do not have. */
static bool is_plain(const problem *x) {
  return !has_options(x) && x->q.contiguous && x->k.contiguous && x->v.contiguous &&
         x->o.contiguous && !attune_keys_are_many(&x->p);
}

/* What is_plain found, as an error. */
static attune_sdpa_status refuse_option(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const struct {
    const char *name, *what;
    const void *address;
  } options[] = {{"cu_queries", "packed sequences", p->cu_queries},
                 {"page_table", "pages", p->page_table},
                 {"key_lengths", "lengths", p->key_lengths},
                 {"sinks", "sinks", p->sinks}};
  const extent windows[] = {{"window_left", x->window_left}, {"window_right", x->window_right}};
  const tensor *tensors[] = {&x->q, &x->k, &x->v, &x->o};
  for (int i = 0; i < 4; ++i) {
    if (options[i].address == NULL) continue;
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "%s is %p; no form of this library has %s for such sizes, so it must be "
                       "NULL",
                       options[i].name, options[i].address, options[i].what);
  }
  for (int i = 0; i < 2; ++i) {
    if (windows[i].value < 0) continue;
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "%s is %d; no form of this library has it for such sizes, and -1 means no "
                       "limit",
                       windows[i].name, windows[i].value);
  }
  for (int i = 0; i < 4; ++i) {
    if (tensors[i]->contiguous) continue;
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "%s is {%lld, %lld, %lld}; the forms of this library for such sizes take "
                       "contiguous tensors",
                       tensors[i]->stride_name, (long long)tensors[i]->given[0],
                       (long long)tensors[i]->given[1], (long long)tensors[i]->given[2]);
  }
  return attune_too_many_keys(p);
}

/* Whether the decode kernel computes a problem. It takes any strides of q in 16 bits. */
static bool decode_applies(const problem *x, bool quantised) {
  const attune_sdpa_params *p = &x->p;
  return attune_decode_rows_fit(p, quantised) && p->cu_queries == NULL && x->window_right < 0 &&
         x->o.contiguous;
}

/* The decode form for k and v in 16 bits as they are; NULL if there is none. */
static const attune_sdpa_form_info *find_decode_halves(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  if (p->dtype == ATTUNE_SDPA_E4M3 || p->smooth_k || p->hadamard) return NULL;
  return decode_applies(x, false) ? attune_find_decode(p, p->dtype) : NULL;
}

static attune_sdpa_shape shape_of(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  return (attune_sdpa_shape){.batch = p->batch,
                             .heads = (int64_t)p->batch * p->heads,
                             .kv_heads = (int64_t)p->batch * p->kv_heads,
                             .queries = p->queries,
                             .keys = p->keys,
                             .head_dim = p->head_dim,
                             .causal = x->causal};
}

const char *attune_why_not_halves(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  if (p->smooth_k || p->hadamard) return "has options of the quantiser";
  if (p->out_dtype != p->dtype) return "has o of another type than q, k and v for such sizes";
  return attune_keys_are_many(p) ? "takes k and v of more than 2^31 elements for such sizes" : NULL;
}

/* The form of the native or the pingpong kernel for a problem in 16 bits, which then needs no
 * quantiser; NULL if it has another form. With a log-sum-exp all exponentials are exact, which forms
 * with tiles of 128 rows have; without one the first form is the fastest. */
static const attune_sdpa_form_info *find_native(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const bool exact = p->lse != NULL;
  if (p->dtype == ATTUNE_SDPA_E4M3 || attune_why_not_halves(x) != NULL || has_options(x)) return NULL;
  const attune_sdpa_shape shape = shape_of(x);
  if (p->precision != ATTUNE_SDPA_PRECISION_16 && !attune_sdpa_prefers_native(&shape)) return NULL;
  int32_t rows = 256, keys = 128;
  if (p->head_dim > 128 || (!exact && attune_sdpa_prefers_steps_of_64(&shape))) keys = 64;
  if (!exact && attune_sdpa_prefers_tiles_of_64(&shape)) {
    rows = 64;
  } else if (exact || attune_sdpa_prefers_small_tiles(&shape)) {
    rows = 128;
  } else if (attune_sdpa_prefers_tiles_of_192(&shape)) {
    rows = 192;
  }
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if ((f->kernel == ATTUNE_KERNEL_NATIVE || f->kernel == ATTUNE_KERNEL_PINGPONG) &&
        f->head_dim == p->head_dim && f->query_rows == rows && f->step_keys == keys &&
        f->bf16 == (p->dtype == ATTUNE_SDPA_BF16) && (f->linear_eighths == 0 || !exact)) {
      return f;
    }
  }
  return NULL;
}

enum { COLUMN_UNIT = 8 }; /* strides of tensor maps are multiples of 16 bytes */

/* The form for a problem in 16 bits with options, which then needs no quantiser; NULL if it has
 * another form. It is not timed yet, so that without a precision it gets what has no other form:
 * options of the scores, k and v of many queries that the quantiser cannot read, and other head
 * dims, which take the form of the next larger one. */
static const attune_sdpa_form_info *find_options16(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const bool wanted = p->precision == ATTUNE_SDPA_PRECISION_16 ||
                      attune_score_option_of(p) != NULL || !is_quantisable(p) || x->other_head_dim;
  if (!wanted || p->dtype == ATTUNE_SDPA_E4M3 || attune_why_not_halves(x) != NULL) return NULL;
  if (p->head_dim % COLUMN_UNIT != 0 || p->v_head_dim % COLUMN_UNIT != 0) return NULL;
  const attune_sdpa_form_info *narrowest = NULL; /* that has all columns */
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel != ATTUNE_KERNEL_PREFILL16 || f->bf16 != (p->dtype == ATTUNE_SDPA_BF16)) continue;
    if (f->head_dim < p->head_dim || f->head_dim < p->v_head_dim) continue;
    if (narrowest == NULL || f->head_dim < narrowest->head_dim) narrowest = f;
  }
  return narrowest;
}

/* The mixed form for a problem with q in 16 bits, of which k and v alone are quantised; NULL if it
 * has another form. With a log-sum-exp all exponentials are exact, which those of this form are not. */
static const attune_sdpa_form_info *find_mixed(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const bool cast = p->dtype != ATTUNE_SDPA_E4M3, /* makes k and v contiguous */
      contiguous = x->q.contiguous && x->o.contiguous &&
                   (cast || (x->k.contiguous && x->v.contiguous)),
             other = p->smooth_k != 0 || p->hadamard != 0 || p->lse != NULL || attune_keys_are_many(p);
  if (p->q_dtype == ATTUNE_SDPA_E4M3 || !contiguous || other || has_options(x)) return NULL;
  const attune_sdpa_shape shape = shape_of(x);
  if (attune_has_few_rows(p) || !attune_sdpa_prefers_mixed(&shape)) return NULL;
  return attune_find_form(ATTUNE_KERNEL_MIXED, p->head_dim, x->target.arch);
}

/* Tiles of a pingpong form with some heads in each, at least those that the chip has at once. */
static double packed_tiles(const problem *x, const attune_sdpa_form_info *form, int32_t heads) {
  const attune_sdpa_params *p = &x->p;
  const double tiles = (double)p->batch * (p->heads / heads) *
                       (double)quotient_up((int64_t)p->queries * heads, form->query_rows);
  return tiles > x->target.multiprocessors ? tiles : x->target.multiprocessors;
}

/* The query heads of a group that share a tile where queries are few (FA3: PackGQA): as many as save
 * a tenth of the tiles. A box of Q has 8 rows of a head at least, for the sake of its swizzle. */
static int32_t packed_heads(const problem *x, const attune_sdpa_form_info *form) {
  const attune_sdpa_params *p = &x->p;
  enum { MAX_PACKED = 8 };
  int32_t packed = 1;
  if (form->kernel != ATTUNE_KERNEL_PINGPONG) return packed;
  for (int32_t n = 2; n <= MAX_PACKED && p->heads / p->kv_heads % n == 0; n *= 2) {
    if (10 * packed_tiles(x, form, n) <= 9 * packed_tiles(x, form, packed)) packed = n;
  }
  return packed;
}

/* Whether the head dim is none of the dense forms, which all kernels have. */
static bool is_other_head_dim(const attune_sdpa_params *p) {
  if (p->v_head_dim != p->head_dim) return true;
  for (int i = 0; i < attune_sdpa_dense_count; ++i) {
    if (attune_sdpa_forms[i].head_dim == p->head_dim) return false;
  }
  return true;
}

/* Why no form computes another head dim. */
static attune_sdpa_status no_head_dim(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const char *why = attune_why_not_halves(x);
  if (p->dtype != ATTUNE_SDPA_E4M3 && p->precision != ATTUNE_SDPA_PRECISION_FP8 && why != NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "head_dim is %d; no form in 16 bits of this library %s",
                       p->head_dim, why);
  }
  if (p->v_head_dim != p->head_dim) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "head_dim is %d and v_head_dim %d; the forms in FP8 of this library have one "
                       "for all tensors, and those in 16 bits multiples of %d up to 256",
                       p->head_dim, p->v_head_dim, COLUMN_UNIT);
  }
  char dims[128] = "";
  size_t used = 0;
  for (int i = 0; i < attune_sdpa_dense_count; ++i) {
    int j = 0;
    while (attune_sdpa_forms[j].head_dim != attune_sdpa_forms[i].head_dim) ++j;
    if (j < i || used >= sizeof dims) continue;
    used += (size_t)snprintf(dims + used, sizeof dims - used, "%s%d", used == 0 ? "" : ", ",
                             attune_sdpa_forms[i].head_dim);
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "head_dim is %d; the forms of this library have %s, and those in 16 bits "
                     "multiples of %d up to 256",
                     p->head_dim, dims, COLUMN_UNIT);
}

static attune_sdpa_status no_output(const attune_sdpa_params *p) {
  if (p->lse != NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "lse is %p; this library was exported without forms that write it, so it "
                       "must be NULL",
                       (const void *)p->lse);
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "out_dtype is ATTUNE_SDPA_BF16; this library was exported with FP16 outputs "
                     "only");
}

/* Why no form computes a problem with precision 16. */
static attune_sdpa_status refuse_halves(const problem *x) {
  const char *why = attune_why_not_halves(x);
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "precision is ATTUNE_SDPA_PRECISION_16; no form in 16 bits of this library %s",
                     why != NULL ? why : "has such sizes");
}

/* Chooses among the kernels:
 *   decode   few query rows, with an option or where attune_sdpa_prefers_decode holds. It needs a
 *            workspace: without one the others compute what they can.
 *   dense    contiguous tensors without options: a form of the selection's table
 *   prefill  all other problems, and outputs that the dense forms were not exported with
 * select_halves and find_mixed have taken some problems in BF16 or FP16 before. The rules of the
 * preferences and the table are generated: `attune export` translates them from their source. */
static attune_sdpa_status select_form(call_plan *plan, bool has_workspace) {
  const problem *x = &plan->x;
  const attune_sdpa_params *p = &x->p;
  const attune_sdpa_shape shape = shape_of(x);
  const int *outputs = attune_sdpa_choices[attune_sdpa_choose(&shape)];
  const int index = outputs[(p->out_dtype == ATTUNE_SDPA_BF16) + 2 * (p->lse != NULL)];
  const bool plain = is_plain(x);
  const attune_sdpa_form_info *dense = plain && index >= 0 ? &attune_sdpa_forms[index] : NULL,
                              *prefill = NULL, *decode = NULL;
  if (!attune_keys_are_many(p)) {
    prefill = attune_find_form(ATTUNE_KERNEL_PREFILL, p->head_dim, x->target.arch);
  }
  if (decode_applies(x, p->dtype != ATTUNE_SDPA_E4M3) && x->q.contiguous) {
    decode = attune_find_decode(p, ATTUNE_SDPA_E4M3);
  }
  const bool only_decode = dense == NULL && prefill == NULL,
             prefers_decode = dense == NULL ||
                              (attune_has_few_rows(p) && attune_sdpa_prefers_decode(&shape));
  if (decode != NULL && (only_decode || (has_workspace && prefers_decode))) {
    plan->form = decode;
  } else {
    plan->form = dense != NULL ? dense : prefill;
  }
  if (plan->form == NULL) return plain ? no_output(p) : refuse_option(x);
  return ATTUNE_SDPA_OK;
}

/* Chooses a form for a problem in BF16 or FP16 that is not quantised: decode, or without a workspace,
 * which that needs, native or pingpong where they apply, or prefill16, which alone has options of the
 * scores and other head dims. */
static void select_halves(call_plan *plan, bool has_workspace) {
  problem *x = &plan->x;
  if (attune_score_option_of(&x->p) == NULL && !x->other_head_dim) {
    const attune_sdpa_form_info *decode = find_decode_halves(x), *native = find_native(x);
    x->converts_q = decode != NULL && (has_workspace || native == NULL);
    plan->form = x->converts_q ? decode : native;
  }
  if (plan->form == NULL) plan->form = find_options16(x);
  if (plan->form != NULL) x->packed = packed_heads(x, plan->form);
}

/* A decode form converts q itself where nothing else is quantised. That saves a launch. */
static void convert_in_decode(call_plan *plan) {
  if (plan->quantiser == NULL || plan->form->kernel != ATTUNE_KERNEL_DECODE) return;
  if (plan->z.kv_rows > 0 || plan->z.hadamard) return;
  plan->quantiser = NULL;
  plan->x.q = plan->z.q; /* as it is given */
  plan->x.converts_q = true;
}

/* ---- the workspace -------------------------------------------------------------------------- */

/* Sets aside bytes at the next multiple of 256. */
static size_t reserve(size_t *end, size_t bytes) {
  const size_t start = (*end + 255) / 256 * 256;
  *end = start + bytes;
  return start;
}

static void lay_out(call_plan *plan) {
  const attune_sdpa_params *p = &plan->x.p;
  const bool decode = plan->form->kernel == ATTUNE_KERNEL_DECODE;
  if (plan->quantiser == NULL && !decode) return;
  size_t end = ATTUNE_SDPA_ZEROED_BYTES;
  if (plan->quantiser != NULL) {
    const quantization *z = &plan->z;
    const size_t row = (size_t)z->batch * (size_t)z->head_dim,
                 q_floats = (size_t)p->batch * (size_t)z->heads * sizeof(float),
                 kv_floats = (size_t)p->batch * (size_t)z->kv_heads * sizeof(float);
    const head_factors n = attune_factors_of(z, plan->quantiser);
    end = QUANTIZE_OFFSET + attune_quantization_bytes(z, plan->quantiser);
    if (z->q_rows > 0) {
      plan->y_q = reserve(&end, row * (size_t)z->heads * (size_t)z->q_rows);
      plan->descale_q = reserve(&end, q_floats * n.q);
    }
    if (z->kv_rows > 0) {
      const size_t codes = row * (size_t)z->kv_heads * (size_t)z->kv_rows;
      plan->y_k = reserve(&end, codes);
      if (n.v > 0) plan->y_v = reserve(&end, codes);
      plan->descale_k = reserve(&end, kv_floats * n.k);
      if (n.v > 0) plan->descale_v = reserve(&end, kv_floats * n.v);
    }
    if (plan->quantiser->kernel == ATTUNE_KERNEL_QUANTIZE8) {
      plan->mean_k = reserve(&end, kv_floats * (size_t)z->head_dim);
      if (p->lse != NULL) plan->q_dot_mean = reserve(&end, q_floats * (size_t)z->q_rows);
    }
  }
  const int32_t multiprocessors = plan->x.target.multiprocessors;
  if (decode) plan->parts = reserve(&end, attune_decode_part_bytes(plan->form, multiprocessors));
  plan->workspace_bytes = end;
}

/* Whether the form hands out its tiles by counters, which balances causal ones. Without a workspace
 * it does without. */
static bool counts_tiles(const call_plan *plan) {
  return plan->form->kernel == ATTUNE_KERNEL_PINGPONG && plan->x.causal;
}

/* Puts the addresses of the workspace into the problem. */
static void place(call_plan *plan) {
  problem *x = &plan->x;
  char *base = x->p.workspace;
  if (plan->parts != 0) x->parts = base + plan->parts;
  if (counts_tiles(plan)) x->counters = base;
  if (plan->quantiser == NULL) return;
  x->dependent = plan->quantiser->kernel == ATTUNE_KERNEL_CAST && plan->form->waits;
  quantization *z = &plan->z;
  z->workspace = base + QUANTIZE_OFFSET;
  z->counters = base;
  if (z->q_rows > 0) {
    x->p.q = x->q.address = z->y_q = base + plan->y_q;
    x->p.descale_q = z->descale_q = (float *)(void *)(base + plan->descale_q);
  }
  if (plan->mean_k != 0) z->mean_k = (float *)(void *)(base + plan->mean_k);
  if (plan->q_dot_mean != 0) {
    x->q_dot_mean = z->q_dot_mean = (float *)(void *)(base + plan->q_dot_mean);
  }
  if (z->kv_rows == 0) return;
  x->p.k = x->k.address = z->y_k = base + plan->y_k;
  x->p.descale_k = z->descale_k = (float *)(void *)(base + plan->descale_k);
  if (plan->y_v == 0) return; /* v stays as it is */
  x->p.v = x->v.address = z->y_v = base + plan->y_v;
  x->p.descale_v = z->descale_v = (float *)(void *)(base + plan->descale_v);
}

/* The rules of the selection were measured on an H200. */
static const target h200 = {90, 132};

static attune_sdpa_status set_target(problem *x, const context *c) {
  const attune_sdpa_params *p = &x->p;
  const extent both[] = {{"arch", p->arch}, {"multiprocessors", p->multiprocessors}};
  x->target = c != NULL ? attune_target_of(c) : h200;
  if (p->arch == 0 && p->multiprocessors == 0) return ATTUNE_SDPA_OK;
  TRY(attune_check_extents(both, 2));
  x->target = (target){p->arch, p->multiprocessors};
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_make_plan(const attune_sdpa_params *params, bool has_workspace,
                                    const context *c, call_plan *plan) {
  memset(plan, 0, sizeof *plan);
  TRY(copy_params(params, &plan->x.p));
  TRY(set_target(&plan->x, c));
  TRY(check_sizes(&plan->x.p));
  TRY(check_formats(&plan->x.p));
  TRY(set_tensors(plan));
  set_masks(&plan->x);
  plan->x.packed = 1;
  if (plan->x.target.arch != attune_sdpa_arch) {
    if (!attune_is_in_8_bits(&plan->x.p)) return attune_select_warp(plan, has_workspace);
    TRY(attune_select_warp8(plan));
    lay_out(plan);
    return ATTUNE_SDPA_OK;
  }
  plan->x.other_head_dim = is_other_head_dim(&plan->x.p);
  const int32_t precision = plan->x.p.precision;
  if (precision != ATTUNE_SDPA_PRECISION_FP8) select_halves(plan, has_workspace);
  if (plan->form != NULL) {
    if (has_workspace && counts_tiles(plan)) plan->workspace_bytes = ATTUNE_SDPA_ZEROED_BYTES;
    lay_out(plan);
    return ATTUNE_SDPA_OK;
  }
  if (plan->x.other_head_dim) return no_head_dim(&plan->x);
  if (precision == ATTUNE_SDPA_PRECISION_16) return refuse_halves(&plan->x);
  TRY(check_score_options(&plan->x.p));
  plan->form = find_mixed(&plan->x);
  TRY(plan_quantisation(plan));
  if (plan->form == NULL) TRY(select_form(plan, has_workspace));
  convert_in_decode(plan);
  lay_out(plan);
  return ATTUNE_SDPA_OK;
}

/* ---- the interface -------------------------------------------------------------------------- */

enum { POINTERS = 16 };

/* Lists the pointers that a call reads and writes. */
static int list_pointers(const call_plan *plan, pointer all[POINTERS]) {
  const attune_sdpa_params *p = &plan->x.p;
  const bool q = p->q_dtype == ATTUNE_SDPA_E4M3, kv = p->dtype == ATTUNE_SDPA_E4M3;
  const pointer every[POINTERS] = {{"q", p->q, 16},
                                   {"k", p->k, 16},
                                   {"v", p->v, 16},
                                   {"o", p->o, 16},
                                   {"lse", p->lse, sizeof(float)},
                                   {"descale_q", p->descale_q, sizeof(float)},
                                   {"descale_k", p->descale_k, sizeof(float)},
                                   {"descale_v", p->descale_v, sizeof(float)},
                                   {"sinks", p->sinks, sizeof(float)},
                                   {"cu_queries", p->cu_queries, sizeof(int32_t)},
                                   {"cu_keys", p->cu_keys, sizeof(int32_t)},
                                   {"key_lengths", p->key_lengths, sizeof(int32_t)},
                                   {"page_table", p->page_table, sizeof(int32_t)},
                                   {"alibi_slopes", p->alibi_slopes, sizeof(float)},
                                   {"tree_mask", p->tree_mask, sizeof(uint64_t)},
                                   {"workspace", p->workspace, 16}};
  const bool required[POINTERS] = {true, true, true, true, false, q, kv, kv};
  int n = 0;
  for (int i = 0; i < POINTERS - 1; ++i) {
    if (required[i] || every[i].address != NULL) all[n++] = every[i];
  }
  if (plan->workspace_bytes > 0) all[n++] = every[POINTERS - 1];
  return n;
}

/* Code that was planned for one device is not launched on another. */
static attune_sdpa_status check_device(const problem *x, const context *c) {
  const target has = attune_target_of(c), wanted = x->target;
  if (has.arch == wanted.arch && has.multiprocessors == wanted.multiprocessors) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                     "arch is %d and multiprocessors %d; device %d of the current context is sm_%d and "
                     "has %d",
                     wanted.arch, wanted.multiprocessors, attune_device_of(c), has.arch,
                     has.multiprocessors);
}

/* The first call is for a GPU that is not known yet. What is wrong on all of them is reported without
 * the driver. What an H200 does not compute or needs a workspace for, another GPU may compute without. */
static attune_sdpa_status start(const attune_sdpa_params *params, bool has_workspace, context **c) {
  call_plan plan;
  pointer pointers[POINTERS];
  const attune_sdpa_status status = attune_make_plan(params, has_workspace, NULL, &plan);
  if (status == ATTUNE_SDPA_OK) {
    plan.workspace_bytes = 0;
    TRY(attune_check_addresses(pointers, list_pointers(&plan, pointers)));
  } else if (status != ATTUNE_SDPA_UNSUPPORTED) {
    return status;
  }
  TRY(attune_start_driver());
  return attune_current_context(c);
}

attune_sdpa_status attune_sdpa_forward(const attune_sdpa_params *params,
                                       struct CUstream_st *stream) {
  const bool has_workspace = params != NULL && params->workspace != NULL;
  call_plan plan;
  context *c = NULL;
  pointer pointers[POINTERS];
  TRY(attune_started_context(&c));
  if (c == NULL) TRY(start(params, has_workspace, &c));
  TRY(attune_make_plan(params, has_workspace, c, &plan));
  TRY(check_device(&plan.x, c));
  TRY(attune_check_workspace(plan.x.p.workspace_bytes, plan.workspace_bytes));
  const int n = list_pointers(&plan, pointers);
  TRY(attune_check_addresses(pointers, n));
  if ((plan.x.p.flags & ATTUNE_SDPA_TRUST_POINTERS) == 0) TRY(attune_check_memory(c, pointers, n));
  /* All code is loaded before the first launch, so that a failure launches nothing. */
  if (plan.quantiser != NULL) TRY(attune_load(c, plan.quantiser));
  TRY(attune_load(c, plan.form));
  place(&plan);
  if (plan.quantiser != NULL) {
    TRY(attune_launch_quantization(&plan.z, c, plan.quantiser, stream));
  }
  return attune_launch_attention(&plan.x, c, plan.form, stream);
}

size_t attune_sdpa_workspace_bytes(const attune_sdpa_params *params) {
  call_plan plan;
  const attune_sdpa_status status = attune_make_plan(params, true, attune_peek_context(), &plan);
  return status == ATTUNE_SDPA_OK ? plan.workspace_bytes : 0;
}

const char *attune_sdpa_form(const attune_sdpa_params *params) {
  call_plan plan;
  const bool has_workspace = params != NULL && params->workspace != NULL;
  const context *c = attune_peek_context();
  const attune_sdpa_status status = attune_make_plan(params, has_workspace, c, &plan);
  return status == ATTUNE_SDPA_OK ? plan.form->variant : NULL;
}

const char *attune_sdpa_version(void) { return attune_sdpa_version_text; }
