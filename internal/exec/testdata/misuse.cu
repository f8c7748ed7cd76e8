// Calls that the driver refuses. Prints "ok" if it refuses them all.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "check.cuh"

__global__ void add(int *p, int n) { p[0] += n; }

static int *memory;

static void refused(const char *what, cudaError_t status, cudaError_t want) {
  cudaGetLastError();
  if (status == want) return;
  printf("%s: %s\n", what, cudaGetErrorName(status));
  exit(1);
}

// The memory of handles that are destroyed holds something else.
static void reuse() {
  for (int i = 0; i < 200; i++) memset(malloc(16 + i), 0x5a, 16 + i);
}

static void destroyed() {
  cudaStream_t s;
  cudaEvent_t event;
  cudaGraph_t g;
  cudaGraphExec_t x, other;
  CHECK(cudaStreamCreate(&s));
  CHECK(cudaEventCreate(&event));
  CHECK(cudaGraphCreate(&g, 0));
  CHECK(cudaGraphInstantiate(&x, g, 0));
  CHECK(cudaGraphExecDestroy(x));
  CHECK(cudaGraphDestroy(g));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(s));
  reuse();
  const cudaError_t bad = cudaErrorInvalidResourceHandle;
  add<<<1, 1, 0, s>>>(memory, 1);
  refused("launch", cudaGetLastError(), bad);
  refused("copy", cudaMemcpyAsync(memory, memory + 1, 4, cudaMemcpyDeviceToDevice, s), bad);
  refused("fill", cudaMemsetAsync(memory, 0, 4, s), bad);
  refused("host function", cudaLaunchHostFunc(s, nullptr, nullptr), bad);
  refused("synchronise", cudaStreamSynchronize(s), bad);
  refused("capture", cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), bad);
  refused("allocate", cudaMallocAsync(&memory, 4, s), bad);
  refused("destroy", cudaStreamDestroy(s), bad);
  refused("wait", cudaStreamWaitEvent(nullptr, event, 0), bad);
  refused("record", cudaEventRecord(event, nullptr), bad);
  refused("event", cudaEventSynchronize(event), bad);
  refused("destroy event", cudaEventDestroy(event), bad);
  refused("instantiate", cudaGraphInstantiate(&other, g, 0), cudaErrorInvalidValue);
  refused("destroy graph", cudaGraphDestroy(g), cudaErrorInvalidValue);
  refused("launch graph", cudaGraphLaunch(x, nullptr), cudaErrorInvalidValue);
  refused("destroy executable graph", cudaGraphExecDestroy(x), cudaErrorInvalidValue);
}

static void many_handles() {
  cudaEvent_t kept, event;
  CHECK(cudaEventCreate(&kept));
  for (int i = 0; i < 1000; i++) {
    CHECK(cudaEventCreate(&event));
    if (i % 3 > 0) CHECK(cudaEventDestroy(event));
  }
  CHECK(cudaEventRecord(kept, nullptr));
}

static void calls_cuda(void *status) {
  int *p;
  *(cudaError_t *)status = cudaMalloc(&p, 4);
}

static void throws(void *) { throw 5; }

static void functions() {
  cudaError_t inside = cudaSuccess;
  CHECK(cudaLaunchHostFunc(nullptr, calls_cuda, &inside));
  refused("a call in a host function", inside, cudaErrorNotPermitted);
  try {
    cudaLaunchHostFunc(nullptr, throws, nullptr);
    exit(2);
  } catch (int) {
  }
  CHECK(cudaDeviceSynchronize());
  void *args[] = {&memory, nullptr};
  refused("no argument", cudaLaunchKernel((const void *)add, 1, 1, args, 0, nullptr), cudaErrorInvalidValue);
  refused("no kernel", cudaLaunchKernel((const void *)reuse, 1, 1, args, 0, nullptr), cudaErrorInvalidDeviceFunction);
  cudaFuncAttributes a;
  refused("attributes", cudaFuncGetAttributes(&a, (const void *)reuse), cudaErrorInvalidDeviceFunction);
}

static void sizes() {
  void *p;
  size_t pitch;
  cudaArray_t array;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
  refused("pitch", cudaMallocPitch(&p, &pitch, 1ull << 40, 1ull << 40), cudaErrorMemoryAllocation);
  refused("array", cudaMallocArray(&array, &format, 1ull << 32, 1ull << 32), cudaErrorInvalidValue);
  refused("fill", cudaMemset2D(memory, 0, 0, 4, 1ull << 60), cudaErrorInvalidValue);
}

static void pinned() {
  int host[4];
  void *device;
  refused("not pinned", cudaHostGetDevicePointer(&device, host, 0), cudaErrorInvalidValue);
  refused("on the device", cudaHostGetDevicePointer(&device, memory, 0), cudaErrorInvalidValue);
  int *p;
  unsigned flags;
  CHECK(cudaHostAlloc(&p, 16, cudaHostAllocMapped));
  CHECK(cudaHostGetDevicePointer(&device, p, 0));
  CHECK(cudaHostGetFlags(&flags, p));
  refused("flags", cudaHostGetFlags(&flags, host), cudaErrorInvalidValue);
  int value;
  refused("enable peer", cudaDeviceEnablePeerAccess(1, 0), cudaErrorInvalidDevice);
  refused("disable peer", cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
  refused("peers", cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrPerformanceRank, 0, 0), cudaErrorInvalidDevice);
}

// The child of a fork has no device.
static void forked() {
  const pid_t child = fork();
  if (child == 0) {
    add<<<1, 1>>>(memory, 1);
    const bool refuses = cudaGetLastError() == cudaErrorInitializationError;
    _exit(refuses && cudaDeviceSynchronize() == cudaErrorInitializationError ? 0 : 1);
  }
  int status;
  if (waitpid(child, &status, 0) != child || status != 0) exit(3);
}

int main() {
  CHECK(cudaMalloc(&memory, 64));
  CHECK(cudaMemset(memory, 0, 64));
  add<<<1, 1>>>(memory, 1);
  destroyed();
  many_handles();
  functions();
  sizes();
  pinned();
  forked();
  int sum;
  CHECK(cudaMemcpy(&sum, memory, 4, cudaMemcpyDeviceToHost));
  printf(sum == 1 ? "ok\n" : "wrong\n");
  return sum != 1;
}
