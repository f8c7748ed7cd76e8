// Libraries that the host computes: cuBLAS and NVRTC. Prints "ok" if all results are right. It has the
// declarations that it needs: nvcc alone comes without the headers.
#include <cuda.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" {
int cublasCreate_v2(void **);
int cublasSetPointerMode_v2(void *, int);
int cublasSgemm_v2(void *, int, int, int, int, int, const float *, const float *, int, const float *, int, const float *, float *, int);
int cublasGemmStridedBatchedEx(void *, int, int, int, int, int, const void *, const void *, int, int, long long, const void *, int, int,
                               long long, const void *, void *, int, int, long long, int, int, int);
int cublasSdot_v2(void *, int, const float *, int, const float *, int, float *);
int cublasIsamax_v2(void *, int, const float *, int, int *);
int cublasSsyrk_v2(void *);
int nvrtcCreateProgram(void **, const char *, const char *, int, const char *const *, const char *const *);
int nvrtcAddNameExpression(void *, const char *);
int nvrtcCompileProgram(void *, int, const char *const *);
int nvrtcGetLoweredName(void *, const char *, const char **);
int nvrtcGetPTXSize(void *, size_t *);
int nvrtcGetPTX(void *, char *);
int nvrtcGetProgramLogSize(void *, size_t *);
int nvrtcGetProgramLog(void *, char *);
}

static int wrong;

static void expect(bool right, const char *what) {
  if (!right) printf("%s is wrong\n", what), wrong++;
}

static float *device(const std::vector<float> &values) {
  float *p;
  cudaMalloc(&p, values.size() * sizeof(float));
  cudaMemcpy(p, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice);
  return p;
}

// products checks transposed products against their definition.
static void products(void *handle) {
  const int m = 37, n = 6, k = 21;
  std::vector<float> a(m * k), b(k * n), c(m * n, 1);
  for (int i = 0; i < m * k; i++) a[i] = (float)(i % 7) - 3;
  for (int i = 0; i < k * n; i++) b[i] = (float)(i % 5) - 2;
  float *da = device(a), *db = device(b), *dc = device(c);
  const float alpha = 2, beta = 1;
  for (int op = 0; op < 4; op++) {
    const bool ta = op & 1, tb = op & 2;
    cudaMemcpy(dc, c.data(), c.size() * 4, cudaMemcpyHostToDevice);
    expect(cublasSgemm_v2(handle, ta, tb, m, n, k, &alpha, da, ta ? k : m, db, tb ? n : k, &beta, dc, m) == 0, "the status of sgemm");
    std::vector<float> got(m * n);
    cudaMemcpy(got.data(), dc, got.size() * 4, cudaMemcpyDeviceToHost);
    for (int i = 0; i < m; i++) {
      for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int q = 0; q < k; q++) sum += (ta ? a[q + i * k] : a[i + q * m]) * (tb ? b[j + q * n] : b[q + j * k]);
        if (got[i + j * m] != 2 * sum + 1) expect(false, "sgemm");
      }
    }
  }
}

static void others(void *handle) {
  float *x = device({3, -7, 2, 5}), dot = 0;
  int largest = 0;
  expect(cublasSdot_v2(handle, 4, x, 1, x, 1, &dot) == 0 && dot == 87, "sdot");
  expect(cublasIsamax_v2(handle, 4, x, 1, &largest) == 0 && largest == 2, "isamax");
  float *scalars = device({2, 0}), *y = device({0, 0, 0, 0});
  cublasSetPointerMode_v2(handle, 1);  // a strided batch of 1x1 products with scalars on the device
  expect(cublasGemmStridedBatchedEx(handle, 0, 0, 1, 1, 1, scalars, x, 0, 1, 1, x, 0, 1, 1, scalars + 1, y, 0, 1, 1, 4, 68, -1) == 0, "the status of a batch");
  cublasSetPointerMode_v2(handle, 0);
  float squares[4];
  cudaMemcpy(squares, y, sizeof squares, cudaMemcpyDeviceToHost);
  expect(squares[0] == 18 && squares[1] == 98 && squares[3] == 50, "a batch");
}

static void compile() {
  const char *source =
      "#include \"factor.h\"\n"
      "template <class T> __global__ void scale(T *p) { p[threadIdx.x] *= FACTOR; }\n";
  const char *headers[] = {"#define FACTOR (3 + MORE)\n"}, *names[] = {"factor.h"}, *options[] = {"--gpu-architecture=sm_90", "-DMORE=1"};
  void *program;
  nvrtcCreateProgram(&program, source, "scale.cu", 1, headers, names);
  nvrtcAddNameExpression(program, "scale<float>");
  if (nvrtcCompileProgram(program, 2, options) != 0) {
    size_t bytes;
    nvrtcGetProgramLogSize(program, &bytes);
    std::string log(bytes, 0);
    nvrtcGetProgramLog(program, &log[0]);
    printf("%s\n", log.c_str());
    expect(false, "the compilation");
    return;
  }
  const char *lowered;
  size_t bytes;
  expect(nvrtcGetLoweredName(program, "scale<float>", &lowered) == 0 && strcmp(lowered, "_Z5scaleIfEvPT_") == 0, "the lowered name");
  nvrtcGetPTXSize(program, &bytes);
  std::string ptx(bytes, 0);
  nvrtcGetPTX(program, &ptx[0]);
  CUmodule module;
  CUfunction function;
  expect(cuModuleLoadData(&module, ptx.data()) == CUDA_SUCCESS && cuModuleGetFunction(&function, module, lowered) == CUDA_SUCCESS, "the module");
  float *x = device({1, 2}), got[2];
  void *arguments[] = {&x};
  cuLaunchKernel(function, 1, 1, 1, 2, 1, 1, 0, nullptr, arguments, nullptr);
  cudaMemcpy(got, x, sizeof got, cudaMemcpyDeviceToHost);
  expect(got[0] == 4 && got[1] == 8, "the compiled kernel");
}

int main(int count, char **) {
  void *handle;
  expect(cublasCreate_v2(&handle) == 0, "cublasCreate");
  products(handle);
  others(handle);
  compile();
  if (count > 1) {  // defects, and a function that there is not
    float *a = device({1, 2, 3}), *unset, one = 1, zero = 0;
    cudaMalloc(&unset, 64);
    cublasSgemm_v2(handle, 0, 0, 2, 2, 2, &one, a, 2, a, 2, &zero, a, 2);
    cublasSgemm_v2(handle, 0, 0, 1, 1, 1, &one, unset, 1, a, 1, &zero, a, 1);
    cublasSsyrk_v2(handle);
  }
  if (wrong == 0) printf("ok\n");
  return wrong;
}
