// cublasXt: products of matrices that the host may hold. Its handle has the one device, and a call
// returns when its result is there.

#include "cublas.h"

#include <stdlib.h>

struct Xt {
  struct Handle handle;  // of the legacy stream
  int block, pinning;
};

CUresult cuInit(unsigned);

API cublasStatus_t cublasXtCreate(struct Xt **h) {
  if (h == NULL) return CUBLAS_INVALID_VALUE;
  if (cuInit(0) != CUDA_SUCCESS) return CUBLAS_NOT_INITIALIZED;
  *h = calloc(1, sizeof **h);
  if (*h == NULL) return CUBLAS_ALLOC_FAILED;
  (*h)->block = 1024;
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasXtDestroy(struct Xt *h) {
  free(h);
  return h == NULL ? CUBLAS_NOT_INITIALIZED : CUBLAS_SUCCESS;
}

API cublasStatus_t cublasXtDeviceSelect(struct Xt *h, int count, const int *devices) {
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  return count == 1 && devices != NULL && devices[0] == 0 ? CUBLAS_SUCCESS : CUBLAS_INVALID_VALUE;
}

API cublasStatus_t cublasXtSetBlockDim(struct Xt *h, int block) {
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  if (block <= 0) return CUBLAS_INVALID_VALUE;
  h->block = block;
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasXtGetBlockDim(struct Xt *h, int *block) {
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  *block = h->block;
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasXtSetPinningMemMode(struct Xt *h, int mode) {
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  h->pinning = mode;
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasXtGetPinningMemMode(struct Xt *h, int *mode) {
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  *mode = h->pinning;
  return CUBLAS_SUCCESS;
}

#define XT_GEMM(letter, type)                                                                                                      \
  API cublasStatus_t cublasXt##letter##gemm(struct Xt *h, int op_a, int op_b, size_t m, size_t n, size_t k, const void *alpha,     \
                                            const void *a, size_t lda, const void *b, size_t ldb, const void *beta, void *c,       \
                                            size_t ldc) {                                                                          \
    if (h == NULL) return CUBLAS_NOT_INITIALIZED;                                                                                  \
    struct Product p = gemm("cublasXt" #letter "gemm", op_a, op_b, (int64_t)m, (int64_t)n, (int64_t)k, alpha, a, type,             \
                            (int64_t)lda, b, type, (int64_t)ldb, beta, c, type, (int64_t)ldc, type);                               \
    p.host_matrices = true;                                                                                                        \
    return product_in_stream(&h->handle, &p);                                                                                      \
  }

XT_GEMM(S, F32)
XT_GEMM(D, F64)
XT_GEMM(C, C32)
XT_GEMM(Z, C64)
