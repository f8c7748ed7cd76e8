/* Attention in 16 bits on GPUs that the kernels for Hopper are not for: the forms of the warp kernel. */
#include "attune_internal.h"

/* ---- what a form computes ------------------------------------------------------------------- */

/* Whether the tensors have the types of the form: q and o one of 16 bits, k and v that or E4M3. */
static bool has_types(const attune_sdpa_form_info *form, const attune_sdpa_params *p) {
  const bool e4m3 = form->cache_dtype == ATTUNE_SDPA_E4M3;
  return form->bf16 == (p->q_dtype == ATTUNE_SDPA_BF16) && e4m3 == (p->dtype == ATTUNE_SDPA_E4M3);
}

/* Whether the form has all columns, and without options no others. */
static bool has_columns(const attune_sdpa_form_info *form, const attune_sdpa_params *p) {
  const int32_t dim = form->head_dim;
  if (form->has_options) return dim >= p->head_dim && dim >= p->v_head_dim;
  return dim == p->head_dim && dim == p->v_head_dim;
}

/* Blocks that a multiprocessor holds; 0 if it has no room for one. */
static int32_t blocks_of_multiprocessor(const attune_sdpa_form_info *form, int32_t arch) {
  const int32_t room = attune_shared_bytes_of(arch) / (form->shared_bytes + BLOCK_SHARED_BYTES);
  return room < form->blocks_per_multiprocessor ? room : form->blocks_per_multiprocessor;
}

/* Tiles of query rows. With packed heads a tile has rows of all query heads of a K/V head. */
static double tiles_of(const attune_sdpa_form_info *form, const attune_sdpa_params *p) {
  const int64_t group = p->heads / p->kv_heads, packed = form->packs_heads ? group : 1;
  return (double)p->batch * (double)(p->heads / packed) *
         (double)quotient_up(p->queries * packed, form->query_rows);
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* Blocks that divide the keys of a tile: as many as the multiprocessors hold at once, each with some
 * steps (docs/warp.md). */
static int32_t splits_of(const attune_sdpa_form_info *form, const problem *x, bool has_workspace) {
  enum { MIN_STEPS = 2 };
  const double tiles = tiles_of(form, &x->p);
  const int32_t blocks =
                    x->target.multiprocessors * blocks_of_multiprocessor(form, x->target.arch),
                most = x->p.keys / (MIN_STEPS * form->step_keys);
  if (!form->splits || !has_workspace || tiles > MAX_DECODE_COUNTERS) return 1;
  const int32_t splits = blocks / (int32_t)tiles < most ? blocks / (int32_t)tiles : most;
  return splits > 1 ? splits : 1;
}

/* The time of the multiprocessor that has the most tiles. A tile takes that of its rows and of the
 * loads of K and V, which is that of 32 more: so tiles of 64 rows have 0.83 of the rate of those of
 * 128 (docs/experiments.md, W1: 0.84). Causal tiles have half the keys on average, and long ones come
 * first, with short ones beside them. */
static int64_t cost_of(const attune_sdpa_form_info *form, const problem *x, int32_t splits) {
  enum { ROWS_OF_LOADS = 32, FRACTIONS = 840 };
  const bool triangle = x->causal && x->p.keys / 2 < x->p.queries;
  const int64_t all = (int64_t)tiles_of(form, &x->p) * splits;
  const int64_t blocks = triangle ? quotient_up(all, 2) : all;
  return quotient_up(blocks, x->target.multiprocessors) * (form->query_rows + ROWS_OF_LOADS) *
         form->head_dim * FRACTIONS / splits;
}

static attune_sdpa_status check_formats(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  if (p->out_dtype == p->q_dtype) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "q_dtype is %d and out_dtype %d; on sm_%d both are FP16 or both BF16",
                     (int)p->q_dtype, (int)p->out_dtype, x->target.arch);
}

/* Why no form computes a problem whose formats are right. */
static attune_sdpa_status refuse(const problem *x, const attune_sdpa_form_info *of_head_dim) {
  const attune_sdpa_params *p = &x->p;
  const char *option = attune_option_of(x);
  if (of_head_dim == NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "dtype is %d, head_dim %d and v_head_dim %d; no form of this library for "
                       "sm_%d has them",
                       (int)p->dtype, p->head_dim, p->v_head_dim, x->target.arch);
  }
  if (option != NULL && !of_head_dim->has_options) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "no form of this library for sm_%d has %s",
                       x->target.arch, option);
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "batch is %d, heads %d and queries %d: there would be more than 2^31 tiles of "
                     "%d queries",
                     p->batch, p->heads, p->queries, of_head_dim->query_rows);
}

attune_sdpa_status attune_refuse_arch(int32_t arch) {
  int32_t first = 0;
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    if (attune_sdpa_forms[i].kernel == ATTUNE_KERNEL_WARP) first = attune_sdpa_forms[i].arch;
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "the GPU is sm_%d; the code of this library is for sm_%d%s", arch,
                     first != 0 ? first : attune_sdpa_arch, first != 0 ? " and later" : "");
}

attune_sdpa_status attune_select_warp(call_plan *plan, bool has_workspace) {
  problem *x = &plan->x;
  const attune_sdpa_params *p = &x->p;
  const attune_sdpa_form_info *of_head_dim = NULL;
  const selection *measured = NULL;
  int64_t least = INT64_MAX;
  int first = INT32_MAX, last = 0; /* rank of the best form so far, and of the worst */
  bool runs = false;
  TRY(attune_find_selection(x->target, &measured));
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel != ATTUNE_KERNEL_WARP || !attune_runs_on(f, x->target.arch)) continue;
    runs = true;
    if (!has_types(f, p) || !has_columns(f, p)) continue;
    if (blocks_of_multiprocessor(f, x->target.arch) < 1) continue;
    if (of_head_dim == NULL || f->has_options) of_head_dim = f;
    if (tiles_of(f, p) > INT32_MAX || (attune_option_of(x) != NULL && !f->has_options)) continue;
    const int32_t splits = splits_of(f, x, has_workspace);
    const int64_t cost = cost_of(f, x, splits);
    const int rank = attune_rank(measured, x, f);
    if (rank > last) last = rank;
    if (rank > first || (rank == first && cost >= least)) continue;
    first = rank, least = cost, plan->form = f, x->splits = splits;
  }
  if (!runs) return attune_refuse_arch(x->target.arch);
  TRY(check_formats(x));
  if (plan->form == NULL) return refuse(x, of_head_dim);
  x->is_measured = first < last;
  if (x->splits > 1) {
    const size_t tile = (size_t)plan->form->query_rows * ((size_t)plan->form->head_dim + 2);
    plan->parts = ATTUNE_SDPA_ZEROED_BYTES;
    plan->workspace_bytes = plan->parts + (size_t)tiles_of(plan->form, p) * (size_t)x->splits *
                                              tile * sizeof(float);
  }
  return ATTUNE_SDPA_OK;
}

/* ---- the launch ----------------------------------------------------------------------------- */

/* A block for each part of each tile. */
void attune_set_warp_grid(const problem *x, const attune_sdpa_form_info *form, unsigned grid[3]) {
  grid[0] = (unsigned)(tiles_of(form, &x->p) * x->splits);
}

/* With a causal mask, those whose K and V fill half of the L2 cache at most. */
int32_t attune_warp_section(const problem *x, const attune_sdpa_form_info *form, int l2_bytes) {
  const attune_sdpa_params *p = &x->p;
  const bool warp8 = form->kernel == ATTUNE_KERNEL_WARP8, e4m3 = p->dtype == ATTUNE_SDPA_E4M3;
  const int64_t of_k = e4m3 || warp8 ? 1 : 2, of_v = e4m3 || form->e4m3_v ? 1 : 2,
                head_bytes = (of_k * p->head_dim + of_v * p->v_head_dim) * p->keys,
                group = form->packs_heads ? 1 : p->heads / p->kv_heads,
                fitting = l2_bytes / 2 / head_bytes * group,
                heads = (int64_t)p->batch * p->kv_heads * group;
  if (!x->causal || fitting < 1) return 1;
  return (int32_t)(fitting < heads ? fitting : heads);
}
