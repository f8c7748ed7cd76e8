// cuBLAS in the types and forms that applications use, against the definitions of its functions. The
// conversions to small types are those of CUDA's headers. Prints "ok" if all results are right.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.cuh"

typedef std::complex<double> Number;
typedef std::vector<Number> Numbers;
typedef void *Handle;

extern "C" {
int cublasCreate_v2(Handle *);
int cublasDestroy_v2(Handle);
int cublasSetStream_v2(Handle, cudaStream_t);
int cublasSetPointerMode_v2(Handle, int);
int cublasGemmEx(Handle, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *, int, int, int, int);
int cublasGemmBatchedEx(Handle, int, int, int, int, int, const void *, const void *const *, int, int, const void *const *, int, int, const void *,
                        void *const *, int, int, int, int, int);
int cublasCgemmStridedBatched(Handle, int, int, int, int, int, const void *, const void *, int, long long, const void *, int, long long, const void *,
                              void *, int, long long, int);
int cublasSgemm_v2(Handle, int, int, int, int, int, const void *, const void *, int, const void *, int, const void *, void *, int);
int cublasHgemm(Handle, int, int, int, int, int, const void *, const void *, int, const void *, int, const void *, void *, int);
int cublasDgemv_v2(Handle, int, int, int, const void *, const void *, int, const void *, int, const void *, void *, int);
int cublasDger_v2(Handle, int, int, const void *, const void *, int, const void *, int, void *, int);
int cublasZaxpy_v2(Handle, int, const void *, const void *, int, void *, int);
int cublasZscal_v2(Handle, int, const void *, void *, int);
int cublasZcopy_v2(Handle, int, const void *, int, void *, int);
int cublasZswap_v2(Handle, int, void *, int, void *, int);
int cublasZdotc_v2(Handle, int, const void *, int, const void *, int, void *);
int cublasZdotu_v2(Handle, int, const void *, int, const void *, int, void *);
int cublasDznrm2_v2(Handle, int, const void *, int, void *);
int cublasDzasum_v2(Handle, int, const void *, int, void *);
int cublasIzamax_v2(Handle, int, const void *, int, int *);
int cublasIzamin_v2(Handle, int, const void *, int, int *);
int cublasDrot_v2(Handle, int, void *, int, void *, int, const void *, const void *);
int cublasDgetrfBatched(Handle, int, void *const *, int, int *, int *, int);
int cublasCgetrfBatched(Handle, int, void *const *, int, int *, int *, int);
int cublasDtrsm_v2(Handle, int, int, int, int, int, int, const void *, const void *, int, void *, int);
int cublasCtrsm_v2(Handle, int, int, int, int, int, int, const void *, const void *, int, void *, int);
int cublasDtrsmBatched(Handle, int, int, int, int, int, int, const void *, const void *const *, int, void *const *, int, int);
int cublasCtrsmBatched(Handle, int, int, int, int, int, int, const void *, const void *const *, int, void *const *, int, int);
int cublasXtCreate(Handle *);
int cublasXtDestroy(Handle);
int cublasXtDeviceSelect(Handle, int, const int *);
int cublasXtSetBlockDim(Handle, int);
int cublasXtGetBlockDim(Handle, int *);
int cublasXtZgemm(Handle, int, int, size_t, size_t, size_t, const void *, const void *, size_t, const void *, size_t, const void *, void *, size_t);
int cublasSetMatrix(int, int, int, const void *, int, void *, int);
int cublasGetMatrix(int, int, int, const void *, int, void *, int);
int cublasSetVector(int, int, const void *, int, void *, int);
int cublasGetVector(int, int, const void *, int, void *, int);
const char *cublasGetStatusString(int);
int cublasLtCreate(Handle *);
int cublasLtMatmulDescCreate(void **, int, int);
int cublasLtMatmulDescSetAttribute(void *, int, const void *, size_t);
int cublasLtMatrixLayoutCreate(void **, int, unsigned long long, unsigned long long, long long);
int cublasLtMatrixLayoutSetAttribute(void *, int, const void *, size_t);
int cublasLtMatmul(Handle, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *, void *,
                   const void *, void *, size_t, cudaStream_t);
}

enum { F32 = 0, F64 = 1, F16 = 2, I8 = 3, C32 = 4, C64 = 5, I32 = 10, BF16 = 14, E4M3 = 28, E5M2 = 29 };
enum { kCompute16F = 64, kCompute32F = 68, kCompute64F = 70, kCompute32I = 72 };
enum { N = 0, T = 1, C = 2 };

static int wrong;

static void expect(bool right, const char *what, int a = 0, int b = 0) {
  if (!right) printf("%s %d %d: wrong\n", what, a, b), wrong++;
}

static size_t bytes_of(int type) {
  return type == C64 ? 16 : type == F64 || type == C32 ? 8 : type == F16 || type == BF16 ? 2 : type == I8 || type == E4M3 || type == E5M2 ? 1 : 4;
}

// put stores a number as an element of a type, and get loads it.
static void put(int type, void *at, Number v) {
  const float f = (float)v.real();
  if (type == F32) *(float *)at = f;
  if (type == F64) *(double *)at = v.real();
  if (type == F16) *(__half *)at = __double2half(v.real());
  if (type == BF16) *(__nv_bfloat16 *)at = __double2bfloat16(v.real());
  if (type == I8) *(signed char *)at = (signed char)f;
  if (type == I32) *(int *)at = (int)v.real();
  if (type == E4M3) *(__nv_fp8_e4m3 *)at = __nv_fp8_e4m3(v.real());
  if (type == E5M2) *(__nv_fp8_e5m2 *)at = __nv_fp8_e5m2(v.real());
  if (type == C32) *(std::complex<float> *)at = std::complex<float>(v);
  if (type == C64) *(Number *)at = v;
}

static Number get(int type, const void *at) {
  switch (type) {
    case F32: return *(float *)at;
    case F64: return *(double *)at;
    case F16: return __half2float(*(__half *)at);
    case BF16: return __bfloat162float(*(__nv_bfloat16 *)at);
    case I8: return *(signed char *)at;
    case I32: return *(int *)at;
    case E4M3: return (float)*(__nv_fp8_e4m3 *)at;
    case E5M2: return (float)*(__nv_fp8_e5m2 *)at;
    case C32: return Number(*(std::complex<float> *)at);
    default: return *(Number *)at;
  }
}

static void *device(int type, const Numbers &values) {
  std::vector<char> bytes(values.size() * bytes_of(type));
  for (size_t i = 0; i < values.size(); i++) put(type, &bytes[i * bytes_of(type)], values[i]);
  void *p;
  CHECK(cudaMalloc(&p, bytes.size()));
  CHECK(cudaMemcpy(p, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  return p;
}

static Numbers host(int type, const void *p, size_t count) {
  std::vector<char> bytes(count * bytes_of(type));
  CHECK(cudaMemcpy(bytes.data(), p, bytes.size(), cudaMemcpyDeviceToHost));
  Numbers values(count);
  for (size_t i = 0; i < count; i++) values[i] = get(type, &bytes[i * bytes_of(type)]);
  return values;
}

static bool is_complex(int type) { return type == C32 || type == C64; }

// numbers are small ones that each type has.
static Numbers numbers(int type, size_t count, int seed) {
  Numbers values(count);
  for (size_t i = 0; i < count; i++) {
    const double re = (double)((i * 7 + seed) % 11) - 5, im = is_complex(type) ? (double)((i * 5 + seed) % 7) - 3 : 0;
    values[i] = Number(re, im) * (type == I8 || type == I32 ? 1.0 : 0.5);
  }
  return values;
}

static Number element(const Numbers &m, int op, int ld, int row, int column) {
  const Number v = op == N ? m[row + column * ld] : m[column + row * ld];
  return op == C ? std::conj(v) : v;
}

static const int m = 19, n = 6, k = 21;

static Numbers product(const Numbers &a, const Numbers &b, const Numbers &c, int op_a, int op_b, Number alpha, Number beta, size_t at_a = 0,
                       size_t at_b = 0, size_t at_c = 0) {
  Numbers d(m * n), x(a.begin() + at_a, a.end()), y(b.begin() + at_b, b.end());
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++) {
      Number sum = 0;
      for (int q = 0; q < k; q++) sum += element(x, op_a, op_a == N ? m : k, i, q) * element(y, op_b, op_b == N ? k : n, q, j);
      d[i + j * m] = alpha * sum + beta * c[at_c + i + j * m];
    }
  }
  return d;
}

// rounded are numbers as elements of a type.
static Numbers rounded(int type, Numbers values) {
  char bytes[16];
  for (Number &v : values) put(type, bytes, v), v = get(type, bytes);
  return values;
}

static void types(Handle h) {
  const struct {
    int in, out, compute, scale;
  } cases[] = {{F64, F64, kCompute64F, F64},  {C32, C32, kCompute32F, C32},    {C64, C64, kCompute64F, C64},   {F16, F16, kCompute16F, F16},
               {F16, F16, kCompute32F, F32},  {F16, F32, kCompute32F, F32},    {BF16, BF16, kCompute32F, F32}, {BF16, F32, kCompute32F, F32},
               {I8, I32, kCompute32I, I32},   {I8, F32, kCompute32F, F32}};
  for (auto t : cases) {
    for (int ops = 0; ops < 9; ops++) {
      const int op_a = ops % 3, op_b = ops / 3;
      const Numbers a = numbers(t.in, m * k, 1), b = numbers(t.in, k * n, 2), c = numbers(t.out, m * n, 3);
      const Number alpha = is_complex(t.out) ? Number(2, -1) : Number(2), beta = is_complex(t.out) ? Number(0, 1) : Number(-1);
      char scalars[2][16];
      put(t.scale, scalars[0], alpha), put(t.scale, scalars[1], beta);
      void *da = device(t.in, a), *db = device(t.in, b), *dc = device(t.out, c);
      const int status = cublasGemmEx(h, op_a, op_b, m, n, k, scalars[0], da, t.in, op_a == N ? m : k, db, t.in, op_b == N ? k : n, scalars[1],
                                      dc, t.out, m, t.compute, -1);
      expect(status == 0 && host(t.out, dc, m * n) == rounded(t.out, product(a, b, c, op_a, op_b, alpha, beta)), "cublasGemmEx", t.in, t.out);
      for (void *p : {da, db, dc}) CHECK(cudaFree(p));
    }
  }
}

// small rounds all kinds of numbers to small types: a product with the number 1.
static void small(Handle h) {
  const Numbers values = {0.0, -0.0, 1.0 / 3, 65504, 65519, 65520, -70000, 6e-8, 2.9e-8, 2.98e-8, 6.1e-5, 1e-5, 448, 464, 1.0625, 1.1875, 0.001953125, 0.0009, 57344, 1e30, 3.39e38, 1e-40};
  const int count = (int)values.size();
  const float one = 1, zero = 0;
  for (int type : {F16, BF16}) {
    const Numbers exact = rounded(F32, values);
    void *x = device(F32, exact), *unit = device(F32, {1}), *y = device(type, Numbers(count));
    expect(cublasGemmEx(h, N, N, count, 1, 1, &one, x, F32, count, unit, F32, 1, &zero, y, type, count, kCompute32F, -1) == 0, "the status of rounding", type);
    const Numbers got = host(type, y, count), want = rounded(type, exact);
    for (int i = 0; i < count; i++) {
      if (got[i] != want[i]) printf("%g becomes %g, want %g\n", exact[i].real(), got[i].real(), want[i].real()), wrong++;
    }
  }
}

static void batches(Handle h) {
  const int count = 3;
  const Numbers a = numbers(C32, count * m * k, 4), b = numbers(C32, k * n, 5), c(count * m * n);
  const std::complex<float> alpha(1, 1), beta(0, 0);
  void *da = device(C32, a), *db = device(C32, b), *dc = device(C32, c);
  expect(cublasCgemmStridedBatched(h, N, C, m, n, k, &alpha, da, m, m * k, db, n, 0, &beta, dc, m, m * n, count) == 0, "the status of a strided batch");
  const Numbers got = host(C32, dc, count * m * n);
  for (int i = 0; i < count; i++) {
    const Numbers part(got.begin() + i * m * n, got.begin() + (i + 1) * m * n);
    expect(part == product(a, b, c, N, C, Number(1, 1), 0, i * m * k), "a strided batch", i);
  }
  const Numbers x = numbers(F16, 2 * m * k, 6), y = numbers(F16, 2 * k * n, 7), z = numbers(F16, 2 * m * n, 8);
  __half *dx = (__half *)device(F16, x), *dy = (__half *)device(F16, y), *dz = (__half *)device(F16, z);
  void *pointers[3][2] = {{dx + m * k, dx}, {dy, dy + k * n}, {dz, dz + m * n}}, **arrays;
  CHECK(cudaMalloc(&arrays, sizeof pointers));
  CHECK(cudaMemcpy(arrays, pointers, sizeof pointers, cudaMemcpyHostToDevice));
  const float two = 2, one = 1;
  expect(cublasGemmBatchedEx(h, T, N, m, n, k, &two, arrays, F16, k, arrays + 2, F16, k, &one, arrays + 4, F16, m, 2, kCompute32F, -1) == 0,
         "the status of a batch of pointers");
  const Numbers results = host(F16, dz, 2 * m * n);
  for (int i = 0; i < 2; i++) {
    const Numbers part(results.begin() + i * m * n, results.begin() + (i + 1) * m * n);
    expect(part == rounded(F16, product(x, y, z, T, N, 2, 1, (1 - i) * m * k, i * k * n, i * m * n)), "a batch of pointers", i);
  }
}

static void vectors(Handle h) {
  const Numbers a = numbers(F64, m * n, 1), x = numbers(F64, 2 * m, 2), y = numbers(F64, 3 * m, 3);
  const double alpha = 3, beta = -2;
  for (int op : {N, T}) {  // vectors from their ends
    const int rows = op == N ? m : n, columns = op == N ? n : m;
    const Numbers x_part(x.begin(), x.begin() + 2 * columns - 1), y_part(y.begin(), y.begin() + rows);
    void *da = device(F64, a), *dx = device(F64, x_part), *dy = device(F64, y_part);
    expect(cublasDgemv_v2(h, op, m, n, &alpha, da, m, dx, -2, &beta, dy, -1) == 0, "the status of dgemv from the end", op);
    Numbers want = y_part;
    for (int i = 0; i < rows; i++) {
      Number sum = 0;
      for (int j = 0; j < columns; j++) sum += element(a, op, m, i, j) * x[2 * (columns - 1 - j)];
      want[rows - 1 - i] = alpha * sum + beta * y[rows - 1 - i];
    }
    expect(host(F64, dy, rows) == want, "dgemv from the end", op);
  }
  {
    const Numbers x_part(x.begin(), x.begin() + m), y_part(y.begin(), y.begin() + 3 * n - 2);
    void *da = device(F64, a), *dx = device(F64, x_part), *dy = device(F64, y_part);
    expect(cublasDger_v2(h, m, n, &alpha, dx, -1, dy, -3, da, m) == 0, "the status of dger from the end", 0);
    Numbers want = a;
    for (int i = 0; i < m * n; i++) want[i] += alpha * x[m - 1 - i % m] * y[3 * (n - 1 - i / m)];
    expect(host(F64, da, m * n) == want, "dger from the end", 0);
    expect(cublasDger_v2(h, m, n, &alpha, dx, 0, dy, 1, da, m) == 7, "the status of dger without an increment", 0);
  }
  for (int op : {N, T}) {
    void *da = device(F64, a), *dx = device(F64, x), *dy = device(F64, y);
    expect(cublasDgemv_v2(h, op, m, n, &alpha, da, m, dx, 2, &beta, dy, 3) == 0, "the status of dgemv", op);
    Numbers want = y;
    for (int i = 0; i < (op == N ? m : n); i++) {
      Number sum = 0;
      for (int j = 0; j < (op == N ? n : m); j++) sum += element(a, op, m, i, j) * x[2 * j];
      want[3 * i] = alpha * sum + beta * y[3 * i];
    }
    expect(host(F64, dy, 3 * m) == want, "dgemv", op);
    if (op == T) continue;
    for (bool on_device : {false, true}) {  // where the scalar is
      void *dg = device(F64, a), *scalar = device(F64, {alpha});
      cublasSetPointerMode_v2(h, on_device);
      expect(cublasDger_v2(h, m, n, on_device ? scalar : &alpha, dx, 2, dy, 3, dg, m) == 0, "the status of dger", on_device);
      cublasSetPointerMode_v2(h, 0);
      Numbers sums = a;
      for (int i = 0; i < m * n; i++) sums[i] += alpha * x[2 * (i % m)] * want[3 * (i / m)];
      expect(host(F64, dg, m * n) == sums, "dger", on_device);
    }
  }
  const Numbers u = numbers(C64, 8, 4), v = numbers(C64, 8, 5);
  const Number factor(2, 1);
  void *du = device(C64, u), *dv = device(C64, v);
  Number dot, conjugate, plain = 0, other = 0;
  double norm, sum, squares = 0, sizes = 0;
  int greatest, least;
  cublasZdotu_v2(h, 8, du, 1, dv, -1, &dot);  // a negative increment begins at the end
  cublasZdotc_v2(h, 8, du, 1, dv, 1, &conjugate);
  cublasDznrm2_v2(h, 8, du, 1, &norm);
  cublasDzasum_v2(h, 4, du, 2, &sum);
  cublasIzamax_v2(h, 8, du, 1, &greatest);
  cublasIzamin_v2(h, 8, du, 1, &least);
  auto size = [&](int i) { return fabs(u[i].real()) + fabs(u[i].imag()); };
  int most = 0, fewest = 0;
  for (int i = 0; i < 8; i++) {
    plain += u[i] * v[7 - i], other += std::conj(u[i]) * v[i], squares += std::norm(u[i]);
    if (i % 2 == 0) sizes += size(i);
    if (size(i) > size(most)) most = i;
    if (size(i) < size(fewest)) fewest = i;
  }
  expect(dot == plain && conjugate == other, "dot products");
  expect(fabs(norm - sqrt(squares)) < 1e-12 && sum == sizes && greatest == most + 1 && least == fewest + 1, "norms");
  cublasZaxpy_v2(h, 8, &factor, du, 1, dv, 1);
  cublasZscal_v2(h, 4, &factor, du, 2);
  cublasZswap_v2(h, 8, du, 1, dv, 1);
  Numbers sums = v, scaled = u;
  for (int i = 0; i < 8; i++) sums[i] += factor * u[i], scaled[i] *= i % 2 ? Number(1) : factor;
  expect(host(C64, du, 8) == sums && host(C64, dv, 8) == scaled, "axpy, scal and swap");
  cublasZcopy_v2(h, 8, dv, 1, du, 1);
  expect(host(C64, du, 8) == scaled, "copy");
  const double c = 0.6, s = 0.8;
  void *p = device(F64, {1, 2}), *q = device(F64, {3, 4});
  cublasDrot_v2(h, 2, p, 1, q, 1, &c, &s);
  expect(abs(host(F64, p, 2)[1] - (0.6 * 2 + 0.8 * 4)) < 1e-15 && abs(host(F64, q, 2)[0] - (0.6 * 3 - 0.8 * 1)) < 1e-15, "rot");
}

static void copies() {
  const float from[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};  // 4 rows, 3 columns
  float to[3][2] = {}, line[3] = {}, *d;
  CHECK(cudaMalloc(&d, 3 * 5 * sizeof(float)));
  expect(cublasSetMatrix(4, 3, sizeof(float), from, 4, d, 5) == 0 && cublasGetMatrix(2, 3, sizeof(float), d + 1, 5, to, 2) == 0, "the status of copies");
  expect(to[0][0] == 2 && to[0][1] == 3 && to[2][1] == 11, "matrices");
  expect(cublasGetVector(3, sizeof(float), d, 5, line, 1) == 0 && line[0] == 1 && line[1] == 5 && line[2] == 9, "a row");
  expect(cublasSetVector(2, sizeof(float), line + 1, 1, d, 2) == 0 && cublasGetVector(1, sizeof(float), d + 2, 1, line, 1) == 0 && line[0] == 9, "a vector");
  expect(cublasSetMatrix(4, 3, sizeof(float), from, 3, d, 5) == 7 && !strcmp(cublasGetStatusString(0), "success"), "a matrix that is too narrow");
}

struct Lt {
  Handle h;
  void *d, *a, *b, *c;  // descriptions

  Lt(int type, int out, int op_a, int op_b, int order = 0) {
    cublasLtCreate(&h);
    cublasLtMatmulDescCreate(&d, kCompute32F, F32);
    cublasLtMatrixLayoutCreate(&a, type, op_a == N ? m : k, op_a == N ? k : m, op_a == N ? m : k);
    cublasLtMatrixLayoutCreate(&b, type, op_b == N ? k : n, op_b == N ? n : k, op_b == N ? k : n);
    cublasLtMatrixLayoutCreate(&c, out, m, n, order ? n : m);
    cublasLtMatrixLayoutSetAttribute(c, 1, &order, sizeof order);
    set(3, op_a), set(4, op_b);
  }

  template <class V>
  void set(int attribute, V value) {
    expect(cublasLtMatmulDescSetAttribute(d, attribute, &value, sizeof value) == 0, "an attribute", attribute);
  }

  void run(const void *at_a, const void *at_b, void *at_d) {
    const float one = 1, zero = 0;
    expect(cublasLtMatmul(h, d, &one, at_a, a, at_b, b, &zero, at_d, c, at_d, c, nullptr, nullptr, 0, 0) == 0, "the status of a product");
  }
};

static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

static void descriptions() {
  enum { kEpilogue = 7, kBias = 8, kAux = 11, kAuxLd = 12, kScaleA = 17, kScaleB = 18, kScaleD = 20, kBiasType = 26 };
  enum { kRelu = 2, kAddBias = 4, kDRelu = 8, kGelu = 32, kKeep = 128, kBiasGradient = 512 };
  const Numbers a = numbers(F16, m * k, 1), b = numbers(F16, k * n, 2), bias = numbers(F32, m, 3), sums = product(a, b, Numbers(m * n), T, N, 1, 0);
  void *da = device(F16, a), *db = device(F16, b), *dbias = device(F32, bias), *result = device(F32, Numbers(m * n)), *bits, *gradient = device(F32, Numbers(n));
  CHECK(cudaMalloc(&bits, 128 / 8 * n));
  CHECK(cudaMemset(bits, 0, 128 / 8 * n));

  Lt relu(F16, F32, T, N);
  relu.set(kEpilogue, kRelu | kAddBias | kKeep), relu.set(kBias, dbias), relu.set(kAux, bits), relu.set(kAuxLd, 128ll);
  relu.run(da, db, result);
  Numbers got = host(F32, result, m * n);
  for (int i = 0; i < m * n; i++) expect(got[i].real() == fmax(0, (sums[i] + bias[i % m]).real()), "a bias and ReLU", i);
  Lt slope(F16, F32, T, N);
  slope.set(kEpilogue, (int)kDRelu | kKeep), slope.set(kAux, bits), slope.set(kAuxLd, 128ll);
  slope.run(da, db, result);
  const Numbers masked = host(F32, result, m * n);
  for (int i = 0; i < m * n; i++) expect(masked[i] == (got[i].real() > 0 ? sums[i] : Number(0)), "the gradient of ReLU", i);

  Lt smooth(F16, F32, T, N, 1);  // a result by rows
  smooth.set(kEpilogue, (int)kGelu);
  smooth.run(da, db, result);
  got = host(F32, result, m * n);
  for (int i = 0; i < m * n; i++) expect(fabs(got[i / m + i % m * n].real() - gelu(sums[i].real())) < 1e-5 * (1 + abs(sums[i])), "GELU by rows", i);

  Lt gradients(F16, F32, T, N);
  gradients.set(kEpilogue, (int)kBiasGradient), gradients.set(kBias, gradient), gradients.set(kBiasType, (int)F32);
  gradients.run(da, db, result);
  got = host(F32, gradient, n);
  for (int j = 0; j < n; j++) {
    Number sum = 0;
    for (int q = 0; q < k; q++) sum += b[q + j * k];
    expect(got[j] == sum, "the gradient of a bias", j);
  }

  for (int type : {E4M3, E5M2}) {  // with a scale for each matrix
    void *fa = device(type, a), *fb = device(E4M3, b), *half = device(F32, {0.5}), *four = device(F32, {4}), *fd = device(E4M3, Numbers(m * n));
    Lt eight(type, E4M3, T, N);
    cublasLtMatrixLayoutCreate(&eight.b, E4M3, k, n, k);
    eight.set(kScaleA, half), eight.set(kScaleB, four), eight.set(kScaleD, half);
    eight.run(fa, fb, fd);
    expect(host(E4M3, fd, m * n) == rounded(E4M3, sums), "FP8", type);
  }
}

// factors_of is the product of L and U in one matrix, with the rows that were swapped brought back.
static Numbers factors_of(const Numbers &lu, const int *pivots, int size, int ld) {
  Numbers product(lu.size());
  for (int i = 0; i < size; i++) {
    for (int j = 0; j < size; j++) {
      for (int q = 0; q <= (i < j ? i : j); q++) product[i + j * ld] += (q == i ? 1.0 : lu[i + q * ld]) * lu[q + j * ld];
    }
  }
  for (int i = size - 1; i >= 0 && pivots; i--) {
    for (int j = 0; j < size; j++) std::swap(product[i + j * ld], product[pivots[i] - 1 + j * ld]);
  }
  return product;
}

// LU factors of two matrices, the second of them without an inverse.
static void factors(Handle h) {
  enum { kSize = 3, kLd = 4 };
  for (int type : {F64, C32}) {
    const Number i = type == C32 ? Number(0, 1) : 0;
    const Numbers regular = {0.0, 4.0, 1.0 + i, 0, 1, 5.0 - 2.0 * i, 0, 0, 2, 6, 1.0 * i + 1.0, 0};
    const Numbers singular = {1, 2, 4, 0, 2, 4, 8, 0, 1.0 + i, 1, 1, 0};
    const auto factorise = type == F64 ? cublasDgetrfBatched : cublasCgetrfBatched;
    void *matrices[2] = {device(type, regular), device(type, singular)};
    void **pointers;
    int *pivots, *info, host_pivots[2 * kSize], host_info[2];
    CHECK(cudaMalloc(&pointers, sizeof matrices));
    CHECK(cudaMalloc(&pivots, sizeof host_pivots));
    CHECK(cudaMalloc(&info, sizeof host_info));
    CHECK(cudaMemcpy(pointers, matrices, sizeof matrices, cudaMemcpyHostToDevice));
    expect(factorise(h, kSize, pointers, kLd, pivots, info, 2) == 0, "the status of LU factors", type);
    CHECK(cudaMemcpy(host_pivots, pivots, sizeof host_pivots, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(host_info, info, sizeof host_info, cudaMemcpyDeviceToHost));
    expect(host_info[0] == 0 && host_info[1] == 2, "the pivot that is 0", type, host_info[1]);
    const Numbers back = factors_of(host(type, matrices[0], regular.size()), host_pivots, kSize, kLd);
    double off = 0;
    for (size_t e = 0; e < back.size(); e++) off = std::max(off, std::abs(back[e] - regular[e]));
    expect(off < 1e-5 && host_pivots[0] == 2, "LU factors", type);

    const Numbers plain = {2, 4, 6, 0, 1, 3, 3, 0, 1, 1, 5, 0};  // without pivots
    CHECK(cudaMemcpy(pointers, &(matrices[0] = device(type, plain)), sizeof(void *), cudaMemcpyHostToDevice));
    expect(factorise(h, kSize, pointers, kLd, nullptr, info, 1) == 0, "the status of LU factors without pivots", type);
    expect(factors_of(host(type, matrices[0], plain.size()), nullptr, kSize, kLd) == plain, "LU factors without pivots", type);
  }
  expect(cublasDgetrfBatched(h, 3, nullptr, 2, nullptr, nullptr, 1) != 0, "a leading dimension of LU factors that is too small");
}

// triangle is a triangular matrix: its elements in memory that has only them, and the whole matrix.
struct Triangle {
  void *at;
  Numbers whole;
};

static Triangle triangle(int type, int size, int ld, bool upper, bool unit) {
  Triangle t = {nullptr, Numbers(size * size)};
  const size_t each = bytes_of(type);
  CHECK(cudaMalloc(&t.at, each * ld * size));
  for (int j = 0; j < size; j++) {
    for (int i = 0; i < size; i++) {
      if (i == j && unit) t.whole[i + j * size] = 1;
      if (upper ? i > j : i < j) continue;
      if (i == j && unit) continue;
      const Number v(i == j ? 4 : i + 1 - j * 0.5, type == C32 ? i - j * 0.25 : 0);
      t.whole[i + j * size] = v;
      char bytes[16];
      put(type, bytes, v);
      CHECK(cudaMemcpy((char *)t.at + each * (i + j * ld), bytes, each, cudaMemcpyHostToDevice));
    }
  }
  return t;
}

// Triangular systems from both sides, of both triangles, transposed, with and without a diagonal of ones.
static void triangular(Handle h) {
  enum { kRows = 3, kColumns = 2, kLd = 4 };
  for (int form = 0; form < 48; form++) {
    const int side = form & 1, fill = form >> 1 & 1, unit = form >> 2 & 1, type = form >> 3 & 1 ? C32 : F64, op = form >> 4;
    const int size = side ? kColumns : kRows;
    const Triangle t = triangle(type, size, kLd, fill == 1, unit == 1);
    const Numbers x = numbers(type, kRows * kColumns, 7);
    Numbers b(kRows * kColumns);
    const Number alpha = 2;
    for (int i = 0; i < kRows; i++) {
      for (int j = 0; j < kColumns; j++) {
        for (int q = 0; q < size; q++) {
          const int row = side ? q : i, column = side ? j : q;
          Number a = op == N ? t.whole[row + column * size] : t.whole[column + row * size];
          if (op == C) a = std::conj(a);
          b[i + j * kRows] += a * (side ? x[i + q * kRows] : x[q + j * kRows]) / alpha;
        }
      }
    }
    char factor[16];
    put(type, factor, alpha);
    void *solutions[3] = {device(type, b), device(type, b), device(type, b)}, *both[2] = {t.at, t.at}, **pointers;
    CHECK(cudaMalloc(&pointers, 4 * sizeof(void *)));
    CHECK(cudaMemcpy(pointers, both, sizeof both, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(pointers + 2, solutions + 1, sizeof both, cudaMemcpyHostToDevice));
    const auto one = type == F64 ? cublasDtrsm_v2 : cublasCtrsm_v2;
    const auto batched = type == F64 ? cublasDtrsmBatched : cublasCtrsmBatched;
    expect(one(h, side, fill, op, unit, kRows, kColumns, factor, t.at, kLd, solutions[0], kRows) == 0, "the status of trsm", form);
    expect(batched(h, side, fill, op, unit, kRows, kColumns, factor, pointers, kLd, pointers + 2, kRows, 2) == 0, "the status of trsmBatched", form);
    for (int i = 0; i < 3; i++) {
      const Numbers got = host(type, solutions[i], x.size());
      double off = 0;
      for (size_t e = 0; e < x.size(); e++) off = std::max(off, std::abs(got[e] - x[e]));
      expect(off < 1e-4, "a triangular system", form, i);
    }
  }
  expect(cublasDtrsm_v2(h, 0, 0, N, 0, 3, 2, nullptr, nullptr, 2, nullptr, 3) != 0, "a leading dimension of a triangle that is too small");
}

// A product of matrices in the memory of the host, and of one on the device.
static void host_product() {
  Handle h;
  const int devices[] = {0, 1};
  int block;
  expect(cublasXtCreate(&h) == 0 && cublasXtDeviceSelect(h, 1, devices) == 0, "cublasXtCreate");
  expect(cublasXtDeviceSelect(h, 2, devices) != 0, "a second device");
  expect(cublasXtSetBlockDim(h, 64) == 0 && cublasXtGetBlockDim(h, &block) == 0 && block == 64, "the size of blocks");
  const Numbers a = numbers(C64, m * k, 1), b = numbers(C64, k * n, 2), c = numbers(C64, m * n, 3);
  Numbers result = c;
  const Number alpha = 2, beta = 1;
  const void *on_device = device(C64, b);
  expect(cublasXtZgemm(h, N, N, m, n, k, &alpha, a.data(), m, on_device, k, &beta, result.data(), m) == 0, "the status of cublasXtZgemm");
  expect(result == product(a, b, c, N, N, 2, 1), "cublasXtZgemm");
  expect(cublasXtDestroy(h) == 0, "cublasXtDestroy");
}

// A product in a graph.
static void captured(Handle h) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  const Numbers a = numbers(F32, m * k, 1), b = numbers(F32, k * n, 2), c = numbers(F32, m * n, 3);
  void *da = device(F32, a), *db = device(F32, b), *dc = device(F32, c);
  const float one = 1;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cublasSetStream_v2(h, stream);
  expect(cublasSgemm_v2(h, N, N, m, n, k, &one, da, m, db, k, &one, dc, m) == 0, "the status of a product in a capture");
  cublasSetStream_v2(h, nullptr);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  expect(host(F32, dc, m * n) == c, "a product before its graph");
  for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect(host(F32, dc, m * n) == product(a, b, product(a, b, c, N, N, 1, 1), N, N, 1, 1), "a product in a graph");
}

int main(int count, char **) {
  Handle h;
  expect(cublasCreate_v2(&h) == 0, "cublasCreate");
  types(h);
  small(h);
  batches(h);
  vectors(h);
  copies();
  descriptions();
  captured(h);
  factors(h);
  triangular(h);
  host_product();
  if (count > 1) {  // a scalar on the device that nothing has set, and an array of pointers that is too short
    void *x = device(F32, {1, 2, 3, 4}), *unset, **one_pointer;
    CHECK(cudaMalloc(&unset, sizeof(float)));
    CHECK(cudaMalloc(&one_pointer, sizeof(void *)));
    CHECK(cudaMemcpy(one_pointer, &x, sizeof x, cudaMemcpyHostToDevice));
    cublasSetPointerMode_v2(h, 1);
    cublasSgemm_v2(h, N, N, 2, 2, 2, unset, x, 2, x, 2, x, x, 2);
    cublasSetPointerMode_v2(h, 0);
    const float one = 1;
    cublasGemmBatchedEx(h, N, N, 1, 1, 1, &one, one_pointer, F32, 1, one_pointer, F32, 1, &one, one_pointer, F32, 1, 2, kCompute32F, -1);
  }
  cublasDestroy_v2(h);
  if (wrong == 0) printf("ok\n");
  return wrong != 0;
}
