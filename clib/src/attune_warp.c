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
static int32_t blocks_of_multiprocessor(const attune_sdpa_form_info *form, target t) {
  const int32_t room = attune_shared_bytes_of(t) / (form->shared_bytes + BLOCK_SHARED_BYTES);
  return room < form->blocks_per_multiprocessor ? room : form->blocks_per_multiprocessor;
}

/* Tiles of query rows. With packed heads a tile has rows of all query heads of a K/V head. */
static double tiles_of(const attune_sdpa_form_info *form, const attune_sdpa_params *p) {
  const int64_t group = p->heads / p->kv_heads, packed = form->packs_heads ? group : 1;
  return (double)p->batch * (double)(p->heads / packed) *
         (double)quotient_up(p->queries * packed, form->query_rows);
}

/* ---- the choice ----------------------------------------------------------------------------- */

/* A step takes the time of its rows and of the loads of K and V by every four warps, which is that
 * of a share of the head dim in rows more, and that of its keys and of some more. A block takes
 * that of some keys more, and the merge of its part too. Fitted to times of an H200
 * (docs/experiments.md, W7). */
enum {
  ROWS_OF_LOADS = 20, /* with head dim 64 */
  KEYS_OF_STEP = 24,
  KEYS_OF_BLOCK = 192,
  KEYS_OF_MERGE = 256,
  KEYS_OF_PART = 64,
  MOST_BLOCKS = 1 << 26 /* in the sum of times, which 64 bits hold */
};

/* Times are in fifteenths of those of a multiprocessor that its blocks keep busy. A block alone on
 * one has 3/4 of that rate, unless it has more than four warps. */
enum { BUSY = 15, ALONE = 20, FOUR_WARPS = 128 /* threads */ };

/* The time of a block on a multiprocessor that has some at a time. */
static int64_t rate_of(const attune_sdpa_form_info *form, int64_t resident) {
  return resident == 1 && form->threads <= FOUR_WARPS ? ALONE : BUSY;
}

/* The time of a step of each row, in keys. Of short steps a smaller share is not that of keys. */
static int64_t time_of_step(const attune_sdpa_form_info *form) {
  const int32_t more = form->step_keys / 2;
  return form->step_keys + (more < KEYS_OF_STEP ? more : KEYS_OF_STEP);
}

/* The time of equal blocks: of those that fill the multiprocessors, and of the rest. */
static int64_t time_of_waves(const attune_sdpa_form_info *form, target t, int64_t blocks,
                             int64_t keys) {
  const int64_t resident = blocks_of_multiprocessor(form, t),
                wave = t.multiprocessors * resident,
                rest = quotient_up(blocks % wave, t.multiprocessors);
  return (blocks / wave * resident * rate_of(form, resident) + rest * rate_of(form, rest)) * keys;
}

/* The time of causal blocks. On average they have half the keys of the longest, and half as many
 * as a tile has rows more. Long ones come first, so that the time is that of the longest or of all,
 * and some of the other. */
static int64_t time_of_triangle(const attune_sdpa_form_info *form, target t, int64_t blocks,
                                int64_t longest) {
  const int64_t all =
      blocks * ((longest + KEYS_OF_BLOCK + form->query_rows) / 2) / t.multiprocessors;
  const int64_t of_longest = rate_of(form, 1) * longest,
                of_all = rate_of(form, blocks_of_multiprocessor(form, t)) * 4 / 5 * all;
  return (of_longest > of_all ? of_longest : of_all) + BUSY / 3 * (longest < all ? longest : all);
}

/* Whether the query heads of a K/V head have so few rows that they share tiles. */
static bool has_few_rows(const attune_sdpa_params *p) {
  enum { MOST = 128 };
  const int64_t rows = (int64_t)(p->heads / p->kv_heads) * p->queries;
  return rows <= MOST && 2 * rows <= p->keys;
}

/* The time with some blocks for each tile, in units that are the same for all forms of a GPU. */
static int64_t cost_of(const attune_sdpa_form_info *form, const problem *x, int64_t splits) {
  const int64_t all = (int64_t)tiles_of(form, &x->p) * splits,
                blocks = all < MOST_BLOCKS ? all : MOST_BLOCKS,
                steps = quotient_up(x->p.keys, form->step_keys),
                step = time_of_step(form);
  const bool triangle = x->causal && x->p.keys / 2 < x->p.queries;
  int64_t time =
      triangle ? time_of_triangle(form, x->target, blocks, steps * step / splits + KEYS_OF_BLOCK)
               : time_of_waves(form, x->target, blocks,
                               quotient_up(steps, splits) * step + KEYS_OF_BLOCK);
  if (splits > 1 && !form->packs_heads) time += BUSY * (KEYS_OF_MERGE + KEYS_OF_PART * splits);
  if (form->packs_heads && !has_few_rows(&x->p)) time *= 4;
  if (form->has_options) time += time / 16; /* their instructions */
  const int64_t fours = form->threads > FOUR_WARPS ? form->threads / FOUR_WARPS : 1,
                loads = ROWS_OF_LOADS * form->head_dim / 64 * fours;
  return time * ((form->query_rows + loads) / 4) * (form->head_dim / 32);
}

/* Blocks that divide the keys of a tile, each with some steps, and the cost with them. Few rows are
 * read at the rate of the memory: as many blocks as the multiprocessors hold at once are best.
 * Other problems have the number of the least cost, up to two fillings: causal blocks are shorter
 * than the longest (docs/warp.md). */
static int32_t splits_of(const attune_sdpa_form_info *form, const problem *x, bool has_workspace,
                         int64_t *cost) {
  enum { MIN_STEPS = 2, MOST_FILLINGS = 2 };
  const double tiles = tiles_of(form, &x->p);
  int32_t splits = 1;
  *cost = cost_of(form, x, 1);
  if (!form->splits || !has_workspace || tiles > MAX_DECODE_COUNTERS) return 1;
  const int32_t resident = blocks_of_multiprocessor(form, x->target),
                room = x->target.multiprocessors * resident, all = (int32_t)tiles,
                most = x->p.keys / (MIN_STEPS * form->step_keys);
  if (form->packs_heads) {
    const int32_t filling = room / all < most ? room / all : most;
    splits = filling > 1 ? filling : 1;
    *cost = cost_of(form, x, splits);
    return splits;
  }
  for (int32_t n = 2; n <= MOST_FILLINGS * room / all && n <= most; n += 1 + n / 8) {
    const int64_t c = cost_of(form, x, n);
    if (c < *cost) *cost = c, splits = n;
  }
  return splits;
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
                       "sm_%d has them, and those have up to 256",
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
    if (blocks_of_multiprocessor(f, x->target) < 1) continue;
    if (of_head_dim == NULL || f->has_options) of_head_dim = f;
    if (tiles_of(f, p) > INT32_MAX || (attune_option_of(x) != NULL && !f->has_options)) continue;
    int64_t cost;
    const int32_t splits = splits_of(f, x, has_workspace, &cost);
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

/* With a causal mask K and V of a section fill three quarters of the L2 cache at most, and sections
 * are equally large: blocks of the last one end together where it has many tiles. Heads of few keys
 * have few tiles, and one follows the other. */
int32_t attune_warp_section(const problem *x, const attune_sdpa_form_info *form, int l2_bytes) {
  enum { MOST_SHORT_KEYS = 320 };
  const attune_sdpa_params *p = &x->p;
  if (!x->causal) return 1;
  const bool warp8 = form->kernel == ATTUNE_KERNEL_WARP8, e4m3 = p->dtype == ATTUNE_SDPA_E4M3;
  const int64_t of_k = e4m3 || warp8 ? 1 : 2, of_v = e4m3 || form->e4m3_v ? 1 : 2,
                head_bytes = (of_k * p->head_dim + of_v * p->v_head_dim) * p->keys,
                group = form->packs_heads ? 1 : p->heads / p->kv_heads,
                heads = (int64_t)p->batch * p->kv_heads;
  const double fillings = (double)head_bytes * (double)heads * 4 / 3 / (double)l2_bytes;
  const int64_t sections = fillings < (double)heads ? (int64_t)fillings + 1 : heads;
  if (sections > 1 && p->keys <= MOST_SHORT_KEYS) return 1;
  return (int32_t)(quotient_up(heads, sections) * group);
}
