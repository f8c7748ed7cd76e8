// Triangular systems: B becomes the solution X of op(A) X = alpha B, or of X op(A) = alpha B.

#include "cublas.h"

#include <stdlib.h>

enum { SIDE_LEFT = 0, FILL_UPPER = 1, DIAGONAL_UNIT = 1 };

// Triangular is a call, for one pair of matrices or for a batch.
struct Triangular {
  CUresult status;
  const char *function;
  int type, op;
  bool right, upper, unit, arrays, device_scalars;
  int64_t m, n, lda, ldb, batch;
  const void *alpha;
  const void *a;  // a matrix; a batch has an array of pointers to matrices, in device memory
  void *b;
};

static int64_t order_of(const struct Triangular *t) { return t->right ? t->n : t->m; }

static const char *a_of(const struct Triangular *t, int64_t i) { return t->arrays ? ((char *const *)host_view(t->a))[i] : t->a; }
static char *b_of(const struct Triangular *t, int64_t i) { return t->arrays ? ((char *const *)host_view(t->b))[i] : t->b; }

// coefficient is the factor of unknown k in equation i. From the right the equations are those of the
// transposed system.
static struct Number coefficient(const struct Triangular *t, const char *a, int64_t i, int64_t k) {
  const bool by_columns = (t->op == OP_N) != t->right;
  struct Number v = load_element(t->type, a, by_columns ? i + k * t->lda : k + i * t->lda);
  if (t->op == OP_C) v.im = -v.im;
  return v;
}

// solve computes a row of unknowns for each column of the right side, forwards or backwards.
static void solve(const struct Triangular *t, const char *a, char *b) {
  const int64_t order = order_of(t), columns = t->right ? t->m : t->n;
  const int64_t down = t->right ? t->ldb : 1, across = t->right ? 1 : t->ldb;
  const bool lower = !t->upper ^ (t->op != OP_N) ^ t->right;
  const struct Number alpha = load_element(t->type, t->alpha, 0);
  for (int64_t step = 0; step < order; step++) {
    const int64_t i = lower ? step : order - 1 - step, first = lower ? 0 : i + 1, end = lower ? i : order;
    for (int64_t column = 0; column < columns; column++) {
      struct Number sum = number_product(alpha, load_element(t->type, b, i * down + column * across));
      for (int64_t k = first; k < end; k++) {
        const struct Number x = number_product(coefficient(t, a, i, k), load_element(t->type, b, k * down + column * across));
        sum.re -= x.re, sum.im -= x.im;
      }
      if (!t->unit) sum = number_quotient(sum, coefficient(t, a, i, i));
      store_element(t->type, b, i * down + column * across, sum);
    }
  }
}

// matrix_regions are what a solution reads and writes. Of A only the triangle is read.
static uint32_t matrix_regions(const struct Triangular *t, int64_t number, struct Region *r) {
  const uint64_t each = bytes_of(t->type), order = (uint64_t)order_of(t), lda = (uint64_t)t->lda;
  const uint64_t a = (uintptr_t)a_of(t, number), b = (uintptr_t)b_of(t, number);
  uint32_t count = 0;
  for (uint64_t j = 0; j < order; j++) {
    const uint64_t first = t->upper ? 0 : j + t->unit, end = t->upper ? j + !t->unit : order;
    if (first < end) r[count++] = (struct Region){a + each * (j * lda + first), 0, each * (end - first), 1, 0, 0};
  }
  for (uint32_t writes = 0; writes < 2; writes++) {
    r[count++] = (struct Region){b, each * (uint64_t)t->ldb, each * (uint64_t)t->m, (uint64_t)t->n, writes, 0};
  }
  return count;
}

static void run_triangular(void *argument) {
  struct Triangular *t = argument;
  const uint64_t batch = (uint64_t)t->batch;
  const struct Region pointers[2] = {{(uintptr_t)t->a, 0, batch * sizeof(void *), 1, 0, 0}, {(uintptr_t)t->b, 0, batch * sizeof(void *), 1, 0, 0}};
  struct Region *regions = calloc(batch * ((size_t)order_of(t) + 2) + 1, sizeof *regions);
  uint32_t count = 0;
  t->status = regions == NULL ? CUDA_ERROR_OUT_OF_MEMORY : t->arrays ? attuneCheck(t->function, pointers, 2) : CUDA_SUCCESS;
  if (t->status == CUDA_SUCCESS) {
    if (t->device_scalars) regions[count++] = (struct Region){(uintptr_t)t->alpha, 0, bytes_of(t->type), 1, 0, 1};
    for (int64_t i = 0; i < t->batch; i++) count += matrix_regions(t, i, regions + count);
    t->status = attuneLibrary(t->function, regions, count);
  }
  free(regions);
  for (int64_t i = 0; i < t->batch && t->status == CUDA_SUCCESS; i++) solve(t, a_of(t, i), b_of(t, i));
}

static cublasStatus_t start(struct Handle *h, struct Triangular t, int side, int fill, int diagonal) {
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  t.right = side != SIDE_LEFT, t.upper = fill == FILL_UPPER, t.unit = diagonal == DIAGONAL_UNIT, t.device_scalars = h->device_pointers;
  const int64_t order = order_of(&t);
  if (t.m < 0 || t.n < 0 || t.batch < 0 || t.lda < (order > 1 ? order : 1) || t.ldb < (t.m > 1 ? t.m : 1)) return CUBLAS_INVALID_VALUE;
  if (t.m == 0 || t.n == 0 || t.batch == 0) return CUBLAS_SUCCESS;
  return enqueue(h, run_triangular, &t, sizeof t);
}

#define TRSM(letter, element)                                                                                                    \
  API cublasStatus_t cublas##letter##trsm_v2(struct Handle *h, int side, int fill, int op, int diagonal, int m, int n,           \
                                             const void *alpha, const void *a, int lda, void *b, int ldb) {                      \
    return start(h, (struct Triangular){.function = "cublas" #letter "trsm", .type = element, .op = op, .m = m, .n = n,          \
                                        .lda = lda, .ldb = ldb, .batch = 1, .alpha = alpha, .a = a, .b = b},                     \
                 side, fill, diagonal);                                                                                          \
  }                                                                                                                              \
  API cublasStatus_t cublas##letter##trsmBatched(struct Handle *h, int side, int fill, int op, int diagonal, int m, int n,       \
                                                 const void *alpha, const void *const *a, int lda, void *const *b, int ldb,      \
                                                 int batch) {                                                                    \
    return start(h, (struct Triangular){.function = "cublas" #letter "trsmBatched", .type = element, .op = op, .m = m, .n = n,   \
                                        .lda = lda, .ldb = ldb, .batch = batch, .alpha = alpha, .a = a, .b = (void *)b,          \
                                        .arrays = true},                                                                         \
                 side, fill, diagonal);                                                                                          \
  }

TRSM(S, F32)
TRSM(D, F64)
TRSM(C, C32)
TRSM(Z, C64)
