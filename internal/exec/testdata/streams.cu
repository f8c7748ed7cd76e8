// Order in streams: copies, kernels, functions of the host, events, pools and symbols, as applications
// mix them. Prints "ok" if all results are right.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "check.cuh"

static int wrong;

static void expect(bool right, const char *what) {
  if (!right) printf("%s: wrong\n", what), wrong++;
}

__global__ void scale_add(int *p, int n, int factor, int term) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = p[i] * factor + term;
}

static const int n = 300;

// pinned copies in and out of three streams, whose work depends on each other by events.
static void streams_and_events() {
  cudaStream_t in, work, out;
  cudaEvent_t ready, done;
  int least, greatest;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(cudaStreamCreateWithPriority(&in, cudaStreamNonBlocking, greatest));
  CHECK(cudaStreamCreate(&work));
  CHECK(cudaStreamCreate(&out));
  CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&done));
  expect(cudaEventQuery(ready) == cudaSuccess, "an event that was never recorded");
  int *from, *to, *p;
  CHECK(cudaHostAlloc(&from, n * sizeof(int), cudaHostAllocPortable | cudaHostAllocMapped));
  CHECK(cudaMallocHost(&to, n * sizeof(int)));
  CHECK(cudaMalloc(&p, n * sizeof(int)));
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < n; i++) from[i] = i + round;
    CHECK(cudaMemcpyAsync(p, from, n * sizeof(int), cudaMemcpyDefault, in));
    CHECK(cudaEventRecord(ready, in));
    CHECK(cudaStreamWaitEvent(work, ready, 0));
    scale_add<<<2, 64, 0, work>>>(p, n, 2, 0);
    scale_add<<<2, 64, 0, work>>>(p, n, 1, 5);
    CHECK(cudaEventRecord(done, work));
    CHECK(cudaStreamWaitEvent(out, done, 0));
    CHECK(cudaMemcpyAsync(to, p, n * sizeof(int), cudaMemcpyDeviceToHost, out));
    CHECK(cudaStreamSynchronize(out));
    expect(cudaStreamQuery(out) == cudaSuccess && cudaEventQuery(done) == cudaSuccess, "a query after a synchronisation");
    for (int i = 0; i < n; i++) expect(to[i] == 2 * (i + round) + 5, "a copy of a stream");
  }
  int priority = 1;
  unsigned flags = 0;
  CHECK(cudaStreamGetPriority(in, &priority));
  CHECK(cudaStreamGetFlags(in, &flags));
  expect(priority == greatest && flags == cudaStreamNonBlocking, "what a stream is");
  float milliseconds = 0;
  expect(cudaEventElapsedTime(&milliseconds, ready, done) == cudaErrorInvalidResourceHandle, "the time of an event without timing");
  cudaGetLastError();
  int *mapped;
  CHECK(cudaHostGetDevicePointer(&mapped, from, 0));
  scale_add<<<1, 32, 0, cudaStreamPerThread>>>(mapped, n, 0, 7);
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  expect(from[0] == 7 && from[n - 1] == 7, "mapped memory");
  expect(cudaFree(from) == cudaErrorInvalidValue && cudaFreeHost(p) == cudaErrorInvalidValue, "memory that another call frees");
  cudaGetLastError();
  CHECK(cudaFree(p));
  CHECK(cudaFreeHost(from));
  CHECK(cudaFreeHost(to));
  for (cudaStream_t s : {in, work, out}) CHECK(cudaStreamDestroy(s));
  CHECK(cudaEventDestroy(ready));
  CHECK(cudaEventDestroy(done));
}

static std::string order;

static void note(void *text) { order += (const char *)text; }
static void callback(cudaStream_t, cudaError_t status, void *text) { order += status == cudaSuccess ? (const char *)text : "!"; }

static void host_functions() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  int *p, got = 0;
  CHECK(cudaMalloc(&p, sizeof(int)));
  CHECK(cudaMemsetAsync(p, 0, sizeof(int), stream));
  CHECK(cudaLaunchHostFunc(stream, note, (void *)"a"));
  scale_add<<<1, 1, 0, stream>>>(p, 1, 1, 3);
  CHECK(cudaStreamAddCallback(stream, callback, (void *)"b", 0));
  CHECK(cudaMemcpyAsync(&got, p, sizeof got, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaLaunchHostFunc(stream, note, (void *)"c"));
  CHECK(cudaStreamSynchronize(stream));
  expect(order == "abc" && got == 3, "functions of the host");
  CHECK(cudaFree(p));
}

// used checks the counters of a pool: the bytes used now, and those used at most.
static void used(cudaMemPool_t pool, unsigned long long now, unsigned long long most) {
  unsigned long long got[4] = {1, 1, 1, 1};
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, got));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, got + 1));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, got + 2));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, got + 3));
  expect(got[0] == now && got[1] == now && got[2] == most && got[3] == most, "the counters of a pool");
}

static void current_pool(cudaMemPool_t standard, cudaMemPool_t own, cudaStream_t stream) {
  cudaMemPool_t current;
  int *p;
  CHECK(cudaDeviceSetMemPool(0, own));
  CHECK(cudaDeviceGetMemPool(&current, 0));
  expect(current == own, "the pool of the device");
  unsigned long long zero = 0;
  CHECK(cudaMemPoolSetAttribute(own, cudaMemPoolAttrUsedMemHigh, &zero));
  used(own, 0, 0);
  CHECK(cudaMallocAsync(&p, 64, stream));
  used(own, 64, 64);
  CHECK(cudaFree(p));
  used(own, 0, 64);
  used(standard, 0, 16);
  CHECK(cudaDeviceSetMemPool(0, standard));
}

static void pools() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaMemPool_t standard, own;
  CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
  unsigned long long keep = ~0ull, kept = 0;
  CHECK(cudaMemPoolSetAttribute(standard, cudaMemPoolAttrReleaseThreshold, &keep));
  CHECK(cudaMemPoolGetAttribute(standard, cudaMemPoolAttrReleaseThreshold, &kept));
  expect(kept == keep, "an attribute of a pool");
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  CHECK(cudaMemPoolCreate(&own, &properties));
  for (int i = 0; i < 3; i++) {
    int *a, *b, got[2];
    CHECK(cudaMallocAsync(&a, 4 * sizeof(int), stream));
    CHECK(cudaMallocFromPoolAsync(&b, 4 * sizeof(int), own, stream));
    used(own, 16, 16);
    CHECK(cudaMemsetAsync(a, 0, 4 * sizeof(int), stream));
    scale_add<<<1, 4, 0, stream>>>(a, 4, 1, i);
    CHECK(cudaMemcpyAsync(b, a, 4 * sizeof(int), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemcpyAsync(got, b + 2, sizeof got, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(a, stream));
    CHECK(cudaFreeAsync(b, stream));
    CHECK(cudaStreamSynchronize(stream));
    expect(got[0] == i && got[1] == i, "memory of a pool");
  }
  used(own, 0, 16);
  current_pool(standard, own, stream);
  CHECK(cudaMemPoolTrimTo(own, 0));
  CHECK(cudaMemPoolDestroy(own));
  CHECK(cudaStreamDestroy(stream));
}

struct Settings {
  int factors[3];
  float offset;
};

__constant__ Settings settings;
__constant__ short preset[3] = {7, 8, 9};
__device__ double results[4];
__device__ int *target;
__device__ volatile unsigned char flags[3] = {1, 2, 3};

__global__ void use_symbols() {
  results[threadIdx.x] = settings.factors[threadIdx.x % 3] * preset[threadIdx.x % 3] + settings.offset;
  target[threadIdx.x] = flags[threadIdx.x % 3];
}

static void symbols() {
  Settings s = {{2, 3, 4}, 0.5f};
  CHECK(cudaMemcpyToSymbol(settings, &s, sizeof s));
  const int five = 5;
  CHECK(cudaMemcpyToSymbolAsync(settings, &five, sizeof five, 2 * sizeof(int), cudaMemcpyHostToDevice, 0));  // factors[2]
  int *p, got[4];
  CHECK(cudaMalloc(&p, sizeof got));
  CHECK(cudaMemcpyToSymbol(target, &p, sizeof p));
  use_symbols<<<1, 4>>>();
  double values[4], last = 0, *address;
  size_t bytes = 0;
  CHECK(cudaMemcpyFromSymbol(values, results, sizeof values));
  CHECK(cudaMemcpyFromSymbol(&last, results, sizeof last, 3 * sizeof last));
  CHECK(cudaGetSymbolAddress((void **)&address, results));
  CHECK(cudaGetSymbolSize(&bytes, results));
  expect(values[0] == 14.5 && values[1] == 24.5 && values[2] == 45.5 && last == 14.5 && bytes == sizeof values, "symbols");
  CHECK(cudaMemcpy(&last, address + 1, sizeof last, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(got, p, sizeof got, cudaMemcpyDeviceToHost));
  expect(last == 24.5 && got[0] == 1 && got[2] == 3 && got[3] == 1, "a pointer in a symbol");
  expect(cudaMemcpyToSymbol(results, values, sizeof values, 8) != cudaSuccess, "a copy behind a symbol");
  expect(cudaGetSymbolAddress((void **)&address, &five) != cudaSuccess && cudaGetLastError() == cudaErrorInvalidSymbol, "no symbol");
  CHECK(cudaFree(p));
}

struct List {
  int value;
  List *next;
};

__global__ void sum_list(const List *head, int *sum) {
  for (const List *l = head; l; l = l->next) *sum += l->value;
}

// managed memory, with pointers that the host has made.
static void managed() {
  List *head = nullptr;
  int *sum;
  for (int i = 0; i < 10; i++) {
    List *l;
    CHECK(cudaMallocManaged(&l, sizeof *l));
    *l = {i, head};
    head = l;
  }
  CHECK(cudaMallocManaged(&sum, sizeof *sum, cudaMemAttachGlobal));
  *sum = 0;
  for (int i = 0; i < 3; i++) {
    sum_list<<<1, 1>>>(head, sum);
    CHECK(cudaDeviceSynchronize());
    expect(*sum == 45 + i, "managed memory");
    *sum = i + 1;  // the host writes between launches
  }
  CHECK(cudaMemAdvise(sum, sizeof *sum, cudaMemAdviseSetReadMostly, cudaMemLocation{cudaMemLocationTypeDevice, 0}));
  CHECK(cudaMemPrefetchAsync(sum, sizeof *sum, cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, 0));
  cudaPointerAttributes a;
  CHECK(cudaPointerGetAttributes(&a, sum));
  expect(a.type == cudaMemoryTypeManaged && a.hostPointer == sum && a.devicePointer == sum, "the attributes of managed memory");
}

__global__ void formats() {
  const char *text = "text";
  printf("[%d] [%5d] [%-5d] [%05d] [%+d] [%u] [%x] [%#X] [%o]\n", -7, 42, 42, 42, 42, 4000000000u, 255, 255, 8);
  printf("[%ld] [%lld] [%llu] [%zu] [%hd] [%hhu]\n", -5l, 1ll << 40, ~0ull, sizeof(double), (short)-3, (unsigned char)200);
  printf("[%f] [%.2f] [%10.3e] [%g] [%G] [%E]\n", 1.5, 3.14159f, 12345.678, 1e-7, 1e20, -1.0);
  printf("[%c] [%s] [%8s] [%-8s] [%.2s] [%%] [%p]\n", 'x', text, text, text, text, (void *)0x1234);
  printf("no arguments\n");
}

static void output() {
  formats<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
}

__global__ void __launch_bounds__(128, 2) bounded(float *p) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

static void occupancy() {
  int blocks = 0, least = 0, size = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 128, 0));
  expect(blocks == 16, "blocks of 128 threads");
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, bounded, 128, 40 << 10));
  expect(blocks == 5, "blocks with 40 KiB of shared memory");
  CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &size, bounded));
  expect(size == 128 && least == 132 * 16, "the block size for a bounded kernel");
  CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &size, scale_add));
  expect(size == 1024 && least == 264, "the block size");
  size_t bytes = 0;
  CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, bounded, 2, 128));
  expect(bytes >= 48 << 10, "the shared memory that two blocks leave");
  cudaFuncAttributes a;
  CHECK(cudaFuncGetAttributes(&a, bounded));
  expect(a.maxThreadsPerBlock == 128 && a.sharedSizeBytes == 0 && a.maxDynamicSharedSizeBytes == 48 << 10, "the attributes of a kernel");
  float *p;
  CHECK(cudaMalloc(&p, 256 * sizeof(float)));
  CHECK(cudaMemset(p, 0, 256 * sizeof(float)));
  bounded<<<1, 256, 1024>>>(p);  // more threads than the kernel is compiled for
  expect(cudaPeekAtLastError() == cudaErrorLaunchOutOfResources || cudaPeekAtLastError() == cudaErrorInvalidValue, "a block that is too large");
  cudaGetLastError();
  bounded<<<1, 128, 1024>>>(p);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  expect(cudaFuncSetAttribute(bounded, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 << 10) != cudaSuccess, "300 KiB of shared memory");
  cudaGetLastError();
}

int main() {
  streams_and_events();
  host_functions();
  pools();
  symbols();
  managed();
  output();
  occupancy();
  if (wrong == 0) printf("ok\n");
  return wrong != 0;
}
