// LU factors of batches of small matrices.

#include "cublas.h"

#include <math.h>
#include <stdlib.h>

// Factors is a call: each matrix becomes its factors L and U.
struct Factors {
  CUresult status;
  const char *function;
  int type;
  int64_t n, ld, batch;
  void *const *matrices;
  int *pivots;  // the rows that were swapped, from 1; NULL for a factorisation without pivots
  int *info;    // of each matrix: 0, or the first pivot that is 0, from 1
};

static struct Number minus_product(struct Number c, struct Number a, struct Number b) {
  const struct Number p = number_product(a, b);
  return (struct Number){c.re - p.re, c.im - p.im};
}

static struct Number get(const struct Factors *f, const char *m, int64_t row, int64_t column) {
  return load_element(f->type, m, row + column * f->ld);
}

// swap_rows brings the row with the largest element of a column to the diagonal, and returns its number.
static int64_t swap_rows(const struct Factors *f, char *m, int64_t column) {
  int64_t best = column;
  double largest = -1;
  for (int64_t row = column; row < f->n; row++) {
    const struct Number v = get(f, m, row, column);
    const double size = fabs(v.re) + fabs(v.im);
    if (size > largest) best = row, largest = size;
  }
  for (int64_t j = 0; j < f->n && best != column; j++) {
    const struct Number v = get(f, m, column, j);
    store_element(f->type, m, column + j * f->ld, get(f, m, best, j));
    store_element(f->type, m, best + j * f->ld, v);
  }
  return best;
}

// eliminate divides a column by its pivot and subtracts its products from the rest of the matrix.
static void eliminate(const struct Factors *f, char *m, int64_t column) {
  const struct Number pivot = get(f, m, column, column);
  for (int64_t row = column + 1; row < f->n; row++) {
    store_element(f->type, m, row + column * f->ld, number_quotient(get(f, m, row, column), pivot));
    const struct Number factor = get(f, m, row, column);
    for (int64_t j = column + 1; j < f->n; j++) {
      store_element(f->type, m, row + j * f->ld, minus_product(get(f, m, row, j), factor, get(f, m, column, j)));
    }
  }
}

static void factorise(const struct Factors *f, int64_t number) {
  char *m = ((char *const *)host_view(f->matrices))[number];
  int info = 0;
  for (int64_t column = 0; column < f->n; column++) {
    if (f->pivots != NULL) ((int *)host_view(f->pivots))[number * f->n + column] = (int)swap_rows(f, m, column) + 1;
    const struct Number pivot = get(f, m, column, column);
    if (pivot.re != 0 || pivot.im != 0) eliminate(f, m, column);
    else if (info == 0) info = (int)column + 1;
  }
  ((int *)host_view(f->info))[number] = info;
}

static void run_factors(void *argument) {
  struct Factors *f = argument;
  const uint64_t each = bytes_of(f->type), batch = (uint64_t)f->batch;
  const struct Region matrices = {(uintptr_t)f->matrices, 0, batch * sizeof(void *), 1, 0, 0};
  struct Region *regions = calloc(2 * (size_t)batch + 2, sizeof *regions);
  uint32_t count = 0;
  f->status = regions == NULL ? CUDA_ERROR_OUT_OF_MEMORY : attuneCheck(f->function, &matrices, 1);
  if (f->status == CUDA_SUCCESS) {
    char *const *data = host_view(f->matrices);
    for (uint32_t writes = 0; writes < 2; writes++) {
      for (uint64_t i = 0; i < batch; i++) {
        regions[count++] = (struct Region){(uintptr_t)data[i], each * (uint64_t)f->ld, each * (uint64_t)f->n, (uint64_t)f->n, writes, 0};
      }
    }
    if (f->pivots != NULL) regions[count++] = (struct Region){(uintptr_t)f->pivots, 0, batch * (uint64_t)f->n * sizeof(int), 1, 1, 0};
    regions[count++] = (struct Region){(uintptr_t)f->info, 0, batch * sizeof(int), 1, 1, 0};
    f->status = attuneLibrary(f->function, regions, count);
  }
  free(regions);
  for (int64_t i = 0; i < f->batch && f->status == CUDA_SUCCESS; i++) factorise(f, i);
}

#define GETRF(letter, element)                                                                                              \
  API cublasStatus_t cublas##letter##getrfBatched(struct Handle *h, int n, void *const *a, int lda, int *pivots, int *info, \
                                                  int batch) {                                                              \
    if (n < 0 || batch < 0 || lda < (n > 1 ? n : 1)) return CUBLAS_INVALID_VALUE;                                           \
    if (n == 0 || batch == 0) return CUBLAS_SUCCESS;                                                                        \
    const struct Factors f = {.function = "cublas" #letter "getrfBatched", .type = element, .n = n, .ld = lda,              \
                              .batch = batch, .matrices = a, .pivots = pivots, .info = info};                               \
    return enqueue(h, run_factors, &f, sizeof f);                                                                           \
  }

GETRF(S, F32)
GETRF(D, F64)
GETRF(C, C32)
GETRF(Z, C64)
