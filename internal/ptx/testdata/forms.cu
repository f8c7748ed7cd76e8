// Source of forms.ptx, the PTX forms that nvcc prints: nvcc -ptx -lineinfo -arch=sm_90a forms.cu
#include <cstdio>

__constant__ float table[8] = {1.5f, 2.f, 3.f};
__constant__ int grid[2][3] = {{1, 2}, {3}};
__device__ int counter = 7;
__device__ int array[100];

__device__ __forceinline__ int twice(int x) { return x * array[x]; }
__device__ __forceinline__ int four(int x) {
  return twice(x) - twice(x + 1);
}
__device__ __noinline__ void keep(int x) { array[x] = x; }
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int mul(int a, int b) { return a * b; }
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

struct Record {
  int a;
  int *p;
  char c;
  int *q;
  void (*f)(int);
};
__device__ Record record = {1, &counter, 'x', array + 4, keep};

struct __attribute__((packed)) Packed {
  char c;
  int *p;
  short s;
  int *q;
};
__device__ Packed packed = {1, &counter, 3, &counter + 1};

__device__ double doubles[2] = {1.25, -3e100};
typedef int (*Operation)(int, int);
__device__ Operation operations[2] = {add, mul};

struct Large {
  int x[17];
  double d;
};
__device__ __noinline__ Large change(Large large, float4 v) {
  large.x[3] += (int)v.x;
  return large;
}

extern "C" __global__ void print(int n) {
  printf("%d %d\n", n, n + 1);
}

extern "C" __global__ void __launch_bounds__(128, 2) indirect(int *out, int n) {
  out[0] = operations[n](out[1], out[2]);
  record.f(n);
  out[4] = four(n);
  out[3] = fib(n) + packed.c + *packed.p + *record.q;
}

extern "C" __global__ void by_value(Large large, int *out, const __grid_constant__ Large constant) {
  Large result = change(large, make_float4(1, 2, 3, 4));
  out[0] = result.x[5] + constant.x[threadIdx.x];
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) scopes(unsigned *out) {
  asm volatile(
      "{\n .reg .pred p;\n .reg .b32 t<3>; setp.eq.u32 p, %0, 0;\n AGAIN: @p bra DONE;\n add.u32 %0, %0, 1;\n"
      " mov.b32 t1, %0; { .reg .b64 t1; cvt.u64.u32 t1, %0; }\n bra.uni AGAIN;\n DONE:\n }"
      : "+r"(out[0]));
  asm volatile("{\n .reg .pred p;\n setp.eq.u32 p, %0, 0;\n AGAIN: @p bra DONE;\n bra.uni AGAIN;\n DONE:\n }" : "+r"(out[1]));
  extern __shared__ int dynamic[];
  __shared__ float tile[4][5];
  tile[1][threadIdx.x] = out[4];
  dynamic[3] = out[5];
  __syncthreads();
  out[6] = tile[1][2] + dynamic[0] + table[threadIdx.x] + grid[1][threadIdx.x] + (float)doubles[out[7]];
  alignas(16) int local[20];
  for (int i = 0; i < 20; i++) local[i] = out[i];
  out[0] = local[out[3]];
}
