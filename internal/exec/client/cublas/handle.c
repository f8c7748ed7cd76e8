// The handle, and copies between the host and the device.

#include "cublas.h"

#include <stdlib.h>

CUresult cuInit(unsigned);

API cublasStatus_t cublasCreate_v2(struct Handle **h) {
  if (h == NULL) return CUBLAS_INVALID_VALUE;
  if (cuInit(0) != CUDA_SUCCESS) return CUBLAS_NOT_INITIALIZED;
  *h = calloc(1, sizeof **h);
  return *h == NULL ? CUBLAS_ALLOC_FAILED : CUBLAS_SUCCESS;
}

API cublasStatus_t cublasDestroy_v2(struct Handle *h) {
  free(h);
  return h == NULL ? CUBLAS_NOT_INITIALIZED : CUBLAS_SUCCESS;
}

API cublasStatus_t cublasGetVersion_v2(struct Handle *h, int *version) {
  (void)h;
  *version = attune_major * 10000;
  return CUBLAS_SUCCESS;
}

API size_t cublasGetCudartVersion(void) { return attune_major * 1000; }

API cublasStatus_t cublasGetProperty(int property, int *value) {
  *value = property == 0 ? attune_major : 0;
  return CUBLAS_SUCCESS;
}

// A PROPERTY of the handle has a function that sets it and one that gets it.
#define PROPERTY(set, get, type, field)                       \
  API cublasStatus_t cublas##set(struct Handle *h, type value) { \
    if (h == NULL) return CUBLAS_NOT_INITIALIZED;             \
    h->field = value;                                         \
    return CUBLAS_SUCCESS;                                    \
  }                                                           \
  API cublasStatus_t cublas##get(struct Handle *h, type *value) { \
    if (h == NULL) return CUBLAS_NOT_INITIALIZED;             \
    *value = h->field;                                        \
    return CUBLAS_SUCCESS;                                    \
  }

PROPERTY(SetStream_v2, GetStream_v2, CUstream, stream)
PROPERTY(SetPointerMode_v2, GetPointerMode_v2, int, device_pointers)
PROPERTY(SetMathMode, GetMathMode, int, math)
PROPERTY(SetAtomicsMode, GetAtomicsMode, int, atomics)
PROPERTY(SetSmCountTarget, GetSmCountTarget, int, processors)

API cublasStatus_t cublasSetWorkspace_v2(struct Handle *h, void *workspace, size_t bytes) {
  (void)workspace, (void)bytes;
  return h == NULL ? CUBLAS_NOT_INITIALIZED : CUBLAS_SUCCESS;
}

API cublasStatus_t cublasLoggerConfigure(int on, int to_output, int to_error, const char *file) {
  (void)on, (void)to_output, (void)to_error, (void)file;
  return CUBLAS_SUCCESS;
}

API cublasStatus_t cublasSetLoggerCallback(void *callback) {
  (void)callback;
  return CUBLAS_SUCCESS;
}

static const struct {
  cublasStatus_t status;
  const char *name, *text;
} statuses[] = {
    {0, "CUBLAS_STATUS_SUCCESS", "success"},
    {1, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {3, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {7, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed to the function"},
    {8, "CUBLAS_STATUS_ARCH_MISMATCH", "the function requires an architectural feature absent from the device"},
    {11, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {13, "CUBLAS_STATUS_EXECUTION_FAILED", "the function failed to launch on the GPU"},
    {14, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {15, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality requested is not supported"},
    {16, "CUBLAS_STATUS_LICENSE_ERROR", "the functionality requested requires some license and an error was detected"},
};

enum { kStatuses = sizeof statuses / sizeof *statuses };

API const char *cublasGetStatusName(cublasStatus_t status) {
  for (int i = 0; i < kStatuses; i++) {
    if (statuses[i].status == status) return statuses[i].name;
  }
  return "unknown";
}

API const char *cublasGetStatusString(cublasStatus_t status) {
  for (int i = 0; i < kStatuses; i++) {
    if (statuses[i].status == status) return statuses[i].text;
  }
  return "unknown";
}

// ---- copies ------------------------------------------------------------------------------------

CUresult cuMemcpy3D_v2(const struct Memcpy3D *);
CUresult cuMemcpy3DAsync_v2(const struct Memcpy3D *, CUstream);

// copy_rows copies rows of bytes, and waits unless there is a stream.
static cublasStatus_t copy_rows(size_t width, size_t height, const void *from, size_t from_pitch, void *to, size_t to_pitch,
                                const CUstream *stream) {
  if (width > from_pitch || width > to_pitch) return CUBLAS_INVALID_VALUE;
  if (width == 0 || height == 0) return CUBLAS_SUCCESS;
  const struct Memcpy3D m = {.from_type = kUnified, .from_device = (uintptr_t)from, .from_pitch = from_pitch, .to_type = kUnified,
                             .to_device = (uintptr_t)to, .to_pitch = to_pitch, .width = width, .height = height, .depth = 1};
  const CUresult status = stream == NULL ? cuMemcpy3D_v2(&m) : cuMemcpy3DAsync_v2(&m, *stream);
  return status == CUDA_SUCCESS ? CUBLAS_SUCCESS : 11;
}

#define COPIES(name)                                                                                                                 \
  API cublasStatus_t cublas##name##Matrix(int rows, int columns, int each, const void *a, int lda, void *b, int ldb) {              \
    if (rows < 0 || columns < 0 || each <= 0 || lda <= 0 || ldb <= 0) return CUBLAS_INVALID_VALUE;                                   \
    return copy_rows((size_t)rows * (size_t)each, (size_t)columns, a, (size_t)lda * (size_t)each, b, (size_t)ldb * (size_t)each, NULL); \
  }                                                                                                                                  \
  API cublasStatus_t cublas##name##MatrixAsync(int rows, int columns, int each, const void *a, int lda, void *b, int ldb, CUstream s) { \
    if (rows < 0 || columns < 0 || each <= 0 || lda <= 0 || ldb <= 0) return CUBLAS_INVALID_VALUE;                                   \
    return copy_rows((size_t)rows * (size_t)each, (size_t)columns, a, (size_t)lda * (size_t)each, b, (size_t)ldb * (size_t)each, &s); \
  }                                                                                                                                  \
  API cublasStatus_t cublas##name##Vector(int n, int each, const void *x, int incx, void *y, int incy) {                             \
    if (incx == 1 && incy == 1) return cublas##name##Matrix(n, 1, each, x, n > 0 ? n : 1, y, n > 0 ? n : 1);                         \
    return cublas##name##Matrix(1, n, each, x, incx, y, incy);                                                                       \
  }                                                                                                                                  \
  API cublasStatus_t cublas##name##VectorAsync(int n, int each, const void *x, int incx, void *y, int incy, CUstream s) {            \
    if (incx == 1 && incy == 1) return cublas##name##MatrixAsync(n, 1, each, x, n > 0 ? n : 1, y, n > 0 ? n : 1, s);                 \
    return cublas##name##MatrixAsync(1, n, each, x, incx, y, incy, s);                                                               \
  }

COPIES(Set)
COPIES(Get)

// ---- functions that do not exist ---------------------------------------------------------------

CUresult attuneUnsupported(const char *);

#define MISSING(name)                 \
  API cublasStatus_t name(void) {     \
    attuneUnsupported(#name);         \
    return CUBLAS_NOT_SUPPORTED;      \
  }
#include "missing.h"
