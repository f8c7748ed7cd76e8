// Graphs: captured over two streams, made by hand, launched again, and updated.
#include <cstdio>
#include <cstdlib>

#include "check.cuh"

__global__ void add(int *p, int n, int value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += value;
}

__global__ void sum(int *out, const int *a, const int *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

static const int n = 200;

static int captured(int *a, int *b, int *out) {
  cudaStream_t first, second;
  cudaEvent_t fork, join;
  CHECK(cudaStreamCreate(&first));
  CHECK(cudaStreamCreate(&second));
  CHECK(cudaEventCreate(&fork));
  CHECK(cudaEventCreate(&join));
  CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
  CHECK(cudaEventRecord(fork, first));
  CHECK(cudaStreamWaitEvent(second, fork, 0));
  add<<<2, 128, 0, first>>>(a, n, 1);
  add<<<2, 128, 0, second>>>(b, n, 10);
  CHECK(cudaEventRecord(join, second));
  CHECK(cudaStreamWaitEvent(first, join, 0));
  sum<<<2, 128, 0, first>>>(out, a, b, n);
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(first, &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, first));
  CHECK(cudaStreamSynchronize(first));
  int got[n], wrong = nodes != 3;
  CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) wrong += got[i] != 33;
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return wrong;
}

static int by_hand(int *a) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemsetParams zero = {};
  zero.dst = a;
  zero.elementSize = 4;
  zero.width = n;
  zero.height = 1;
  cudaGraphNode_t cleared, added, copied;
  CHECK(cudaGraphAddMemsetNode(&cleared, graph, nullptr, 0, &zero));
  int count = n, value = 5;
  void *args[] = {&a, &count, &value};
  cudaKernelNodeParams kernel = {};
  kernel.func = (void *)add;
  kernel.gridDim = dim3(2);
  kernel.blockDim = dim3(128);
  kernel.kernelParams = args;
  CHECK(cudaGraphAddKernelNode(&added, graph, &cleared, 1, &kernel));
  int got[n];
  CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &added, 1, got, a, sizeof got, cudaMemcpyDeviceToHost));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, 0));
  CHECK(cudaDeviceSynchronize());
  int wrong = got[0] != 5 || got[n - 1] != 5;
  value = 8;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, added, &kernel));
  CHECK(cudaGraphLaunch(exec, 0));
  CHECK(cudaDeviceSynchronize());
  return wrong + (got[0] != 8 || got[n - 1] != 8);
}

int main() {
  int *a, *b, *out;
  CHECK(cudaMalloc(&a, n * sizeof(int)));
  CHECK(cudaMalloc(&b, n * sizeof(int)));
  CHECK(cudaMalloc(&out, n * sizeof(int)));
  CHECK(cudaMemset(a, 0, n * sizeof(int)));
  CHECK(cudaMemset(b, 0, n * sizeof(int)));
  int wrong = captured(a, b, out);
  printf("captured: %s\n", wrong ? "wrong" : "ok");
  wrong += by_hand(a);
  printf("by hand: %s\n", wrong ? "wrong" : "ok");
  return wrong != 0;
}
