/* Attention on GPUs that the other kernels are not for: the forms of the warp kernel, in 16 bits. */
#include "attune_internal.h"

/* ---- what a form computes ------------------------------------------------------------------- */

static bool takes(const attune_sdpa_form_info *form, attune_argument argument) {
  for (int i = 0; i < form->argument_count; ++i) {
    if (form->arguments[i] == argument) return true;
  }
  return false;
}

/* The first option of a problem that the form has no argument for; NULL without one. */
static const char *lacks(const attune_sdpa_form_info *form, const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const bool window = x->window_left >= 0 || x->window_right >= 0;
  const struct {
    bool is_set;
    attune_argument argument;
    const char *name;
  } options[] = {{p->softcap != 0, ATTUNE_ARG_SOFTCAP, "a softcap"},
                 {p->alibi_slopes != NULL, ATTUNE_ARG_ALIBI_SLOPES, "ALiBi slopes"},
                 {p->tree_mask != NULL, ATTUNE_ARG_TREE_MASK, "a tree mask"},
                 {p->cu_queries != NULL, ATTUNE_ARG_CU_QUERIES, "packed sequences"},
                 {p->page_table != NULL, ATTUNE_ARG_PAGE_TABLE, "pages"},
                 {p->key_lengths != NULL, ATTUNE_ARG_LENGTHS, "lengths"},
                 {p->sinks != NULL, ATTUNE_ARG_SINKS, "sinks"},
                 {window, ATTUNE_ARG_WINDOW_LEFT, "a window"}};
  for (size_t i = 0; i < sizeof options / sizeof *options; ++i) {
    if (options[i].is_set && !takes(form, options[i].argument)) return options[i].name;
  }
  return NULL;
}

static bool has_columns(const attune_sdpa_form_info *form, const attune_sdpa_params *p) {
  return form->head_dim == p->head_dim && form->head_dim == p->v_head_dim;
}

/* Blocks of the form fit a multiprocessor. */
static bool has_room(const attune_sdpa_form_info *form, int32_t arch) {
  return form->shared_bytes + BLOCK_SHARED_BYTES <= attune_shared_bytes_of(arch);
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* The tiles of the multiprocessor that has the most, in rows. A row of small tiles counts 19/16: each
 * of their warps has 16 rows instead of 32, and reads K and V as often (docs/experiments.md, W1). */
static double cost_of(const attune_sdpa_form_info *form, const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const double tiles =
      (double)p->batch * p->heads * (double)quotient_up(p->queries, form->query_rows);
  const double blocks = x->target.multiprocessors;
  const int64_t most = tiles < 1e15 ? quotient_up((int64_t)tiles, (int64_t)blocks) : INT32_MAX;
  return (double)most * form->query_rows * (form->query_rows < 128 ? 19 : 16);
}

/* What no form of the kernel computes. */
static attune_sdpa_status check_formats(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const bool fp8 = p->precision == ATTUNE_SDPA_PRECISION_FP8;
  if (p->dtype == ATTUNE_SDPA_E4M3 || p->out_dtype != p->dtype) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "dtype is %d and out_dtype %d; on sm_%d q, k, v and o are all FP16 or all BF16",
                       (int)p->dtype, (int)p->out_dtype, x->target.arch);
  }
  if (!fp8 && !p->smooth_k && !p->hadamard) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "%s is set; on sm_%d nothing is quantised",
                     fp8          ? "ATTUNE_SDPA_PRECISION_FP8"
                     : p->smooth_k ? "smooth_k"
                                   : "hadamard",
                     x->target.arch);
}

static attune_sdpa_status refuse_arch(int32_t arch) {
  int32_t first = 0;
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    if (attune_sdpa_forms[i].kernel == ATTUNE_KERNEL_WARP) first = attune_sdpa_forms[i].arch;
  }
  if (first == 0) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "the GPU is sm_%d; the code of this library is for sm_%d",
                       arch, attune_sdpa_arch);
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "the GPU is sm_%d; the code of this library is for sm_%d and later", arch, first);
}

attune_sdpa_status attune_select_warp(call_plan *plan) {
  const problem *x = &plan->x;
  const attune_sdpa_params *p = &x->p;
  const attune_sdpa_form_info *best = NULL, *other = NULL; /* other: of the head dim, and lacks an option */
  bool runs = false;
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel != ATTUNE_KERNEL_WARP || !attune_runs_on(f, x->target.arch)) continue;
    runs = true;
    if (!has_columns(f, p) || f->bf16 != (p->dtype == ATTUNE_SDPA_BF16)) continue;
    if (!has_room(f, x->target.arch)) continue;
    if (lacks(f, x) != NULL) {
      other = f;
    } else if (best == NULL || cost_of(f, x) < cost_of(best, x)) {
      best = f;
    }
  }
  plan->form = best;
  if (best != NULL) return check_formats(x);
  if (!runs) return refuse_arch(x->target.arch);
  TRY(check_formats(x));
  if (other == NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "head_dim is %d and v_head_dim %d; on sm_%d this library has 64, 96, 128 and 256 "
                       "for both",
                       p->head_dim, p->v_head_dim, x->target.arch);
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "no form of this library for sm_%d has %s",
                     x->target.arch, lacks(other, x));
}

/* ---- the launch ----------------------------------------------------------------------------- */

/* A block for each tile of query rows of each head. */
attune_sdpa_status attune_set_warp_grid(const problem *x, const attune_sdpa_form_info *form,
                                        unsigned grid[3]) {
  const attune_sdpa_params *p = &x->p;
  const double tiles =
      (double)p->batch * p->heads * (double)quotient_up(p->queries, form->query_rows);
  if (tiles > INT32_MAX) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "batch is %d, heads %d and queries %d: there would be more than 2^31 tiles "
                       "of %d queries",
                       p->batch, p->heads, p->queries, form->query_rows);
  }
  grid[0] = (unsigned)tiles;
  return ATTUNE_SDPA_OK;
}

/* The heads whose tiles follow each other: with a causal mask, those whose K and V fill half of the L2
 * cache at most. */
int32_t attune_warp_section(const problem *x, int l2_bytes) {
  const attune_sdpa_params *p = &x->p;
  const int64_t head_bytes = 2 * ((int64_t)p->head_dim + p->v_head_dim) * p->keys,
                kv_heads = l2_bytes / 2 / head_bytes,
                heads = (int64_t)p->batch * p->heads, group = p->heads / p->kv_heads;
  if (!x->causal || kv_heads < 1) return 1;
  return (int32_t)(kv_heads * group < heads ? kv_heads * group : heads);
}
