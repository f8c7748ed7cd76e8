// The product of matrices.

#include "cublas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#define VECTOR __attribute__((target_clones("arch=haswell", "default"), optimize("O3")))
#else
#define VECTOR
#endif

enum { kRows = 16, kColumns = 4 };  // of a tile of the result

// A TILE function adds products of a panel of a, 16 rows, and a panel of b, 4 columns.
#define TILE(name, type)                                                                      \
  VECTOR static void name(const type *a, const type *b, int64_t k, double *result) {          \
    type sum[kColumns][kRows] = {{0}};                                                        \
    for (int64_t p = 0; p < k; p++, a += kRows, b += kColumns) {                              \
      for (int j = 0; j < kColumns; j++) {                                                    \
        for (int i = 0; i < kRows; i++) sum[j][i] += a[i] * b[j];                             \
      }                                                                                       \
    }                                                                                         \
    for (int j = 0; j < kColumns; j++) {                                                      \
      for (int i = 0; i < kRows; i++) result[j * kRows + i] = sum[j][i];                      \
    }                                                                                         \
  }

TILE(tile_float, float)
TILE(tile_double, double)

static struct Number element(const struct Matrix *m, int64_t row, int64_t column) {
  struct Number v = load_element(m->type, m->data, m->by_rows ? row * m->ld + column : row + column * m->ld);
  return v;
}

// element_of is an element of op(m).
static struct Number element_of(const struct Matrix *m, int64_t row, int64_t column) {
  if (m->op == OP_N) return element(m, row, column);
  struct Number v = element(m, column, row);
  if (m->op == OP_C) v.im = -v.im;
  return v;
}

// Panels are the values of a matrix in the order in which tiles read them. A complex product is a real
// one of twice the depth: (re, im) times (re, -im) and (im, re).
struct Panels {
  char *data;
  size_t panel_bytes;
};

enum Part { PART_RE, PART_IM, PART_MINUS_IM };

static double part_of(struct Number v, enum Part part) { return part == PART_RE ? v.re : part == PART_IM ? v.im : -v.im; }

static void put(char *data, bool in_double, int64_t i, double value) {
  if (in_double) ((double *)data)[i] = value;
  else ((float *)data)[i] = (float)value;
}

// pack makes the panels of a matrix: of width rows, or columns if it is b.
static struct Panels pack(const struct Product *p, const struct Matrix *m, bool is_b, int width, bool complex, bool imaginary) {
  const int64_t count = is_b ? p->n : p->m, depth = p->k * (complex ? 2 : 1);
  const size_t each = (p->in_double ? 8 : 4) * (size_t)width * (size_t)depth;
  struct Panels packed = {calloc((size_t)((count + width - 1) / width) + 1, each + 1), each};
  if (packed.data == NULL) return packed;
  const enum Part first = imaginary ? PART_IM : PART_RE, second = !is_b ? PART_IM : imaginary ? PART_RE : PART_MINUS_IM;
  for (int64_t x = 0; x < count; x++) {
    char *panel = packed.data + (size_t)(x / width) * each;
    for (int64_t q = 0; q < p->k; q++) {
      const struct Number v = is_b ? element_of(m, q, x) : element_of(m, x, q);
      put(panel, p->in_double, q * width + x % width, part_of(v, first));
      if (complex) put(panel, p->in_double, (p->k + q) * width + x % width, part_of(v, second));
    }
  }
  return packed;
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

static double gelu_slope(double x) {
  const double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x), t = tanh(inner);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

// finish applies the epilogue to an element.
static double finish(const struct Product *p, double v, int64_t row, int64_t column) {
  const int e = p->epilogue;
  const int64_t at = row + column * p->aux_ld;
  if (e & EPILOGUE_BIAS) v += load_element(p->bias_type, p->bias, row).re;
  if (e & EPILOGUE_DGELU) return v * gelu_slope(load_element(p->aux_type, p->aux, at).re);
  if (e & EPILOGUE_DRELU) return *(uint8_t *)host_view(&p->aux[at / 8]) >> (at % 8) & 1 ? v : 0;
  if (e & EPILOGUE_AUX && e & EPILOGUE_GELU) store_element(p->aux_type, p->aux, at, (struct Number){v, 0});
  if (e & EPILOGUE_AUX && e & EPILOGUE_RELU) {
    const uint8_t bit = (uint8_t)(1u << (at % 8));
    uint8_t *const byte = host_view(&p->aux[at / 8]);
    *byte = (uint8_t)(v > 0 ? *byte | bit : *byte & ~bit);
  }
  if (e & EPILOGUE_RELU) return v > 0 ? v : 0;
  if (e & EPILOGUE_GELU) return gelu(v);
  return v;
}

static double scale_of(const struct Product *p, int i) { return p->scales[i] == NULL ? 1 : *(const float *)host_view(p->scales[i]); }

// store writes an element of the result.
static void store(const struct Product *p, int64_t row, int64_t column, struct Number sum) {
  const double scale = scale_of(p, 0) * scale_of(p, 1);
  struct Number v = {(p->alpha.re * sum.re - p->alpha.im * sum.im) * scale, (p->alpha.re * sum.im + p->alpha.im * sum.re) * scale};
  if (p->beta.re != 0 || p->beta.im != 0) {
    const struct Number c = element(&p->c, row, column);
    v.re += (p->beta.re * c.re - p->beta.im * c.im) * scale_of(p, 2);
    v.im += p->beta.re * c.im + p->beta.im * c.re;
  }
  if (p->epilogue > 1) v.re = finish(p, v.re, row, column);
  v.re *= scale_of(p, 3);
  store_element(p->d.type, (char *)p->d.data, p->d.by_rows ? row * p->d.ld + column : row + column * p->d.ld, v);
}

static void multiply_panels(const struct Product *p, const struct Panels *a, const struct Panels *b, const struct Panels *b_im, bool complex) {
  const int64_t depth = p->k * (complex ? 2 : 1);
  double re[kRows * kColumns], im[kRows * kColumns] = {0};
  for (int64_t i = 0; i < p->m; i += kRows) {
    const char *panel = a->data + (size_t)(i / kRows) * a->panel_bytes;
    for (int64_t j = 0; j < p->n; j += kColumns) {
      const size_t at = (size_t)(j / kColumns) * b->panel_bytes;
      if (p->in_double) tile_double((const double *)panel, (const double *)(b->data + at), depth, re);
      else tile_float((const float *)panel, (const float *)(b->data + at), depth, re);
      if (complex && p->in_double) tile_double((const double *)panel, (const double *)(b_im->data + at), depth, im);
      if (complex && !p->in_double) tile_float((const float *)panel, (const float *)(b_im->data + at), depth, im);
      for (int x = 0; x < kColumns && j + x < p->n; x++) {
        for (int y = 0; y < kRows && i + y < p->m; y++) store(p, i + y, j + x, (struct Number){re[x * kRows + y], im[x * kRows + y]});
      }
    }
  }
}

// sum_gradients sums the rows of a, the columns of b or the rows of the result: the gradient of a bias.
static void sum_gradients(const struct Product *p) {
  const bool of_a = p->epilogue & EPILOGUE_DBIAS_A, of_b = p->epilogue & EPILOGUE_DBIAS_B;
  const struct Matrix *m = of_a ? &p->a : of_b ? &p->b : &p->d;
  const int64_t count = of_b ? p->n : p->m, depth = of_a || of_b ? p->k : p->n;
  for (int64_t i = 0; i < count; i++) {
    double sum = 0;
    for (int64_t j = 0; j < depth; j++) sum += of_b ? element_of(m, j, i).re : of_a ? element_of(m, i, j).re : element(m, i, j).re;
    store_element(p->bias_type, p->bias, i, (struct Number){sum, 0});
  }
}

// multiply computes one product.
static CUresult multiply(const struct Product *p) {
  const bool complex = is_complex(p->d.type);
  const struct Panels a = pack(p, &p->a, false, kRows, complex, false), b = pack(p, &p->b, true, kColumns, complex, false);
  const struct Panels b_im = complex ? pack(p, &p->b, true, kColumns, true, true) : (struct Panels){calloc(1, 1), 0};
  const bool made = a.data != NULL && b.data != NULL && b_im.data != NULL;
  if (made) multiply_panels(p, &a, &b, &b_im, complex);
  free(a.data);
  free(b.data);
  free(b_im.data);
  if (made && p->epilogue & (EPILOGUE_DBIAS | EPILOGUE_DBIAS_A | EPILOGUE_DBIAS_B)) sum_gradients(p);
  return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static struct Region region_of(const struct Matrix *m, int64_t rows, int64_t columns, bool writes) {
  const size_t each = bytes_of(m->type);
  const bool swapped = (m->op != OP_N) != m->by_rows;
  const int64_t inner = swapped ? columns : rows, outer = swapped ? rows : columns;
  if (inner == 0) return (struct Region){0};
  if (m->ld < 0) {  // of a vector: its last element is first in memory
    const uint64_t pitch = each * (size_t)-m->ld;
    return (struct Region){(uintptr_t)m->data - (uint64_t)(outer - 1) * pitch, pitch, each, (size_t)outer, writes, 0};
  }
  if (m->ld == inner) return (struct Region){(uintptr_t)m->data, 0, each * (size_t)(inner * outer), 1, writes, 0};
  return (struct Region){(uintptr_t)m->data, each * (size_t)m->ld, each * (size_t)inner, (size_t)outer, writes, 0};
}

// regions_of lists what a product accesses, and returns how many they are.
static uint32_t regions_of(const struct Product *p, struct Region *r) {
  uint32_t n = 0;
  const bool reads_c = p->beta.re != 0 || p->beta.im != 0;
  if (p->k > 0) {
    r[n++] = region_of(&p->a, p->m, p->k, false);
    r[n++] = region_of(&p->b, p->k, p->n, false);
  }
  if (reads_c) r[n++] = region_of(&p->c, p->m, p->n, false);
  if (p->epilogue & EPILOGUE_BIAS) {
    r[n++] = (struct Region){(uintptr_t)p->bias, 0, bytes_of(p->bias_type) * (size_t)p->m, 1, 0, 0};
  }
  if (p->epilogue & (EPILOGUE_DBIAS | EPILOGUE_DBIAS_A | EPILOGUE_DBIAS_B)) {
    const int64_t count = p->epilogue & EPILOGUE_DBIAS_B ? p->n : p->m;
    r[n++] = (struct Region){(uintptr_t)p->bias, 0, bytes_of(p->bias_type) * (size_t)count, 1, 1, 0};
  }
  if (p->aux != NULL && p->epilogue & EPILOGUE_AUX) {
    const bool bits = p->epilogue & (EPILOGUE_RELU | EPILOGUE_DRELU), writes = !(p->epilogue & (EPILOGUE_DGELU | EPILOGUE_DRELU));
    const size_t each = bits ? 1 : bytes_of(p->aux_type), row = bits ? (size_t)p->m / 8 : each * (size_t)p->m;
    r[n++] = (struct Region){(uintptr_t)p->aux, bits ? (size_t)p->aux_ld / 8 : each * (size_t)p->aux_ld, row, (size_t)p->n, writes, 0};
  }
  r[n++] = region_of(&p->d, p->m, p->n, true);
  for (uint32_t i = 0; i < n; i++) r[i].host = p->host_matrices;
  return n;
}

enum { kMostRegions = 8 };

// matrix_of_batch is the matrix of a number in a batch.
static struct Matrix matrix_of_batch(struct Matrix m, bool arrays, int64_t i) {
  if (arrays) m.data = ((const char *const *)host_view(m.data))[i];
  else m.data += i * m.stride * (int64_t)bytes_of(m.type);
  return m;
}

struct ProductCall {
  CUresult status;
  struct Product p;
};

// check_inputs checks what a product reads before its matrices: scalars, and the arrays of pointers of a
// batch, which are in device memory too.
static CUresult check_inputs(const struct Product *p) {
  const size_t bytes = (size_t)p->batch * sizeof(void *);
  struct Region r[5];
  uint32_t n = 0;
  if (p->device_scalars) {
    r[n++] = (struct Region){(uintptr_t)p->alpha_at, 0, bytes_of(p->scale), 1, 0, 1};
    r[n++] = (struct Region){(uintptr_t)p->beta_at, 0, bytes_of(p->scale), 1, 0, 1};
  }
  if (p->arrays) {
    r[n++] = (struct Region){(uintptr_t)p->a.data, 0, bytes, 1, 0, 0};
    r[n++] = (struct Region){(uintptr_t)p->b.data, 0, bytes, 1, 0, 0};
    r[n++] = (struct Region){(uintptr_t)p->d.data, 0, bytes, 1, 0, 0};
  }
  return n == 0 ? CUDA_SUCCESS : attuneCheck(p->function, r, n);
}

static void run_product(void *argument) {
  struct ProductCall *call = argument;
  struct Product p = call->p;
  struct Region *regions = calloc((size_t)p.batch * kMostRegions, sizeof *regions);
  uint32_t count = 0;
  call->status = check_inputs(&p);
  if (p.device_scalars && call->status == CUDA_SUCCESS) {
    p.alpha = load_element(p.scale, p.alpha_at, 0);
    p.beta = load_element(p.scale, p.beta_at, 0);
  }
  for (int64_t i = 0; i < p.batch && call->status == CUDA_SUCCESS; i++) {
    struct Product one = p;
    one.a = matrix_of_batch(p.a, p.arrays, i), one.b = matrix_of_batch(p.b, p.arrays, i);
    one.c = matrix_of_batch(p.c, p.arrays, i), one.d = matrix_of_batch(p.d, p.arrays, i);
    count += regions_of(&one, regions + count);
  }
  if (call->status == CUDA_SUCCESS) call->status = attuneLibrary(p.function, regions, count);
  free(regions);
  for (int64_t i = 0; i < p.batch && call->status == CUDA_SUCCESS; i++) {
    struct Product one = p;
    one.a = matrix_of_batch(p.a, p.arrays, i), one.b = matrix_of_batch(p.b, p.arrays, i);
    one.c = matrix_of_batch(p.c, p.arrays, i), one.d = matrix_of_batch(p.d, p.arrays, i);
    call->status = multiply(&one);
  }
}

cublasStatus_t product_in_stream(struct Handle *h, const struct Product *product) {
  struct ProductCall call = {0, *product};
  struct Product *p = &call.p;
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  if (p->m < 0 || p->n < 0 || p->k < 0 || p->batch < 0 || p->alpha_at == NULL || p->beta_at == NULL) return CUBLAS_INVALID_VALUE;
  if (p->m == 0 || p->n == 0 || p->batch == 0) return CUBLAS_SUCCESS;
  p->device_scalars = h->device_pointers;
  if (!h->device_pointers) {
    p->alpha = load_element(p->scale, p->alpha_at, 0);
    p->beta = load_element(p->scale, p->beta_at, 0);
  }
  const bool small = p->d.type == F64 || p->d.type == C64 || p->d.type == I32 || p->a.type == I8;
  p->in_double = p->in_double || small;
  return enqueue(h, run_product, &call, sizeof call);
}
