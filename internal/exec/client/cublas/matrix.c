// Products of matrices: the functions of level 3.

#include "cublas.h"

struct Product gemm(const char *function, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int type_a,
                    int64_t lda, const void *b, int type_b, int64_t ldb, const void *beta, void *c, int type_c, int64_t ldc, int scale) {
  struct Product p = {.function = function, .m = m, .n = n, .k = k, .batch = 1, .scale = scale, .alpha_at = alpha, .beta_at = beta,
                      .a = {a, type_a, op_a, lda, 0, false}, .b = {b, type_b, op_b, ldb, 0, false}, .c = {c, type_c, OP_N, ldc, 0, false}};
  p.d = p.c;
  return p;
}

static struct Product strided(struct Product p, int64_t a, int64_t b, int64_t c, int64_t batch) {
  p.a.stride = a, p.b.stride = b, p.c.stride = p.d.stride = c;
  p.batch = batch;
  return p;
}

static struct Product of_arrays(struct Product p, int64_t batch) {
  p.arrays = true;
  p.batch = batch;
  return p;
}

#define GEMM(name, plain, type, scalar)                                                                                                      \
  API cublasStatus_t plain(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int lda,    \
                           const void *b, int ldb, const void *beta, void *c, int ldc) {                         \
    const struct Product p = gemm("cublas" #name, op_a, op_b, m, n, k, alpha, a, type, lda, b, type, ldb, beta, c, type, ldc, scalar);  \
    return product_in_stream(h, &p);                                                                                                  \
  }                                                                                                                                   \
  API cublasStatus_t cublas##name##StridedBatched(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha,       \
                                                  const void *a, int lda, long long stride_a, const void *b, int ldb,                 \
                                                  long long stride_b, const void *beta, void *c, int ldc, long long stride_c,         \
                                                  int batch) {                                                                        \
    const struct Product p = gemm("cublas" #name "StridedBatched", op_a, op_b, m, n, k, alpha, a, type, lda, b, type, ldb, beta, c,   \
                                  type, ldc, scalar);                                                                                 \
    const struct Product all = strided(p, stride_a, stride_b, stride_c, batch);                                                       \
    return product_in_stream(h, &all);                                                                                                \
  }                                                                                                                                   \
  API cublasStatus_t cublas##name##Batched(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha,              \
                                           const void *const *a, int lda, const void *const *b, int ldb, const void *beta,            \
                                           void *const *c, int ldc, int batch) {                                                      \
    const struct Product p = gemm("cublas" #name "Batched", op_a, op_b, m, n, k, alpha, a, type, lda, b, type, ldb, beta, (void *)c,  \
                                  type, ldc, scalar);                                                                                 \
    const struct Product all = of_arrays(p, batch);                                                                                   \
    return product_in_stream(h, &all);                                                                                                \
  }

GEMM(Sgemm, cublasSgemm_v2, F32, F32)
GEMM(Dgemm, cublasDgemm_v2, F64, F64)
GEMM(Cgemm, cublasCgemm_v2, C32, C32)
GEMM(Zgemm, cublasZgemm_v2, C64, C64)
GEMM(Hgemm, cublasHgemm, F16, F16)

API cublasStatus_t cublasCgemm3m(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int lda,
                                 const void *b, int ldb, const void *beta, void *c, int ldc) {
  return cublasCgemm_v2(h, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

API cublasStatus_t cublasZgemm3m(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int lda,
                                 const void *b, int ldb, const void *beta, void *c, int ldc) {
  return cublasZgemm_v2(h, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// Compute types, and those of older versions, which are types of elements.
enum { COMPUTE_16F = 64, COMPUTE_16F_PEDANTIC = 65, COMPUTE_64F = 70, COMPUTE_64F_PEDANTIC = 71, COMPUTE_32I = 72, COMPUTE_32I_PEDANTIC = 73 };

// scalar_of is the type of alpha and beta.
int scalar_of(int compute, int type_c) {
  switch (compute) {
    case COMPUTE_16F: case COMPUTE_16F_PEDANTIC: case F16: return F16;
    case COMPUTE_64F: case COMPUTE_64F_PEDANTIC: case F64: return type_c == C64 ? C64 : F64;
    case COMPUTE_32I: case COMPUTE_32I_PEDANTIC: case I32: return I32;
    default: return is_complex(type_c) ? C32 : F32;
  }
}

API cublasStatus_t cublasGemmEx(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
                                int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,
                                int algorithm) {
  (void)algorithm;
  const struct Product p =
      gemm("cublasGemmEx", op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, scalar_of(compute, type_c));
  return product_in_stream(h, &p);
}

API cublasStatus_t cublasGemmStridedBatchedEx(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,
                                              int type_a, int lda, long long stride_a, const void *b, int type_b, int ldb,
                                              long long stride_b, const void *beta, void *c, int type_c, int ldc, long long stride_c,
                                              int batch, int compute, int algorithm) {
  (void)algorithm;
  const struct Product p = gemm("cublasGemmStridedBatchedEx", op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c,
                                ldc, scalar_of(compute, type_c));
  const struct Product all = strided(p, stride_a, stride_b, stride_c, batch);
  return product_in_stream(h, &all);
}

API cublasStatus_t cublasGemmBatchedEx(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha,
                                       const void *const *a, int type_a, int lda, const void *const *b, int type_b, int ldb,
                                       const void *beta, void *const *c, int type_c, int ldc, int batch, int compute, int algorithm) {
  (void)algorithm;
  const struct Product p = gemm("cublasGemmBatchedEx", op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, (void *)c, type_c,
                                ldc, scalar_of(compute, type_c));
  const struct Product all = of_arrays(p, batch);
  return product_in_stream(h, &all);
}

#define GEMM_EX(name, scalar)                                                                                                     \
  API cublasStatus_t cublas##name(struct Handle *h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a,    \
                                  int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, \
                                  int ldc) {                                                                                      \
    const struct Product p =                                                                                                      \
        gemm("cublas" #name, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, scalar);           \
    return product_in_stream(h, &p);                                                                                              \
  }

GEMM_EX(SgemmEx, F32)
GEMM_EX(CgemmEx, C32)

// ---- a matrix and a vector ---------------------------------------------------------------------

// vector is a matrix of one column, with elements an increment apart. With a negative increment it
// begins at its other end.
static struct Matrix vector(struct Matrix m, int64_t count) {
  m.by_rows = true;
  if (m.ld < 0) m.data -= (count - 1) * m.ld * (int64_t)bytes_of(m.type);
  return m;
}

// gemv is a product whose b and c have one column: elements incx and incy apart.
static struct Product gemv(struct Product p) {
  p.b = vector(p.b, p.k);
  p.c = p.d = vector(p.c, p.m);
  return p;
}

#define GEMV(name, type)                                                                                                            \
  API cublasStatus_t cublas##name##_v2(struct Handle *h, int op, int m, int n, const void *alpha, const void *a, int lda,           \
                                       const void *x, int incx, const void *beta, void *y, int incy) {                              \
    if (incx == 0 || incy == 0) return CUBLAS_INVALID_VALUE;                                                                        \
    const struct Product p = gemv(gemm("cublas" #name, op, OP_N, op == OP_N ? m : n, 1, op == OP_N ? n : m, alpha, a, type, lda, x, \
                                       type, incx, beta, y, type, incy, type));                                                     \
    return product_in_stream(h, &p);                                                                                                \
  }                                                                                                                                 \
  API cublasStatus_t cublas##name##StridedBatched(struct Handle *h, int op, int m, int n, const void *alpha, const void *a, int lda, \
                                                  long long stride_a, const void *x, int incx, long long stride_x,                  \
                                                  const void *beta, void *y, int incy, long long stride_y, int batch) {             \
    if (incx == 0 || incy == 0) return CUBLAS_INVALID_VALUE;                                                                        \
    const struct Product p = gemv(gemm("cublas" #name "StridedBatched", op, OP_N, op == OP_N ? m : n, 1, op == OP_N ? n : m, alpha, \
                                       a, type, lda, x, type, incx, beta, y, type, incy, type));                                    \
    const struct Product all = strided(p, stride_a, stride_x, stride_y, batch);                                                     \
    return product_in_stream(h, &all);                                                                                              \
  }

GEMV(Sgemv, F32)
GEMV(Dgemv, F64)
GEMV(Cgemv, C32)
GEMV(Zgemv, C64)

// ger adds the product of a column and a row.
#define GER(name, type)                                                                                                           \
  API cublasStatus_t cublas##name##_v2(struct Handle *h, int m, int n, const void *alpha, const void *x, int incx, const void *y, \
                                       int incy, void *a, int lda) {                                                              \
    static const double one = 1;                                                                                                  \
    static const float one_float = 1;                                                                                             \
    if (incx == 0 || incy == 0) return CUBLAS_INVALID_VALUE;                                                                      \
    struct Product p = gemm("cublas" #name, OP_N, OP_T, m, n, 1, alpha, x, type, incx, y, type, incy,                             \
                            type == F64 ? (const void *)&one : &one_float, a, type, lda, type);                                   \
    p.a = vector(p.a, m);                                                                                                         \
    p.b = vector(p.b, n);                                                                                                         \
    return product_in_stream(h, &p);                                                                                              \
  }

GER(Sger, F32)
GER(Dger, F64)
