// Defects of kernels and of calls: the argument says which. A comment on a line has the argument and
// the finding that there is. Prints the errors that the program gets.
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>

__device__ int table[8];
__device__ unsigned failed;

__global__ void global_race(int *p) {
  p[0] = blockIdx.x;  // global-race: race
}

__device__ __noinline__ void store(int *p, int i, int value) {
  p[i] = value;  // global: out-of-bounds; freed: out-of-bounds; null: out-of-bounds; misaligned: misaligned
}

__global__ void write_at(int *p, int i) { store(p, i, 1); }

__global__ void behind_shared(int *out) {
  __shared__ int tile[32];
  tile[threadIdx.x + 1] = 1;  // shared: out-of-bounds
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // shared: uninitialized
}

__global__ void behind_dynamic(int *out) {
  extern __shared__ int tile[];
  tile[threadIdx.x] = 1;  // dynamic: out-of-bounds
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void behind_symbol(int i) {
  table[i] = 1;  // symbol: out-of-bounds
}

__global__ void check_all(const int *p, int n) {
  int i = threadIdx.x;
  assert(i < n && "too many threads");  // assert: assert
}

__global__ void stop(int *p) {
  failed = 7;
  if (p[threadIdx.x] == 0) asm("trap;");  // trap: trap
}

__global__ void copy_one(int *to, const int *from) {
  to[threadIdx.x] = from[threadIdx.x] + 1;  // uninitialized: uninitialized
}

__global__ void halves(int *out) {
  if (threadIdx.x < 16) __syncthreads();  // barrier: divergent-barrier
  out[threadIdx.x] = 1;
}

__global__ void wait_for(volatile int *flag) {
  while (*flag == 0) {}  // hang: deadlock
}

static const char *name(cudaError_t e) { return cudaGetErrorName(e); }

int main(int, char **argv) {
  const char *what = argv[1];
  auto is = [&](const char *w) { return !strcmp(what, w); };
  int *p, *unset, host[64] = {};
  cudaMalloc(&p, 64 * sizeof(int));
  cudaMemset(p, 0, 64 * sizeof(int));
  cudaMalloc(&unset, 64 * sizeof(int));
  if (is("global-race")) global_race<<<2, 1>>>(p);
  if (is("global")) write_at<<<1, 1>>>(p, 64);
  if (is("freed")) cudaFree(p), write_at<<<1, 1>>>(p, 0);
  if (is("null")) write_at<<<1, 1>>>(nullptr, 0);
  if (is("misaligned")) write_at<<<1, 1>>>((int *)((char *)p + 2), 0);
  if (is("shared")) behind_shared<<<1, 32>>>(p);
  if (is("dynamic")) behind_dynamic<<<1, 32, 31 * sizeof(int)>>>(p);
  if (is("symbol")) behind_symbol<<<1, 1>>>(8);
  if (is("assert")) check_all<<<1, 32>>>(p, 31);
  if (is("trap")) stop<<<1, 32>>>(p);
  if (is("uninitialized")) copy_one<<<1, 32>>>(p, unset);
  if (is("barrier")) halves<<<1, 64>>>(p);
  if (is("hang")) wait_for<<<1, 1>>>(p);
  printf("%s, ", name(cudaGetLastError()));
  if (is("calls")) {  // none of these reaches a kernel
    write_at<<<0, 32>>>(p, 0);
    printf("%s, ", name(cudaPeekAtLastError()));
    printf("%s, ", name(cudaGetLastError()));
    printf("%s, ", name(cudaMemcpy(host, p, 65 * sizeof(int), cudaMemcpyDeviceToHost)));
    printf("%s, ", name(cudaMemset(p + 60, 0, 5 * sizeof(int))));
    printf("%s, ", name(cudaFree(p + 1)));
    printf("%s, ", name(cudaMalloc(&unset, (size_t)1 << 50)));
    printf("%s, ", name(cudaSetDevice(7)));
    printf("%s, ", name(cudaEventQuery(nullptr)));
    cudaGetLastError();
  }
  const cudaError_t ended = cudaDeviceSynchronize();
  printf("%s, ", name(ended));
  printf("%s, ", name(cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost)));
  printf("%s, ", name(cudaMalloc(&unset, 4)));
  printf("%s\n", name(cudaGetLastError()));
  return ended == cudaSuccess ? 0 : 3;
}
