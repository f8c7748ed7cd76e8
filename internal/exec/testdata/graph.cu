// Graphs: captured over two streams, made by hand, launched again, and updated.
#include <cstdio>
#include <cstdlib>

#include "check.cuh"

static int wrong;

static void expect(bool right, const char *what) {
  if (!right) printf("%s: wrong\n", what), wrong++;
}

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
  cudaKernelNodeParams known;
  CHECK(cudaGraphKernelNodeGetParams(added, &known));
  expect(known.func == (void *)add && *(int *)known.kernelParams[2] == 5 && known.blockDim.x == 128, "the parameters of a node");
  cudaMemsetParams cleans = {};
  CHECK(cudaGraphMemsetNodeGetParams(cleared, &cleans));
  expect(cleans.dst == a && cleans.elementSize == 4 && cleans.width == n && cleans.height == 1 && cleans.value == 0, "the parameters of a fill");
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

static void count(void *calls) { ++*(int *)calls; }

// continued captures into a graph that has a node, and disables that node.
static void continued(int *p) {
  int calls = 0;
  cudaGraph_t graph, same;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaHostNodeParams host = {count, &calls}, known = {};
  cudaGraphNode_t first;
  CHECK(cudaGraphAddHostNode(&first, graph, nullptr, 0, &host));
  CHECK(cudaGraphHostNodeGetParams(first, &known));
  expect(known.fn == count && known.userData == &calls, "the parameters of a host node");
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1, cudaStreamCaptureModeGlobal));
  CHECK(cudaLaunchHostFunc(stream, count, &calls));
  CHECK(cudaMemsetAsync(p, 0, n * sizeof(int), stream));
  CHECK(cudaStreamEndCapture(stream, &same));
  size_t nodes = 0, edges = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
#if CUDART_VERSION >= 13000
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
#else
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, &edges));
#endif
  expect(same == graph && nodes == 3 && edges == 2, "a capture into a graph");
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect(calls == 2, "a graph with captured nodes");
  unsigned enabled = 0;
  CHECK(cudaGraphNodeGetEnabled(exec, first, &enabled));
  expect(enabled == 1, "a node that is enabled");
  CHECK(cudaGraphNodeSetEnabled(exec, first, 0));
  CHECK(cudaGraphNodeGetEnabled(exec, first, &enabled));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect(enabled == 0 && calls == 3, "a node that is disabled");
}

// record captures a copy in, an addition, memory that lives in the graph, a function of the host and a copy out.
static cudaGraph_t record(cudaStream_t stream, int *p, const int *from, int *to, int value, int *calls, bool twice) {
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  int *between;
  CHECK(cudaMallocAsync(&between, n * sizeof(int), stream));
  CHECK(cudaMemcpyAsync(p, from, n * sizeof(int), cudaMemcpyHostToDevice, stream));
  add<<<2, 128, 0, stream>>>(p, n, value);
  if (twice) add<<<2, 128, 0, stream>>>(p, n, value);
  CHECK(cudaMemcpyAsync(between, p, n * sizeof(int), cudaMemcpyDeviceToDevice, stream));
  CHECK(cudaLaunchHostFunc(stream, count, calls));
  CHECK(cudaMemcpyAsync(to, between, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(between, stream));
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(stream, &status));
  expect(status == cudaStreamCaptureStatusActive && *calls == 0, "a stream that captures");
  cudaGraph_t graph;
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

static bool all_are(const int *p, int value) {
  for (int i = 0; i < n; i++) {
    if (p[i] != value) return false;
  }
  return true;
}

// updated replays a graph that another capture updates, and one whose nodes get other parameters.
static void updated(int *p) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  static int from[n], to[n], other[n];
  for (int i = 0; i < n; i++) from[i] = 100, other[i] = 200;
  int calls = 0, other_calls = 0;
  cudaGraph_t first = record(stream, p, from, to, 1, &calls, false), second = record(stream, p, other, to, 2, &other_calls, false);
  cudaGraph_t longer = record(stream, p, from, to, 1, &other_calls, true);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, first, 0));
  for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect(all_are(to, 101) && calls == 2, "a graph that was captured");
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(exec, second, &info));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect(info.result == cudaGraphExecUpdateSuccess && all_are(to, 202) && calls == 2 && other_calls == 1, "a graph that was updated");
  expect(cudaGraphExecUpdate(exec, longer, &info) == cudaErrorGraphExecUpdateFailure && info.result == cudaGraphExecUpdateErrorTopologyChanged, "a graph of other nodes");
  cudaGetLastError();
  CHECK(cudaGraphExecDestroy(exec));

  cudaGraph_t whole, clone;
  cudaGraphNode_t child, hosted, filled;
  CHECK(cudaGraphCreate(&whole, 0));
  cudaMemsetParams fill = {};
  fill.dst = p, fill.elementSize = 4, fill.width = n, fill.height = 1, fill.value = 7;
  CHECK(cudaGraphAddMemsetNode(&filled, whole, nullptr, 0, &fill));
  cudaHostNodeParams host = {};
  host.fn = count, host.userData = &calls;
  CHECK(cudaGraphAddHostNode(&hosted, whole, &filled, 1, &host));
  CHECK(cudaGraphAddChildGraphNode(&child, whole, &hosted, 1, longer));
  CHECK(cudaGraphClone(&clone, whole));
  size_t roots = 0;
  CHECK(cudaGraphGetRootNodes(clone, nullptr, &roots));
  expect(roots == 1, "the roots of a clone");
  CHECK(cudaGraphInstantiate(&exec, clone, 0));
  CHECK(cudaGraphDestroy(whole));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect(all_are(to, 102) && calls == 3 && other_calls == 2, "a graph in a graph");
  CHECK(cudaGraphExecDestroy(exec));

  // Nodes with other parameters, and without one of them.
  CHECK(cudaGraphCreate(&whole, 0));
  cudaGraphNode_t copied;
  CHECK(cudaGraphAddMemsetNode(&filled, whole, nullptr, 0, &fill));
  CHECK(cudaGraphAddMemcpyNode1D(&copied, whole, &filled, 1, to, p, sizeof to, cudaMemcpyDeviceToHost));
  CHECK(cudaGraphInstantiate(&exec, whole, 0));
  fill.value = 9;
  CHECK(cudaGraphExecMemsetNodeSetParams(exec, filled, &fill));
  CHECK(cudaGraphExecMemcpyNodeSetParams1D(exec, copied, other, p, sizeof other, cudaMemcpyDeviceToHost));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect(all_are(other, 9) && all_are(to, 102), "nodes with other parameters");
  CHECK(cudaMemset(p, 0, n * sizeof(int)));
  CHECK(cudaGraphNodeSetEnabled(exec, filled, 0));
  CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect(all_are(other, 0), "a node that is disabled");
}

// end ends a capture and takes its error away.
static cudaError_t end(cudaStream_t stream, bool *empty) {
  cudaGraph_t graph = (cudaGraph_t)stream;
  cudaError_t e = cudaStreamEndCapture(stream, &graph);
  *empty = graph == nullptr;
  return cudaGetLastError(), e;
}

// forbidden does what a stream that captures must not do. The capture is then invalid.
static void forbidden(int *p) {
  cudaStream_t stream, other;
  cudaEvent_t event;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamCreate(&other));
  CHECK(cudaEventCreate(&event));
  bool empty = false;
  const cudaError_t refusals[] = {cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureUnsupported, cudaErrorCapturedEvent, cudaErrorStreamCaptureImplicit};
  for (int i = 0; i < 4; i++) {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    if (i == 0) cudaStreamSynchronize(stream);
    if (i == 1) cudaDeviceSynchronize();
    if (i == 2) cudaEventQuery(event);
    if (i == 3) add<<<2, 128>>>(p, n, 1);  // the legacy stream waits for all others
    expect(cudaGetLastError() == refusals[i], "what a capture refuses");
    add<<<2, 128, 0, stream>>>(p, n, 1);
    expect(cudaGetLastError() == cudaErrorStreamCaptureInvalidated, "a launch in an invalid capture");
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(stream, &status));
    expect(status == cudaStreamCaptureStatusInvalidated, "the status of an invalid capture");
    expect(end(stream, &empty) == cudaErrorStreamCaptureInvalidated && empty, "the end of an invalid capture");
  }
  expect(end(stream, &empty) == cudaErrorIllegalState, "the end of no capture");

  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamWaitEvent(other, event, 0));
  add<<<2, 128, 0, other>>>(p, n, 1);  // nothing waits for it
  expect(end(stream, &empty) == cudaErrorStreamCaptureUnjoined && empty, "a capture with work that is not joined");
  expect(cudaStreamWaitEvent(other, event, 0) == cudaErrorCapturedEvent && cudaGetLastError() == cudaErrorCapturedEvent, "an event of a capture that has ended");
  CHECK(cudaMemset(p, 0, n * sizeof(int)));
  add<<<2, 128, 0, other>>>(p, n, 3);  // no part of a capture
  CHECK(cudaEventRecord(event, other));
  CHECK(cudaEventSynchronize(event));
  int got[n];
  CHECK(cudaMemcpy(got, p, sizeof got, cudaMemcpyDeviceToHost));
  expect(all_are(got, 3), "a launch after a capture");
}

int main() {
  int *a, *b, *out;
  CHECK(cudaMalloc(&a, n * sizeof(int)));
  CHECK(cudaMalloc(&b, n * sizeof(int)));
  CHECK(cudaMalloc(&out, n * sizeof(int)));
  CHECK(cudaMemset(a, 0, n * sizeof(int)));
  CHECK(cudaMemset(b, 0, n * sizeof(int)));
  expect(captured(a, b, out) == 0, "captured");
  expect(by_hand(a) == 0, "by hand");
  continued(a);
  updated(a);
  forbidden(a);
  if (wrong == 0) printf("ok\n");
  return wrong != 0;
}
