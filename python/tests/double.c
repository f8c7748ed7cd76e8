/* A double of the library attune_sdpa for tests without a GPU. It computes nothing: it keeps the
 * parameters of the last call, and answers as a test has set. */
#include <stdio.h>
#include <string.h>

#include "attune_sdpa.h"

attune_sdpa_params double_forward;
attune_quantize_params double_quantize;
attune_append_params double_append;
void *double_stream;
int double_calls;
size_t double_workspace_bytes;
attune_sdpa_status double_status;
int double_failures = -1; /* after as many failed calls the status is OK; -1: never */
char double_error[256];

static attune_sdpa_status answer(struct CUstream_st *stream) {
  double_stream = stream;
  double_calls++;
  if (double_failures >= 0 && double_failures-- == 0) return ATTUNE_SDPA_OK;
  return double_status;
}

attune_sdpa_status attune_sdpa_forward(const attune_sdpa_params *p, struct CUstream_st *stream) {
  double_forward = *p;
  return answer(stream);
}

attune_sdpa_status attune_sdpa_quantize(const attune_quantize_params *p,
                                        struct CUstream_st *stream) {
  double_quantize = *p;
  return answer(stream);
}

attune_sdpa_status attune_sdpa_append(const attune_append_params *p, struct CUstream_st *stream) {
  double_append = *p;
  return answer(stream);
}

size_t attune_sdpa_workspace_bytes(const attune_sdpa_params *p) {
  return p->struct_size == sizeof *p ? double_workspace_bytes : 0;
}

size_t attune_sdpa_quantize_workspace_bytes(const attune_quantize_params *p) {
  return p->struct_size == sizeof *p ? double_workspace_bytes : 0;
}

const char *attune_sdpa_form(const attune_sdpa_params *p) { return p->causal ? "causal" : "plain"; }

attune_sdpa_status attune_sdpa_explain(const attune_sdpa_params *p,
                                       attune_sdpa_explanation *into) {
  double_forward = *p;
  into->form = "form", into->kernel = "kernel", into->precision = ATTUNE_SDPA_PRECISION_16;
  into->launches = 2, into->workspace_bytes = double_workspace_bytes, into->relative_error = 0.5;
  into->arch = p->arch != 0 ? p->arch : 90;
  into->multiprocessors = p->multiprocessors != 0 ? p->multiprocessors : 132;
  snprintf(into->reason, sizeof into->reason, "the double says so");
  return double_failures >= 0 && double_failures-- == 0 ? ATTUNE_SDPA_OK : double_status;
}

const char *attune_sdpa_last_error(void) { return double_error; }

const char *attune_sdpa_version(void) { return "double"; }
