/* Attention in 8 bits on GPUs that the kernels for Hopper are not for: the forms of the warp8 kernel,
 * and its quantiser. */
#include "attune_internal.h"

/* Whether mma.sync multiplies E4M3 as fast as s8, or faster. GPUs before sm_89 have no such products.
 * On Hopper mma.sync emulates them, and those of sm_100 to sm_110 are not known. */
static bool has_e4m3_products(int32_t arch) { return arch == 89 || arch >= 120; }

static bool has_code_for(int32_t arch) {
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel == ATTUNE_KERNEL_WARP8 && attune_runs_on(f, arch)) return true;
  }
  return false;
}

bool attune_is_in_8_bits(const attune_sdpa_params *p) {
  const bool fp8 = p->precision == ATTUNE_SDPA_PRECISION_FP8 || p->smooth_k || p->hadamard;
  return p->q_dtype == ATTUNE_SDPA_E4M3 || (fp8 && p->dtype != ATTUNE_SDPA_E4M3);
}

/* What no form of 8 bits has. */
static attune_sdpa_status check_options(const problem *x, bool e4m3_v) {
  const attune_sdpa_params *p = &x->p;
  const char *option = attune_option_of(x);
  if (option != NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "no form of 8 bits of this library for sm_%d has %s", x->target.arch, option);
  }
  if (p->hadamard) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "hadamard is %d; the quantiser of this library for sm_%d has no transform",
                       p->hadamard, x->target.arch);
  }
  if (attune_keys_are_many(p)) return attune_too_many_keys(p);
  if (e4m3_v || p->out_dtype == p->dtype) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "dtype is %d and out_dtype %d; in 8 bits on sm_%d both are FP16 or both BF16",
                     (int)p->dtype, (int)p->out_dtype, x->target.arch);
}

/* E4M3 tensors are taken as they are. Others become s8, but for v where there are no products of
 * E4M3. */
static const attune_sdpa_form_info *find_form(const problem *x, bool e4m3_v) {
  const attune_sdpa_params *p = &x->p;
  const bool given = p->q_dtype == ATTUNE_SDPA_E4M3, bf16 = p->out_dtype == ATTUNE_SDPA_BF16;
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel != ATTUNE_KERNEL_WARP8 || !attune_runs_on(f, x->target.arch)) continue;
    if (f->head_dim != p->head_dim || f->head_dim != p->v_head_dim) continue;
    if (f->e4m3_v != e4m3_v || f->bf16 != bf16) continue;
    if ((f->cache_dtype == ATTUNE_SDPA_E4M3) != given) continue;
    if (f->shared_bytes + BLOCK_SHARED_BYTES <= attune_shared_bytes_of(x->target)) return f;
  }
  return NULL;
}

/* The quantiser of a form. Smooth-K is always on: k is whole, and the log-sum-exp has the products of
 * q and the means again. */
static attune_sdpa_status plan_quantiser(call_plan *plan) {
  problem *x = &plan->x;
  const attune_sdpa_params *p = &x->p;
  const bool e4m3_v = plan->form->e4m3_v;
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel == ATTUNE_KERNEL_QUANTIZE8 && f->e4m3_v == e4m3_v) plan->quantiser = f;
  }
  if (plan->quantiser == NULL) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "this library was exported without a quantiser for %s",
                       plan->form->variant);
  }
  plan->z = (quantization){.q = x->q, .k = x->k, .v = x->v, .batch = p->batch, .heads = p->heads,
                           .kv_heads = p->kv_heads, .q_rows = p->queries, .kv_rows = p->keys,
                           .head_dim = p->head_dim, .copies = 1,
                           .bf16 = p->q_dtype == ATTUNE_SDPA_BF16, .smooth = 1};
  attune_make_contiguous(&x->q);
  attune_make_contiguous(&x->k);
  if (e4m3_v) {
    attune_make_contiguous(&x->v);
  } else {
    plan->z.v.address = NULL;
  }
  return attune_check_quantization(&plan->z, plan->quantiser);
}

/* Why no form has the tensors. */
static attune_sdpa_status refuse(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  bool has_e4m3 = false;
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    has_e4m3 |= f->kernel == ATTUNE_KERNEL_WARP8 && f->cache_dtype == ATTUNE_SDPA_E4M3 &&
                attune_runs_on(f, x->target.arch);
  }
  if (p->q_dtype == ATTUNE_SDPA_E4M3 && !has_e4m3) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "q_dtype is ATTUNE_SDPA_E4M3, which sm_%d does not multiply; q must be in FP16 "
                       "or BF16, and k and v in the same, or in E4M3",
                       x->target.arch);
  }
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "q_dtype is %d, head_dim %d and v_head_dim %d; no form of 8 bits of this library "
                     "for sm_%d has them, and those have 64, 96, 128 and 256",
                     (int)p->q_dtype, p->head_dim, p->v_head_dim, x->target.arch);
}

attune_sdpa_status attune_select_warp8(call_plan *plan) {
  const problem *x = &plan->x;
  const attune_sdpa_params *p = &x->p;
  const int32_t arch = x->target.arch;
  const bool given = p->q_dtype == ATTUNE_SDPA_E4M3, e4m3_v = given || has_e4m3_products(arch);
  if (!has_code_for(arch)) return attune_refuse_arch(arch);
  TRY(check_options(x, e4m3_v));
  plan->form = find_form(x, e4m3_v);
  if (plan->form == NULL) return refuse(x);
  const int64_t tiles_of_heads = quotient_up(p->queries, plan->form->query_rows);
  if ((double)p->batch * p->heads * (double)tiles_of_heads > INT32_MAX) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "batch is %d, heads %d and queries %d: there would be more than 2^31 tiles of "
                       "%d queries",
                       p->batch, p->heads, p->queries, plan->form->query_rows);
  }
  return given ? ATTUNE_SDPA_OK : plan_quantiser(plan);
}
