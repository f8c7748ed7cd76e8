/* attune_sdpa_explain: what a call does, and why. The choice itself is made in attune_sdpa.c. */
#include <stdio.h>
#include <string.h>

#include "attune_internal.h"

/* ---- errors --------------------------------------------------------------------------------- */

/* The documented errors of O on normal inputs, relative to attention in float64 on the tensors of
 * the call. docs/library.md prints this table; a test compares them. */
static const struct {
  double linear, exact, decode; /* in 16 bits: with linear exponentials, without, of decode */
  double cast, codes;           /* in FP8: of tensors that are quantised, of E4M3 codes as given */
  double i8f16, i8f8;           /* of tensors that become s8, V not and to E4M3 */
} errors = {.linear = 0.0045, .exact = 0.0024, .decode = 0.0019, .cast = 0.056, .codes = 0.029,
            .i8f16 = 0.012, .i8f8 = 0.038};

static double error_of(const call_plan *plan) {
  const attune_sdpa_form_info *form = plan->form;
  if (plan->quantiser != NULL && plan->quantiser->kernel == ATTUNE_KERNEL_QUANTIZE8) {
    return form->e4m3_v ? errors.i8f8 : errors.i8f16;
  }
  if (plan->quantiser != NULL) return errors.cast;
  if (form->kernel == ATTUNE_KERNEL_DECODE) return errors.decode;
  if (form->kernel == ATTUNE_KERNEL_NATIVE || form->kernel == ATTUNE_KERNEL_PINGPONG ||
      form->kernel == ATTUNE_KERNEL_PREFILL16 || form->kernel == ATTUNE_KERNEL_WARP) {
    return form->linear_eighths > 0 ? errors.linear : errors.exact;
  }
  /* Mixed rounds a q in 16 bits to E4M3, as a cast does. */
  return plan->x.p.q_dtype == ATTUNE_SDPA_E4M3 ? errors.codes : errors.cast;
}

/* ---- reasons -------------------------------------------------------------------------------- */

static const char *kernel_name(attune_sdpa_kernel kernel) {
  switch (kernel) {
    case ATTUNE_KERNEL_DECODE: return "decode";
    case ATTUNE_KERNEL_PREFILL: return "prefill";
    case ATTUNE_KERNEL_NATIVE: return "native";
    case ATTUNE_KERNEL_PINGPONG: return "pingpong";
    case ATTUNE_KERNEL_PREFILL16: return "prefill16";
    case ATTUNE_KERNEL_MIXED: return "mixed";
    case ATTUNE_KERNEL_WARP: return "warp";
    case ATTUNE_KERNEL_WARP8: return "warp8";
    default: return "dense";
  }
}

/* Why K and V are computed in the precision that they are. */
static void explain_precision(const call_plan *plan, char *text, size_t size) {
  const attune_sdpa_params *p = &plan->x.p;
  const char *why = "FP8 would be less than 1.1x faster";
  if (p->dtype == ATTUNE_SDPA_E4M3) {
    why = "k and v are in E4M3";
  } else if (p->precision == ATTUNE_SDPA_PRECISION_16) {
    why = "precision 16 quantises nothing";
  } else if (plan->form->kernel == ATTUNE_KERNEL_WARP) {
    snprintf(text, size, "on sm_%d precision FP8 alone quantises", plan->x.target.arch);
    return;
  } else if (plan->form->kernel == ATTUNE_KERNEL_WARP8) {
    why = p->precision == ATTUNE_SDPA_PRECISION_FP8 ? "precision FP8 quantises, with smooth-K"
                                                    : "smooth_k quantises";
  } else if (p->precision == ATTUNE_SDPA_PRECISION_FP8) {
    why = "precision FP8 quantises";
  } else if (plan->quantiser != NULL) {
    const char *lacks = attune_why_not_halves(&plan->x), *option = attune_option_of(&plan->x);
    if (lacks != NULL) {
      snprintf(text, size, "no form in 16 bits %s", lacks);
      return;
    }
    if (option != NULL) {
      snprintf(text, size, "the form in 16 bits with %s is not timed yet", option);
      return;
    }
    why = "FP8 is at least 1.1x faster";
  } else if (plan->form->kernel == ATTUNE_KERNEL_PREFILL16) {
    const char *option = attune_score_option_of(p);
    if (option != NULL && !plan->x.other_head_dim) {
      snprintf(text, size, "only a form in 16 bits has %s", option);
      return;
    }
    why = plan->x.other_head_dim ? "only forms in 16 bits have this head dim"
                                 : "no quantiser reads such k and v";
  } else if (plan->form->kernel == ATTUNE_KERNEL_DECODE) {
    why = "nothing is quantised for few query rows";
  }
  snprintf(text, size, "%s", why);
}

/* Why a form of the kernel computes it; empty where there is nothing to say. */
static void explain_kernel(const call_plan *plan, char *text, size_t size) {
  const problem *x = &plan->x;
  const attune_sdpa_params *p = &x->p;
  const char *option = attune_option_of(x), *why = "";
  switch (plan->form->kernel) {
    case ATTUNE_KERNEL_DECODE: why = "; decode reads k and v once for all query rows"; break;
    case ATTUNE_KERNEL_WARP:
      snprintf(text, size, "; %s%s%d rows a tile, %d part%s of its keys%s",
               option != NULL ? option : "", option != NULL ? ", " : "", plan->form->query_rows,
               x->splits, x->splits > 1 ? "s" : "", x->is_measured ? ", as measured" : "");
      return;
    case ATTUNE_KERNEL_WARP8:
      if (p->q_dtype == ATTUNE_SDPA_E4M3) break;
      why = plan->form->e4m3_v ? "; q k^T in s8, p v in E4M3" : "; q k^T in s8, p v in 16 bits";
      break;
    case ATTUNE_KERNEL_MIXED: why = "; mixed converts q itself"; break;
    case ATTUNE_KERNEL_DENSE: why = "; the tensors are contiguous, without options"; break;
    case ATTUNE_KERNEL_PREFILL:
    case ATTUNE_KERNEL_PREFILL16:
      if (x->other_head_dim) {
        snprintf(text, size, "; prefill16 has it in %d columns, not tuned", plan->form->head_dim);
        return;
      }
      if (option != NULL) {
        snprintf(text, size, "; %s has %s", kernel_name(plan->form->kernel), option);
        return;
      }
      why = "; prefill takes strides and all outputs";
      break;
    default: break;
  }
  snprintf(text, size, "%s", why);
}

attune_sdpa_status attune_sdpa_explain(const attune_sdpa_params *params,
                                       attune_sdpa_explanation *into) {
  const bool has_workspace = params != NULL && params->workspace != NULL;
  const size_t first = offsetof(attune_sdpa_explanation, arch); /* sizeof of 0.2.0 */
  call_plan plan;
  TRY(attune_make_plan(params, has_workspace, attune_peek_context(), &plan));
  if (into == NULL) return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT, "into is NULL");
  if (into->struct_size < first) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "struct_size is %zu; sizeof(attune_sdpa_explanation) is %zu in the header of "
                       "this library",
                       into->struct_size, sizeof *into);
  }
  const bool halves = plan.x.p.dtype != ATTUNE_SDPA_E4M3 && plan.quantiser == NULL;
  char precision[100], kernel[90];
  explain_precision(&plan, precision, sizeof precision);
  explain_kernel(&plan, kernel, sizeof kernel);
  into->form = plan.form->variant;
  into->kernel = kernel_name(plan.form->kernel);
  into->precision = halves ? ATTUNE_SDPA_PRECISION_16 : ATTUNE_SDPA_PRECISION_FP8;
  into->launches = plan.quantiser != NULL ? 2 : 1;
  into->workspace_bytes = plan.workspace_bytes;
  into->relative_error = error_of(&plan);
  snprintf(into->reason, sizeof into->reason, "%s%s", precision, kernel);
  if (into->struct_size >= sizeof *into) {
    into->arch = plan.x.target.arch, into->multiprocessors = plan.x.target.multiprocessors;
  }
  return ATTUNE_SDPA_OK;
}
