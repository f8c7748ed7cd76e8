// Vectors: the functions of level 1, in double precision.

#include "cublas.h"

#include <math.h>

// Vectors is the work of a function of level 1.
struct Vectors {
  CUresult status;
  const char *function;
  void (*compute)(struct Vectors *);
  int64_t n;
  char *x, *y;
  int type_x, type_y;
  int64_t incx, incy;
  bool reads_y, writes_x, writes_y, device_scalars, minimum;
  const void *alpha, *second;  // scalars that it reads
  int alpha_type;
  void *result;
  int result_type;
};

// at is the place of an element: with a negative increment a vector begins at its other end.
static int64_t at(int64_t i, int64_t n, int64_t increment) { return increment >= 0 ? i * increment : (i - n + 1) * increment; }

static struct Number x_of(const struct Vectors *v, int64_t i) { return load_element(v->type_x, v->x, at(i, v->n, v->incx)); }
static struct Number y_of(const struct Vectors *v, int64_t i) { return load_element(v->type_y, v->y, at(i, v->n, v->incy)); }
static void set_x(struct Vectors *v, int64_t i, struct Number value) { store_element(v->type_x, v->x, at(i, v->n, v->incx), value); }
static void set_y(struct Vectors *v, int64_t i, struct Number value) { store_element(v->type_y, v->y, at(i, v->n, v->incy), value); }

static struct Region vector_region(const char *data, int type, int64_t n, int64_t increment, bool writes) {
  const size_t each = bytes_of(type);
  const uint64_t step = (uint64_t)(increment < 0 ? -increment : increment);
  if (step == 1) return (struct Region){(uintptr_t)data, 0, each * (size_t)n, 1, writes, 0};
  return (struct Region){(uintptr_t)data, each * step, each, (uint64_t)n, writes, 0};
}

static void run_vectors(void *argument) {
  struct Vectors *v = argument;
  struct Region r[7];
  uint32_t count = 0;
  if (v->x != NULL) r[count++] = vector_region(v->x, v->type_x, v->n, v->incx, false);
  if (v->y != NULL && v->reads_y) r[count++] = vector_region(v->y, v->type_y, v->n, v->incy, false);
  if (v->alpha != NULL && v->device_scalars) r[count++] = (struct Region){(uintptr_t)v->alpha, 0, bytes_of(v->alpha_type), 1, 0, 1};
  if (v->writes_x) r[count++] = vector_region(v->x, v->type_x, v->n, v->incx, true);
  if (v->writes_y) r[count++] = vector_region(v->y, v->type_y, v->n, v->incy, true);
  if (v->result != NULL) r[count++] = (struct Region){(uintptr_t)v->result, 0, bytes_of(v->result_type), 1, 1, 1};
  v->status = attuneLibrary(v->function, r, count);
  if (v->status == CUDA_SUCCESS) v->compute(v);
}

static cublasStatus_t start(struct Handle *h, struct Vectors v) {
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  v.device_scalars = h->device_pointers;
  if (v.n <= 0 && v.result == NULL) return CUBLAS_SUCCESS;
  if (v.n <= 0) v.n = 0, v.x = v.y = NULL;
  return enqueue(h, run_vectors, &v, sizeof v);
}

static void axpy(struct Vectors *v) {
  const struct Number alpha = load_element(v->alpha_type, v->alpha, 0);
  for (int64_t i = 0; i < v->n; i++) {
    const struct Number p = number_product(alpha, x_of(v, i)), y = y_of(v, i);
    set_y(v, i, (struct Number){p.re + y.re, p.im + y.im});
  }
}

static void scal(struct Vectors *v) {
  const struct Number alpha = load_element(v->alpha_type, v->alpha, 0);
  for (int64_t i = 0; i < v->n; i++) set_x(v, i, number_product(alpha, x_of(v, i)));
}

static void copy(struct Vectors *v) {
  for (int64_t i = 0; i < v->n; i++) set_y(v, i, x_of(v, i));
}

static void swap(struct Vectors *v) {
  for (int64_t i = 0; i < v->n; i++) {
    const struct Number x = x_of(v, i);
    set_x(v, i, y_of(v, i));
    set_y(v, i, x);
  }
}

static void rot(struct Vectors *v) {
  const double c = load_element(v->alpha_type, v->alpha, 0).re, s = load_element(v->alpha_type, v->second, 0).re;
  for (int64_t i = 0; i < v->n; i++) {
    const double x = x_of(v, i).re, y = y_of(v, i).re;
    set_x(v, i, (struct Number){c * x + s * y, 0});
    set_y(v, i, (struct Number){c * y - s * x, 0});
  }
}

static void dot_with(struct Vectors *v, double sign) {
  struct Number sum = {0, 0};
  for (int64_t i = 0; i < v->n; i++) {
    struct Number x = x_of(v, i);
    x.im *= sign;
    const struct Number p = number_product(x, y_of(v, i));
    sum.re += p.re, sum.im += p.im;
  }
  store_element(v->result_type, v->result, 0, sum);
}

static void dot(struct Vectors *v) { dot_with(v, 1); }
static void dot_conjugate(struct Vectors *v) { dot_with(v, -1); }

static void nrm2(struct Vectors *v) {
  double sum = 0;
  for (int64_t i = 0; i < v->n; i++) sum += x_of(v, i).re * x_of(v, i).re + x_of(v, i).im * x_of(v, i).im;
  store_element(v->result_type, v->result, 0, (struct Number){sqrt(sum), 0});
}

static double size_of(struct Number x) { return fabs(x.re) + fabs(x.im); }

static void asum(struct Vectors *v) {
  double sum = 0;
  for (int64_t i = 0; i < v->n; i++) sum += size_of(x_of(v, i));
  store_element(v->result_type, v->result, 0, (struct Number){sum, 0});
}

// extreme finds the first element of the greatest or the smallest size, from 1.
static void extreme(struct Vectors *v) {
  int64_t best = 0;
  for (int64_t i = 1; i < v->n; i++) {
    const double a = size_of(x_of(v, i)), b = size_of(x_of(v, best));
    if (v->minimum ? a < b : a > b) best = i;
  }
  store_element(I32, v->result, 0, (struct Number){(double)(v->n > 0 ? best + 1 : 0), 0});
}

#define LEVEL_1(letter, small, type) \
  API cublasStatus_t cublas##letter##axpy_v2(struct Handle *h, int n, const void *alpha, const void *x, int incx, void *y, int incy) { \
    return start(h, (struct Vectors){.function = "cublas" #letter "axpy", .compute = axpy, .n = n, .x = (char *)x, .y = y,           \
                                     .type_x = type, .type_y = type, .incx = incx, .incy = incy, .reads_y = true, .writes_y = true,  \
                                     .alpha = alpha, .alpha_type = type});                                                           \
  }                                                                                                                                  \
  API cublasStatus_t cublas##letter##scal_v2(struct Handle *h, int n, const void *alpha, void *x, int incx) {                        \
    return start(h, (struct Vectors){.function = "cublas" #letter "scal", .compute = scal, .n = n, .x = x, .type_x = type,           \
                                     .incx = incx, .writes_x = true, .alpha = alpha, .alpha_type = type});                           \
  }                                                                                                                                  \
  API cublasStatus_t cublas##letter##copy_v2(struct Handle *h, int n, const void *x, int incx, void *y, int incy) {                  \
    return start(h, (struct Vectors){.function = "cublas" #letter "copy", .compute = copy, .n = n, .x = (char *)x, .y = y,           \
                                     .type_x = type, .type_y = type, .incx = incx, .incy = incy, .writes_y = true});                 \
  }                                                                                                                                  \
  API cublasStatus_t cublas##letter##swap_v2(struct Handle *h, int n, void *x, int incx, void *y, int incy) {                        \
    return start(h, (struct Vectors){.function = "cublas" #letter "swap", .compute = swap, .n = n, .x = x, .y = y, .type_x = type,   \
                                     .type_y = type, .incx = incx, .incy = incy, .reads_y = true, .writes_x = true,                  \
                                     .writes_y = true});                                                                             \
  }                                                                                                                                  \
  API cublasStatus_t cublasI##small##amax_v2(struct Handle *h, int n, const void *x, int incx, int *result) {                       \
    return start(h, (struct Vectors){.function = "cublasI" #small "amax", .compute = extreme, .n = n, .x = (char *)x,               \
                                     .type_x = type, .incx = incx, .result = result, .result_type = I32});                           \
  }                                                                                                                                  \
  API cublasStatus_t cublasI##small##amin_v2(struct Handle *h, int n, const void *x, int incx, int *result) {                       \
    return start(h, (struct Vectors){.function = "cublasI" #small "amin", .compute = extreme, .n = n, .x = (char *)x,               \
                                     .type_x = type, .incx = incx, .result = result, .result_type = I32, .minimum = true});          \
  }

LEVEL_1(S, s, F32)
LEVEL_1(D, d, F64)
LEVEL_1(C, c, C32)
LEVEL_1(Z, z, C64)

#define DOT(name, type, with)                                                                                                      \
  API cublasStatus_t cublas##name##_v2(struct Handle *h, int n, const void *x, int incx, const void *y, int incy, void *result) {  \
    return start(h, (struct Vectors){.function = "cublas" #name, .compute = with, .n = n, .x = (char *)x, .y = (char *)y,          \
                                     .type_x = type, .type_y = type, .incx = incx, .incy = incy, .reads_y = true, .result = result, \
                                     .result_type = type});                                                                        \
  }

DOT(Sdot, F32, dot)
DOT(Ddot, F64, dot)
DOT(Cdotu, C32, dot)
DOT(Zdotu, C64, dot)
DOT(Cdotc, C32, dot_conjugate)
DOT(Zdotc, C64, dot_conjugate)

#define SUM(name, with, type, of)                                                                                               \
  API cublasStatus_t cublas##name##_v2(struct Handle *h, int n, const void *x, int incx, void *result) {                        \
    return start(h, (struct Vectors){.function = "cublas" #name, .compute = with, .n = n, .x = (char *)x, .type_x = type,       \
                                     .incx = incx, .result = result, .result_type = of});                                       \
  }

SUM(Snrm2, nrm2, F32, F32)
SUM(Dnrm2, nrm2, F64, F64)
SUM(Scnrm2, nrm2, C32, F32)
SUM(Dznrm2, nrm2, C64, F64)
SUM(Sasum, asum, F32, F32)
SUM(Dasum, asum, F64, F64)
SUM(Scasum, asum, C32, F32)
SUM(Dzasum, asum, C64, F64)

#define ROT(name, type)                                                                                                          \
  API cublasStatus_t cublas##name##_v2(struct Handle *h, int n, void *x, int incx, void *y, int incy, const void *c, const void *s) { \
    return start(h, (struct Vectors){.function = "cublas" #name, .compute = rot, .n = n, .x = x, .y = y, .type_x = type,         \
                                     .type_y = type, .incx = incx, .incy = incy, .reads_y = true, .writes_x = true,              \
                                     .writes_y = true, .alpha = c, .second = s, .alpha_type = type});                            \
  }

ROT(Srot, F32)
ROT(Drot, F64)

API cublasStatus_t cublasAxpyEx(struct Handle *h, int n, const void *alpha, int alpha_type, const void *x, int type_x, int incx, void *y,
                                int type_y, int incy, int execution) {
  (void)execution;
  return start(h, (struct Vectors){.function = "cublasAxpyEx", .compute = axpy, .n = n, .x = (char *)x, .y = y, .type_x = type_x,
                                   .type_y = type_y, .incx = incx, .incy = incy, .reads_y = true, .writes_y = true, .alpha = alpha,
                                   .alpha_type = alpha_type});
}

API cublasStatus_t cublasScalEx(struct Handle *h, int n, const void *alpha, int alpha_type, void *x, int type_x, int incx, int execution) {
  (void)execution;
  return start(h, (struct Vectors){.function = "cublasScalEx", .compute = scal, .n = n, .x = x, .type_x = type_x, .incx = incx,
                                   .writes_x = true, .alpha = alpha, .alpha_type = alpha_type});
}

API cublasStatus_t cublasDotEx(struct Handle *h, int n, const void *x, int type_x, int incx, const void *y, int type_y, int incy,
                               void *result, int result_type, int execution) {
  (void)execution;
  return start(h, (struct Vectors){.function = "cublasDotEx", .compute = dot, .n = n, .x = (char *)x, .y = (char *)y, .type_x = type_x,
                                   .type_y = type_y, .incx = incx, .incy = incy, .reads_y = true, .result = result,
                                   .result_type = result_type});
}

API cublasStatus_t cublasNrm2Ex(struct Handle *h, int n, const void *x, int type_x, int incx, void *result, int result_type, int execution) {
  (void)execution;
  return start(h, (struct Vectors){.function = "cublasNrm2Ex", .compute = nrm2, .n = n, .x = (char *)x, .type_x = type_x, .incx = incx,
                                   .result = result, .result_type = result_type});
}
