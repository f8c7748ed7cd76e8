// The cuBLAS of attune exec: a libcublas.so whose functions the host computes, on device memory that
// it maps. attune checks what a call accesses, and names the calls in its summary: nothing checks the
// kernels that NVIDIA's library would run.
#pragma once

#include "../client.h"

typedef int cublasStatus_t;

enum {
  CUBLAS_SUCCESS = 0,
  CUBLAS_NOT_INITIALIZED = 1,
  CUBLAS_ALLOC_FAILED = 3,
  CUBLAS_INVALID_VALUE = 7,
  CUBLAS_EXECUTION_FAILED = 13,
  CUBLAS_NOT_SUPPORTED = 15,
};

// The types of elements, by their numbers in cudaDataType.
enum { F32 = 0, F64 = 1, F16 = 2, I8 = 3, C32 = 4, C64 = 5, U8 = 8, I32 = 10, BF16 = 14, E4M3 = 28, E5M2 = 29 };

enum { OP_N = 0, OP_T = 1, OP_C = 2 };

struct Handle {
  CUstream stream;
  int device_pointers;  // scalars are in device memory
  int math, atomics, processors;
};

// Number is an element: a real one has no imaginary part.
struct Number {
  double re, im;
};

static inline struct Number number_product(struct Number a, struct Number b) {
  return (struct Number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static inline struct Number number_quotient(struct Number a, struct Number b) {
  const double size = b.re * b.re + b.im * b.im;
  if (b.im == 0) return (struct Number){a.re / b.re, a.im / b.re};
  return (struct Number){(a.re * b.re + a.im * b.im) / size, (a.im * b.re - a.re * b.im) / size};
}

// host_view is where the host accesses what a program names.
static inline void *host_view(const void *p) { return (void *)(uintptr_t)attuneHostAddress((uintptr_t)p); }

size_t bytes_of(int type);
bool is_complex(int type);
struct Number load_element(int type, const void *data, int64_t index);
void store_element(int type, void *data, int64_t index, struct Number value);

// Matrix is a matrix in memory, by columns unless by_rows.
struct Matrix {
  const char *data;
  int type, op;
  int64_t ld, stride;  // stride is that of a batch, in elements
  bool by_rows;
};

enum { EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4, EPILOGUE_GELU = 32, EPILOGUE_DGELU = 64, EPILOGUE_DRELU = 8, EPILOGUE_AUX = 128,
       EPILOGUE_DBIAS = 16, EPILOGUE_DBIAS_A = 256, EPILOGUE_DBIAS_B = 512 };

// Product is d = epilogue(alpha op(a) op(b) + beta c), for each matrix of a batch.
struct Product {
  const char *function;
  int64_t m, n, k, batch;
  struct Matrix a, b, c, d;
  bool arrays;         // the data are arrays of pointers
  bool host_matrices;  // the matrices may be in the memory of the host
  int scale;    // the type of alpha and beta
  bool device_scalars;
  struct Number alpha, beta;
  const void *alpha_at, *beta_at;
  bool in_double;  // the sums
  int epilogue, bias_type, aux_type;
  char *bias, *aux;
  int64_t aux_ld;
  const float *scales[4];  // of a, b, c and d; NULL for 1
};

// gemm is a product of matrices by columns.
struct Product gemm(const char *function, int op_a, int op_b, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int type_a,
                    int64_t lda, const void *b, int type_b, int64_t ldb, const void *beta, void *c, int type_c, int64_t ldc, int scale);

// enqueue runs a function of the host when the stream is at it, with a copy of its arguments. The
// arguments begin with a CUresult, which the function sets.
cublasStatus_t enqueue(struct Handle *h, void (*run)(void *), const void *arguments, size_t bytes);

// product_in_stream computes a product when the stream is at it.
cublasStatus_t product_in_stream(struct Handle *h, const struct Product *p);
