/* Checks of sizes, strides and formats that all functions of the interface share, and the options of a
 * problem. */
#include <string.h>

#include "attune_internal.h"

attune_sdpa_status attune_check_extents(const extent *all, int count) {
  for (int i = 0; i < count; ++i) {
    if (all[i].value < 1 || all[i].value > MAX_EXTENT) {
      return attune_fail(all[i].value < 1 ? ATTUNE_SDPA_INVALID_ARGUMENT : ATTUNE_SDPA_UNSUPPORTED,
                         "%s is %d; it must be from 1 to %d", all[i].name, all[i].value,
                         (int)MAX_EXTENT);
    }
  }
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_check_page_table(int32_t batch, int32_t max_pages) {
  if ((int64_t)batch * max_pages <= INT32_MAX) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                     "batch is %d and max_pages %d: the page table would have more than 2^31 "
                     "elements",
                     batch, max_pages);
}

attune_sdpa_status attune_set_strides(tensor *t, int32_t head_dim, int element_bytes,
                                      bool rows_first) {
  /* Of one or two bytes: without divisions, which took most of the time of a plan. */
  const int shift = element_bytes - 1;
  const int64_t *s = t->given, *e = t->extents, unit = 16 >> shift;
  const int64_t rows_inside[3] = {e[1] * e[2] * head_dim, e[2] * head_dim, head_dim},
                heads_inside[3] = {rows_inside[0], head_dim, e[1] * head_dim};
  const int64_t *packed = rows_first ? heads_inside : rows_inside;
  const int64_t limit = (int64_t)1 << (40 - shift); /* of a tensor map */
  const bool all_zero = s[0] == 0 && s[1] == 0 && s[2] == 0;
  t->contiguous = true;
  t->columns = head_dim;
  for (int d = 0; d < 3; ++d) {
    const bool usable = s[d] >= head_dim && (s[d] & (unit - 1)) == 0 && s[d] < limit;
    t->strides[d] = all_zero || (e[d] == 1 && !usable) ? packed[d] : s[d];
    if (e[d] > 1 && t->strides[d] != rows_inside[d]) t->contiguous = false;
    if (t->strides[d] < head_dim) {
      return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                         "%s[%d] is %lld; rows may not overlap, so it must be at least head_dim, "
                         "%d",
                         t->stride_name, d, (long long)s[d], head_dim);
    }
    if (all_zero && (head_dim & (unit - 1)) != 0) {
      return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "the head dim of %s is %d; it must be a multiple of %d",
                         t->name, head_dim, (int)unit);
    }
    if ((t->strides[d] & (unit - 1)) != 0) {
      return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "%s[%d] is %lld; it must be a multiple of %d",
                         t->stride_name, d, (long long)t->strides[d], (int)unit);
    }
    if (t->strides[d] >= limit) {
      return attune_fail(ATTUNE_SDPA_UNSUPPORTED, "%s[%d] is %lld; it must be less than 2^40 bytes",
                         t->stride_name, d, (long long)t->strides[d]);
    }
  }
  return ATTUNE_SDPA_OK;
}

void attune_make_contiguous(tensor *t) {
  t->strides[2] = t->columns;
  t->strides[1] = t->extents[2] * t->columns;
  t->strides[0] = t->extents[1] * t->strides[1];
  t->contiguous = true;
}

attune_sdpa_status attune_check_dtype(const char *name, attune_sdpa_dtype dtype, int supported) {
  static const char *const names[] = {"", "E4M3", "FP16", "BF16"};
  if ((int)dtype < ATTUNE_SDPA_E4M3 || (int)dtype > ATTUNE_SDPA_BF16) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "%s is %d; it must be a value of attune_sdpa_dtype", name, (int)dtype);
  }
  if ((supported >> dtype & 1) == 0) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "%s is ATTUNE_SDPA_%s, which no form of this library has", name,
                       names[dtype]);
  }
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_copy_params(const char *type, const void *given, void *into, size_t size,
                                      size_t first) {
  enum { MAX_BYTES = 4096 }; /* of a later version; more is memory that was not set */
  attune_clear_error();
  if (given == NULL) return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT, "params is NULL");
  const size_t have = *(const size_t *)given; /* struct_size is the first field */
  if (have < first || have > MAX_BYTES || have % sizeof(size_t) != 0) { /* cuts a field in two */
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "struct_size is %zu; sizeof(%s) is %zu in the header of this library", have,
                       type, size);
  }
  for (size_t i = size; i < have; ++i) {
    if (((const char *)given)[i] == 0) continue;
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "byte %zu of %s is not 0; this library knows %zu bytes of a later header", i,
                       type, size);
  }
  memset(into, 0, size);
  memcpy(into, given, have < size ? have : size);
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_check_flags(uint64_t flags) {
  if ((flags & ~ATTUNE_SDPA_TRUST_POINTERS) == 0) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                     "flags is %llu; it must be 0 or ATTUNE_SDPA_TRUST_POINTERS",
                     (unsigned long long)flags);
}

attune_sdpa_status attune_check_workspace(size_t have, size_t need) {
  if (have >= need) return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_WORKSPACE_TOO_SMALL,
                     "workspace_bytes is %zu; this problem needs %zu", have, need);
}

const attune_sdpa_form_info *attune_find_form(attune_sdpa_kernel kernel, int32_t head_dim,
                                              int32_t arch) {
  for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count; ++i) {
    const attune_sdpa_form_info *f = &attune_sdpa_forms[i];
    if (f->kernel != kernel || !attune_runs_on(f, arch)) continue;
    if (f->head_dim == 0 || f->head_dim == head_dim) return f;
  }
  return NULL;
}

/* ---- problems -------------------------------------------------------------------------------- */

attune_sdpa_status attune_too_many_elements(const attune_sdpa_params *p, extent heads,
                                            extent rows) {
  return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                     "batch is %d, %s %d, %s %d and head_dim %d: a tensor would have more than "
                     "2^31 elements",
                     p->batch, heads.name, heads.value, rows.name, rows.value, p->head_dim);
}

/* Whether a tensor would have more elements than kernels index by 32 bits. */
bool attune_has_many(const attune_sdpa_params *p, int32_t batch, int32_t heads, int32_t rows) {
  const int32_t columns = p->head_dim > p->v_head_dim ? p->head_dim : p->v_head_dim;
  return (double)batch * heads * rows * columns > MAX_ELEMENTS;
}

attune_sdpa_status attune_too_many_keys(const attune_sdpa_params *p) {
  return attune_too_many_elements(p, (extent){"kv_heads", p->kv_heads}, (extent){"keys", p->keys});
}

/* The decode kernel reads k and v by tensor maps alone, and has no limit on their elements. */
bool attune_keys_are_many(const attune_sdpa_params *p) {
  return p->page_table == NULL && p->cu_keys == NULL &&
         attune_has_many(p, p->batch, p->kv_heads, p->keys);
}

const char *attune_score_option_of(const attune_sdpa_params *p) {
  if (p->softcap != 0) return "a softcap";
  if (p->alibi_slopes != NULL) return "ALiBi slopes";
  return p->tree_mask != NULL ? "a tree mask" : NULL;
}

const char *attune_option_of(const problem *x) {
  const attune_sdpa_params *p = &x->p;
  const char *of_scores = attune_score_option_of(p);
  if (of_scores != NULL) return of_scores;
  if (p->cu_queries != NULL) return "packed sequences";
  if (p->page_table != NULL) return "pages";
  if (p->key_lengths != NULL) return "lengths";
  if (p->sinks != NULL) return "sinks";
  return x->window_left >= 0 || x->window_right >= 0 ? "a window" : NULL;
}
