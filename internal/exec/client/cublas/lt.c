// cublasLt: products that descriptions specify.

#include "cublas.h"

#include <stdlib.h>
#include <string.h>

// The attributes of a description are words by their numbers. A caller may provide the memory, of 14,
// 32 or 12 words: what an attribute needs is kept in the fields.
struct Layout {
  int type, order;
  uint64_t rows, columns;
  int64_t ld;
  int batch, padding;
  int64_t stride;
};

struct Description {
  int compute, scale, device_pointers, op_a, op_b, epilogue, bias_type, aux_type;
  void *bias, *aux;
  int64_t aux_ld;
  const float *scales[4];
};

enum { kLayoutWords = 14, kDescriptionWords = 32, kPreferenceWords = 12 };

_Static_assert(sizeof(struct Layout) <= 8 * kLayoutWords, "a caller's memory holds a layout");
_Static_assert(sizeof(struct Description) <= 8 * kDescriptionWords, "a caller's memory holds a description");

API cublasStatus_t cublasLtCreate(void **h) {
  *h = calloc(1, 64);
  return *h == NULL ? CUBLAS_ALLOC_FAILED : CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLtDestroy(void *h) {
  free(h);
  return CUBLAS_SUCCESS;
}

API size_t cublasLtGetVersion(void) { return attune_major * 10000; }
API size_t cublasLtGetCudartVersion(void) { return attune_major * 1000; }
API cublasStatus_t cublasLtLoggerSetLevel(int level) { return (void)level, CUBLAS_SUCCESS; }
API cublasStatus_t cublasLtLoggerSetMask(int mask) { return (void)mask, CUBLAS_SUCCESS; }
API cublasStatus_t cublasLtLoggerForceDisable(void) { return CUBLAS_SUCCESS; }
API cublasStatus_t cublasLtLoggerSetCallback(void *callback) { return (void)callback, CUBLAS_SUCCESS; }

// Field is where an attribute is in its structure.
struct Field {
  int attribute;
  size_t offset, bytes;
};

static cublasStatus_t set_field(const struct Field *fields, int count, int attribute, void *to, const void *value, size_t bytes) {
  for (int i = 0; i < count; i++) {
    if (fields[i].attribute != attribute) continue;
    if (bytes < fields[i].bytes) return CUBLAS_INVALID_VALUE;
    memcpy((char *)to + fields[i].offset, value, fields[i].bytes);
    return CUBLAS_SUCCESS;
  }
  return CUBLAS_SUCCESS;  // it changes how fast the product is
}

static cublasStatus_t get_field(const struct Field *fields, int count, int attribute, const void *from, void *value, size_t bytes,
                                size_t *written) {
  for (int i = 0; i < count; i++) {
    if (fields[i].attribute != attribute) continue;
    if (written != NULL) *written = fields[i].bytes;
    if (bytes == 0) return CUBLAS_SUCCESS;
    if (bytes < fields[i].bytes) return CUBLAS_INVALID_VALUE;
    memcpy(value, (const char *)from + fields[i].offset, fields[i].bytes);
    return CUBLAS_SUCCESS;
  }
  return CUBLAS_INVALID_VALUE;
}

#define FIELD(number, structure, field) {number, offsetof(struct structure, field), sizeof((struct structure *)0)->field}
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

// ---- layouts -----------------------------------------------------------------------------------

static const struct Field layout_fields[] = {
    FIELD(0, Layout, type), FIELD(1, Layout, order), FIELD(2, Layout, rows),   FIELD(3, Layout, columns),
    FIELD(4, Layout, ld),   FIELD(5, Layout, batch), FIELD(6, Layout, stride),
};

API cublasStatus_t cublasLtMatrixLayoutInit_internal(struct Layout *l, size_t size, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  if (size < sizeof *l) return CUBLAS_INVALID_VALUE;
  *l = (struct Layout){.type = type, .rows = rows, .columns = columns, .ld = ld, .batch = 1};
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLtMatrixLayoutCreate(struct Layout **l, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  *l = malloc(sizeof **l);
  return *l == NULL ? CUBLAS_ALLOC_FAILED : cublasLtMatrixLayoutInit_internal(*l, sizeof **l, type, rows, columns, ld);
}

API cublasStatus_t cublasLtMatrixLayoutDestroy(struct Layout *l) {
  free(l);
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLtMatrixLayoutSetAttribute(struct Layout *l, int attribute, const void *value, size_t bytes) {
  return set_field(layout_fields, COUNT(layout_fields), attribute, l, value, bytes);
}

API cublasStatus_t cublasLtMatrixLayoutGetAttribute(const struct Layout *l, int attribute, void *value, size_t bytes, size_t *written) {
  return get_field(layout_fields, COUNT(layout_fields), attribute, l, value, bytes, written);
}

// ---- descriptions of products ------------------------------------------------------------------

static const struct Field description_fields[] = {
    FIELD(0, Description, compute),    FIELD(1, Description, scale),      FIELD(2, Description, device_pointers),
    FIELD(3, Description, op_a),       FIELD(4, Description, op_b),       FIELD(7, Description, epilogue),
    FIELD(8, Description, bias),       FIELD(11, Description, aux),       FIELD(12, Description, aux_ld),
    FIELD(17, Description, scales[0]), FIELD(18, Description, scales[1]), FIELD(19, Description, scales[2]),
    FIELD(20, Description, scales[3]), FIELD(22, Description, aux_type),  FIELD(26, Description, bias_type),
};

enum { kUnset = -1, kEpilogueNone = 1 };

API cublasStatus_t cublasLtMatmulDescInit_internal(struct Description *d, size_t size, int compute, int scale) {
  if (size < sizeof *d) return CUBLAS_INVALID_VALUE;
  *d = (struct Description){.compute = compute, .scale = scale, .epilogue = kEpilogueNone, .bias_type = kUnset, .aux_type = kUnset};
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulDescCreate(struct Description **d, int compute, int scale) {
  *d = malloc(sizeof **d);
  return *d == NULL ? CUBLAS_ALLOC_FAILED : cublasLtMatmulDescInit_internal(*d, sizeof **d, compute, scale);
}

API cublasStatus_t cublasLtMatmulDescDestroy(struct Description *d) {
  free(d);
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulDescSetAttribute(struct Description *d, int attribute, const void *value, size_t bytes) {
  return set_field(description_fields, COUNT(description_fields), attribute, d, value, bytes);
}

API cublasStatus_t cublasLtMatmulDescGetAttribute(const struct Description *d, int attribute, void *value, size_t bytes, size_t *written) {
  return get_field(description_fields, COUNT(description_fields), attribute, d, value, bytes, written);
}

// ---- preferences and algorithms: there is one way ----------------------------------------------

API cublasStatus_t cublasLtMatmulPreferenceInit_internal(void *p, size_t size) {
  memset(p, 0, size);
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulPreferenceCreate(void **p) {
  *p = calloc(kPreferenceWords, 8);
  return *p == NULL ? CUBLAS_ALLOC_FAILED : CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulPreferenceDestroy(void *p) {
  free(p);
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(void *p, int attribute, const void *value, size_t bytes) {
  (void)p, (void)attribute, (void)value, (void)bytes;
  return CUBLAS_SUCCESS;
}

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  cublasStatus_t state;
  float waves;
  int reserved[4];
};

API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(void *h, const struct Description *d, const struct Layout *a, const struct Layout *b,
                                                  const struct Layout *c, const struct Layout *result, void *preference, int most,
                                                  struct Heuristic *found, int *count) {
  (void)h, (void)d, (void)a, (void)b, (void)c, (void)result, (void)preference;
  if (most < 1) return CUBLAS_INVALID_VALUE;
  *found = (struct Heuristic){.algorithm = {1}, .waves = 1};
  *count = 1;
  return CUBLAS_SUCCESS;
}

// ---- the product -------------------------------------------------------------------------------

static struct Matrix matrix_of(const struct Layout *l, const void *data, int op) {
  return (struct Matrix){data, l->type, op, l->ld, l->batch > 1 ? l->stride : 0, l->order == 1};
}

API cublasStatus_t cublasLtMatmul(void *h, const struct Description *d, const void *alpha, const void *a, const struct Layout *layout_a,
                                  const void *b, const struct Layout *layout_b, const void *beta, const void *c,
                                  const struct Layout *layout_c, void *result, const struct Layout *layout_d, const void *algorithm,
                                  void *workspace, size_t workspace_bytes, CUstream stream) {
  (void)h, (void)algorithm, (void)workspace, (void)workspace_bytes;
  if (layout_a->order > 1 || layout_b->order > 1 || layout_d->order > 1 || d->device_pointers > 1) return CUBLAS_NOT_SUPPORTED;
  struct Handle handle = {.stream = stream, .device_pointers = d->device_pointers};
  struct Product p = {.function = "cublasLtMatmul", .m = (int64_t)layout_d->rows, .n = (int64_t)layout_d->columns,
                      .k = (int64_t)(d->op_a == OP_N ? layout_a->columns : layout_a->rows), .batch = layout_d->batch,
                      .a = matrix_of(layout_a, a, d->op_a), .b = matrix_of(layout_b, b, d->op_b), .c = matrix_of(layout_c, c, OP_N),
                      .d = matrix_of(layout_d, result, OP_N), .scale = d->scale, .alpha_at = alpha, .beta_at = beta,
                      .epilogue = d->epilogue == kEpilogueNone ? 0 : d->epilogue, .bias = d->bias, .aux = d->aux, .aux_ld = d->aux_ld,
                      .bias_type = d->bias_type == kUnset ? layout_d->type : d->bias_type,
                      .aux_type = d->aux_type == kUnset ? layout_d->type : d->aux_type};
  memcpy(p.scales, d->scales, sizeof p.scales);
  return product_in_stream(&handle, &p);
}
