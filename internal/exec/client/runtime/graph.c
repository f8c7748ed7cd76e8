// Graphs, and entry points of the driver.

#include "runtime.h"

#include <string.h>

CUresult cuGraphCreate(CUgraph *, unsigned);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphClone(CUgraph *, CUgraph);
CUresult cuGraphNodeFindInClone(CUgraphNode *, CUgraphNode, CUgraph);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphInstantiateWithParams(CUgraphExec *, CUgraph, void *);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGraphGetRootNodes(CUgraph, CUgraphNode *, size_t *);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetType(CUgraphNode, int *);
CUresult cuGraphNodeGetDependencies(CUgraphNode, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode, CUgraphNode *, size_t *);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphDestroyNode(CUgraphNode);
CUresult cuGraphDebugDotPrint(CUgraph, const char *, unsigned);

API cudaError_t cudaGraphCreate(CUgraph *graph, unsigned flags) { DO(cuGraphCreate(graph, flags)); }
API cudaError_t cudaGraphDestroy(CUgraph graph) { DO(cuGraphDestroy(graph)); }
API cudaError_t cudaGraphClone(CUgraph *clone, CUgraph graph) { DO(cuGraphClone(clone, graph)); }

API cudaError_t cudaGraphNodeFindInClone(CUgraphNode *node, CUgraphNode origin, CUgraph clone) {
  DO(cuGraphNodeFindInClone(node, origin, clone));
}

// The parameters after the graph are flags from version 12 on; before, they are those of an error log.
API cudaError_t cudaGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  DO(cuGraphInstantiateWithFlags(exec, graph, RUNTIME >= 12 ? flags : 0));
}

API cudaError_t cudaGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  DO(cuGraphInstantiateWithFlags(exec, graph, flags));
}

API cudaError_t cudaGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, void *params) {
  DO(cuGraphInstantiateWithParams(exec, graph, params));
}

API cudaError_t cudaGraphLaunch(CUgraphExec exec, CUstream stream) { DO(cuGraphLaunch(exec, stream)); }

API cudaError_t cudaGraphUpload(CUgraphExec exec, CUstream stream) {
  (void)exec, (void)stream;
  return record(ready());
}

API cudaError_t cudaGraphExecDestroy(CUgraphExec exec) { DO(cuGraphExecDestroy(exec)); }
API cudaError_t cudaGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) { DO(cuGraphGetNodes(graph, nodes, count)); }
API cudaError_t cudaGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) { DO(cuGraphGetRootNodes(graph, nodes, count)); }
API cudaError_t cudaGraphNodeGetType(CUgraphNode node, int *type) { DO(cuGraphNodeGetType(node, type)); }
API cudaError_t cudaGraphDestroyNode(CUgraphNode node) { DO(cuGraphDestroyNode(node)); }
API cudaError_t cudaGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags) { DO(cuGraphDebugDotPrint(graph, path, flags)); }

// Version 13 has the data of edges among the parameters. Here all edges are full dependencies.
#if RUNTIME >= 13
#define EDGES , void *edges
#define CONST_EDGES , const void *edges
#define NO_EDGES (void)edges
#else
#define EDGES
#define CONST_EDGES
#define NO_EDGES (void)0
#endif

API cudaError_t cudaGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to EDGES, size_t *count) {
  NO_EDGES;
  DO(cuGraphGetEdges(graph, from, to, count));
}

API cudaError_t cudaGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *list EDGES, size_t *count) {
  NO_EDGES;
  DO(cuGraphNodeGetDependencies(node, list, count));
}

API cudaError_t cudaGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *list EDGES, size_t *count) {
  NO_EDGES;
  DO(cuGraphNodeGetDependentNodes(node, list, count));
}

API cudaError_t cudaGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to CONST_EDGES, size_t count) {
  NO_EDGES;
  DO(cuGraphAddDependencies(graph, from, to, count));
}

API cudaError_t cudaGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to CONST_EDGES, size_t count) {
  NO_EDGES;
  DO(cuGraphRemoveDependencies(graph, from, to, count));
}

// ---- nodes -------------------------------------------------------------------------------------

// KernelNode is the driver's description with the host stub of the kernel in the place of its handle.
struct KernelNode {
  void *function;
  dim3 grid, block;
  unsigned shared;
  void **params, **extra;
};

CUresult cuGraphAddKernelNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const struct KernelNode *);
CUresult cuGraphKernelNodeGetParams(CUgraphNode, struct KernelNode *);
CUresult cuGraphKernelNodeSetParams(CUgraphNode, const struct KernelNode *);
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec, CUgraphNode, const struct KernelNode *);

// with_function replaces the stub by the handle.
static cudaError_t with_function(struct KernelNode *node) {
  CUfunction function;
  cudaError_t status = ready();
  if (status == 0) status = function_of(node->function, &function);
  if (status == 0) node->function = function;
  return status;
}

API cudaError_t cudaGraphAddKernelNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, const struct KernelNode *p) {
  struct KernelNode node = *p;
  const cudaError_t status = with_function(&node);
  return record(status != 0 ? status : cuGraphAddKernelNode(added, graph, list, count, &node));
}

API cudaError_t cudaGraphKernelNodeGetParams(CUgraphNode node, struct KernelNode *p) {
  const cudaError_t status = ready();
  const CUresult got = status != 0 ? status : cuGraphKernelNodeGetParams(node, p);
  if (got == 0) p->function = (void *)host_of(p->function);
  return record(got);
}

API cudaError_t cudaGraphKernelNodeSetParams(CUgraphNode target, const struct KernelNode *p) {
  struct KernelNode node = *p;
  const cudaError_t status = with_function(&node);
  return record(status != 0 ? status : cuGraphKernelNodeSetParams(target, &node));
}

API cudaError_t cudaGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode target, const struct KernelNode *p) {
  struct KernelNode node = *p;
  const cudaError_t status = with_function(&node);
  return record(status != 0 ? status : cuGraphExecKernelNodeSetParams(exec, target, &node));
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode, int, const void *);
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode, int, void *);

API cudaError_t cudaGraphKernelNodeSetAttribute(CUgraphNode node, int attribute, const void *value) {
  DO(cuGraphKernelNodeSetAttribute(node, attribute, value));
}

API cudaError_t cudaGraphKernelNodeGetAttribute(CUgraphNode node, int attribute, void *value) {
  DO(cuGraphKernelNodeGetAttribute(node, attribute, value));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const struct Memcpy3D *, CUcontext);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec, CUgraphNode, const struct Memcpy3D *, CUcontext);
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode, const struct Memcpy3D *);

static struct Memcpy3D row_of(void *to, const void *from, size_t bytes) {
  return (struct Memcpy3D){.from_type = kUnified, .from_device = (uintptr_t)from, .from_pitch = bytes, .to_type = kUnified,
                           .to_device = (uintptr_t)to, .to_pitch = bytes, .width = bytes, .height = 1, .depth = 1};
}

API cudaError_t cudaGraphAddMemcpyNode1D(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, void *to, const void *from,
                                         size_t bytes, int kind) {
  (void)kind;
  const struct Memcpy3D m = row_of(to, from, bytes);
  DO(cuGraphAddMemcpyNode(added, graph, list, count, &m, NULL));
}

API cudaError_t cudaGraphExecMemcpyNodeSetParams1D(CUgraphExec exec, CUgraphNode node, void *to, const void *from, size_t bytes, int kind) {
  (void)kind;
  const struct Memcpy3D m = row_of(to, from, bytes);
  DO(cuGraphExecMemcpyNodeSetParams(exec, node, &m, NULL));
}

struct Box;
struct Memcpy3D box_of(const struct Box *b);

API cudaError_t cudaGraphAddMemcpyNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, const struct Box *b) {
  const struct Memcpy3D m = box_of(b);
  DO(cuGraphAddMemcpyNode(added, graph, list, count, &m, NULL));
}

API cudaError_t cudaGraphMemcpyNodeSetParams(CUgraphNode node, const struct Box *b) {
  const struct Memcpy3D m = box_of(b);
  DO(cuGraphMemcpyNodeSetParams(node, &m));
}

API cudaError_t cudaGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const struct Box *b) {
  const struct Memcpy3D m = box_of(b);
  DO(cuGraphExecMemcpyNodeSetParams(exec, node, &m, NULL));
}

CUresult cuGraphAddMemsetNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const void *, CUcontext);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec, CUgraphNode, const void *, CUcontext);
CUresult cuGraphMemsetNodeSetParams(CUgraphNode, const void *);
CUresult cuGraphAddHostNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const void *);
CUresult cuGraphExecHostNodeSetParams(CUgraphExec, CUgraphNode, const void *);
CUresult cuGraphHostNodeSetParams(CUgraphNode, const void *);
CUresult cuGraphMemsetNodeGetParams(CUgraphNode, void *);
CUresult cuGraphHostNodeGetParams(CUgraphNode, void *);
CUresult cuGraphAddEmptyNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t);
CUresult cuGraphAddChildGraphNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph *);
CUresult cuGraphAddEventRecordNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent);
CUresult cuGraphAddEventWaitNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent);

API cudaError_t cudaGraphAddMemsetNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, const void *p) {
  DO(cuGraphAddMemsetNode(added, graph, list, count, p, NULL));
}

API cudaError_t cudaGraphMemsetNodeSetParams(CUgraphNode node, const void *p) { DO(cuGraphMemsetNodeSetParams(node, p)); }

API cudaError_t cudaGraphMemsetNodeGetParams(CUgraphNode node, void *p) { DO(cuGraphMemsetNodeGetParams(node, p)); }

API cudaError_t cudaGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const void *p) {
  DO(cuGraphExecMemsetNodeSetParams(exec, node, p, NULL));
}

API cudaError_t cudaGraphAddHostNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, const void *p) {
  DO(cuGraphAddHostNode(added, graph, list, count, p));
}

API cudaError_t cudaGraphHostNodeSetParams(CUgraphNode node, const void *p) { DO(cuGraphHostNodeSetParams(node, p)); }

API cudaError_t cudaGraphHostNodeGetParams(CUgraphNode node, void *p) { DO(cuGraphHostNodeGetParams(node, p)); }

API cudaError_t cudaGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const void *p) {
  DO(cuGraphExecHostNodeSetParams(exec, node, p));
}

API cudaError_t cudaGraphAddEmptyNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count) {
  DO(cuGraphAddEmptyNode(added, graph, list, count));
}

API cudaError_t cudaGraphAddChildGraphNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, CUgraph child) {
  DO(cuGraphAddChildGraphNode(added, graph, list, count, child));
}

API cudaError_t cudaGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) { DO(cuGraphChildGraphNodeGetGraph(node, graph)); }

API cudaError_t cudaGraphAddEventRecordNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, CUevent event) {
  DO(cuGraphAddEventRecordNode(added, graph, list, count, event));
}

API cudaError_t cudaGraphAddEventWaitNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, CUevent event) {
  DO(cuGraphAddEventWaitNode(added, graph, list, count, event));
}

CUresult cuGraphNodeSetEnabled(CUgraphExec, CUgraphNode, unsigned);
CUresult cuGraphNodeGetEnabled(CUgraphExec, CUgraphNode, unsigned *);
CUresult cuGraphExecUpdate_v2(CUgraphExec, CUgraph, void *);
CUresult cuGraphExecUpdate(CUgraphExec, CUgraph, CUgraphNode *, int *);

API cudaError_t cudaGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) { DO(cuGraphNodeSetEnabled(exec, node, enabled)); }

API cudaError_t cudaGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *enabled) {
  DO(cuGraphNodeGetEnabled(exec, node, enabled));
}

#if RUNTIME >= 12
API cudaError_t cudaGraphExecUpdate(CUgraphExec exec, CUgraph graph, void *result) { DO(cuGraphExecUpdate_v2(exec, graph, result)); }
#else
API cudaError_t cudaGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *failed, int *result) {
  DO(cuGraphExecUpdate(exec, graph, failed, result));
}
#endif

// ---- entry points of the driver ----------------------------------------------------------------

CUresult cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

API cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long flags, int *status) {
  DO(cuGetProcAddress_v2(symbol, function, (int)version, flags, status));
}

API cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags, int *status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, RUNTIME * 1000, flags, status);
}

// ---- functions that do not exist ---------------------------------------------------------------

// Programs need the symbols of all functions that they name.
#define MISSING(name) \
  API cudaError_t name(void) { return record(attuneUnsupported(#name)); }
#include "missing.h"

// ---- allocations -------------------------------------------------------------------------------

CUresult cuGraphAddMemAllocNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, void *);
CUresult cuGraphAddMemFreeNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr);
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode, void *);
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode, CUdeviceptr *);

API cudaError_t cudaGraphAddMemAllocNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, void *p) {
  DO(cuGraphAddMemAllocNode(added, graph, list, count, p));
}

API cudaError_t cudaGraphAddMemFreeNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *list, size_t count, void *address) {
  DO(cuGraphAddMemFreeNode(added, graph, list, count, (uintptr_t)address));
}

API cudaError_t cudaGraphMemAllocNodeGetParams(CUgraphNode node, void *p) { DO(cuGraphMemAllocNodeGetParams(node, p)); }

API cudaError_t cudaGraphMemFreeNodeGetParams(CUgraphNode node, void *address) {
  DO(cuGraphMemFreeNodeGetParams(node, (CUdeviceptr *)address));
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice, int, uint64_t *);
CUresult cuDeviceSetGraphMemAttribute(CUdevice, int, uint64_t *);

API cudaError_t cudaDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value) { DO(cuDeviceGetGraphMemAttribute(device, attribute, value)); }
API cudaError_t cudaDeviceSetGraphMemAttribute(int device, int attribute, uint64_t *value) { DO(cuDeviceSetGraphMemAttribute(device, attribute, value)); }

API cudaError_t cudaDeviceGraphMemTrim(int device) {
  (void)device;
  return record(ready());
}
