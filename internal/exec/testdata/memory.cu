// Memory of every kind, streams, events and symbols. Prints "ok" if all results are right.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.cuh"

__constant__ int scale[4];
__device__ int total;
__device__ __managed__ int counted[32];

__global__ void times(int *out, const int *in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    out[i] = in[i] * scale[i % 4];
    atomicAdd(&total, 1);
    atomicAdd(&counted[i % 32], 1);
  }
}

__global__ void transpose(int *out, size_t out_pitch, const int *in, size_t in_pitch, int rows, int columns) {
  int x = threadIdx.x, y = threadIdx.y;
  if (x < columns && y < rows) {
    int value = ((const int *)((const char *)in + y * in_pitch))[x];
    ((int *)((char *)out + x * out_pitch))[y] = value;
  }
}

static void called(void *data) { *(int *)data += 1; }

static void symbols_and_streams() {
  const int n = 500, factors[4] = {1, 2, 3, 4}, zero = 0;
  CHECK(cudaMemcpyToSymbol(scale, factors, sizeof factors));
  CHECK(cudaMemcpyToSymbol(total, &zero, sizeof zero));
  memset(counted, 0, sizeof counted);
  int *in, *out, *pinned;
  CHECK(cudaMalloc(&in, n * sizeof(int)));
  CHECK(cudaMallocManaged(&out, n * sizeof(int)));
  CHECK(cudaMallocHost(&pinned, n * sizeof(int)));
  for (int i = 0; i < n; i++) pinned[i] = i;
  cudaStream_t a, b;
  CHECK(cudaStreamCreate(&a));
  CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  cudaEvent_t start, copied, end;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(start, a));
  CHECK(cudaMemcpyAsync(in, pinned, n * sizeof(int), cudaMemcpyHostToDevice, a));
  CHECK(cudaEventRecord(copied, a));
  CHECK(cudaStreamWaitEvent(b, copied, 0));
  times<<<(n + 127) / 128, 128, 0, b>>>(out, in, n);
  CHECK(cudaGetLastError());
  int calls = 0;
  CHECK(cudaLaunchHostFunc(b, called, &calls));
  CHECK(cudaEventRecord(end, b));
  CHECK(cudaEventSynchronize(end));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, end));
  int seen = 0;
  CHECK(cudaMemcpyFromSymbol(&seen, total, sizeof seen));
  int wrong = seen != n || milliseconds < 0 || calls != 1 || counted[0] != 16 || counted[31] != 15;
  for (int i = 0; i < n; i++) wrong += out[i] != i * factors[i % 4];
  printf("symbols and streams: %s\n", wrong ? "wrong" : "ok");
  if (wrong) exit(1);
  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  CHECK(cudaFreeHost(pinned));
  CHECK(cudaStreamDestroy(a));
  CHECK(cudaStreamDestroy(b));
}

static void pitched() {
  const int rows = 7, columns = 5;
  int in[rows][columns], out[columns][rows], *device_in, *device_out;
  for (int i = 0; i < rows * columns; i++) in[i / columns][i % columns] = i;
  size_t in_pitch, out_pitch;
  CHECK(cudaMallocPitch(&device_in, &in_pitch, columns * sizeof(int), rows));
  CHECK(cudaMallocPitch(&device_out, &out_pitch, rows * sizeof(int), columns));
  CHECK(cudaMemset2D(device_out, out_pitch, 0xff, rows * sizeof(int), columns));
  CHECK(cudaMemcpy2D(device_in, in_pitch, in, sizeof in[0], sizeof in[0], rows, cudaMemcpyHostToDevice));
  transpose<<<1, dim3(32, 8)>>>(device_out, out_pitch, device_in, in_pitch, rows, columns);
  CHECK(cudaMemcpy2D(out, sizeof out[0], device_out, out_pitch, sizeof out[0], columns, cudaMemcpyDeviceToHost));
  int wrong = 0;
  for (int i = 0; i < rows * columns; i++) wrong += out[i % columns][i / columns] != i;
  printf("pitched: %s\n", wrong ? "wrong" : "ok");
  if (wrong) exit(1);
}

static void registered() {
  std::vector<int> host(3000, 3);
  int *device;
  CHECK(cudaHostRegister(host.data(), host.size() * sizeof(int), cudaHostRegisterMapped));
  CHECK(cudaHostGetDevicePointer(&device, host.data(), 0));
  const int ones[4] = {2, 2, 2, 2};
  CHECK(cudaMemcpyToSymbol(scale, ones, sizeof ones));
  times<<<24, 128>>>(device, device, 3000);
  CHECK(cudaDeviceSynchronize());
  int wrong = 0;
  for (int v : host) wrong += v != 6;
  CHECK(cudaHostUnregister(host.data()));
  host[5] = 1;
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, counted));
  if (attributes.type != cudaMemoryTypeManaged || attributes.hostPointer != counted || cudaFree(counted) == cudaSuccess) exit(1);
  cudaGetLastError();
  CHECK(cudaPointerGetAttributes(&attributes, host.data()));
  wrong += attributes.type != cudaMemoryTypeUnregistered;
  printf("registered: %s\n", wrong ? "wrong" : "ok");
  if (wrong) exit(1);
}

static void asynchronous() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  unsigned char *p, got[64];
  CHECK(cudaMallocAsync(&p, 64, stream));
  CHECK(cudaMemsetAsync(p, 7, 64, stream));
  CHECK(cudaMemcpyAsync(got, p, 64, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(p, stream));
  CHECK(cudaStreamSynchronize(stream));
  int wrong = got[0] != 7 || got[63] != 7;
  wrong += cudaMemcpy(got, p, 64, cudaMemcpyDeviceToHost) != cudaErrorInvalidValue;
  wrong += cudaGetLastError() != cudaErrorInvalidValue || cudaGetLastError() != cudaSuccess;
  printf("asynchronous: %s\n", wrong ? "wrong" : "ok");
  if (wrong) exit(1);
}

// boxes copies a box within the device, and to a device that is not there.
static void boxes() {
  const int in[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int out[8] = {}, *a, *b;
  CHECK(cudaMalloc(&a, sizeof in));
  CHECK(cudaMalloc(&b, sizeof in));
  CHECK(cudaMemcpy(a, in, sizeof in, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(b, 0, sizeof in));
  cudaMemcpy3DPeerParms p = {};
  p.srcPtr = make_cudaPitchedPtr(a, 8, 2, 2);
  p.dstPtr = make_cudaPitchedPtr(b, 8, 2, 2);
  p.srcPos = make_cudaPos(4, 0, 0);
  p.extent = make_cudaExtent(4, 2, 2);
  CHECK(cudaMemcpy3DPeer(&p));
  CHECK(cudaMemcpy3DPeerAsync(&p, 0));
  CHECK(cudaMemcpy(out, b, sizeof out, cudaMemcpyDeviceToHost));
  p.dstDevice = 1;
  int wrong = cudaMemcpy3DPeer(&p) != cudaErrorInvalidDevice || cudaGetLastError() != cudaErrorInvalidDevice;
  for (int i = 0; i < 8; i++) wrong += out[i] != (i % 2 == 0 ? in[i + 1] : 0);
  printf("boxes: %s\n", wrong ? "wrong" : "ok");
  if (wrong) exit(1);
}

int main() {
  symbols_and_streams();
  pitched();
  boxes();
  registered();
  asynchronous();
  CHECK(cudaDeviceReset());
  printf("ok\n");
}
