// Graphs: lists of work that a launch runs in an order that its dependencies allow.

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Exec {
  struct Graph graph;  // copies of the nodes, in the order in which they run
  uint64_t flags;
};

struct Graph *new_graph(void) {
  static uint64_t made;
  struct Graph *g = calloc(1, sizeof *g);
  if (g == NULL || !add_handle(HANDLE_GRAPH, g)) return NULL;
  g->id = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
  return g;
}

// copy_params gives the node parameters of its own.
static void copy_params(struct Node *node, const struct Node *from) {
  node->params = NULL;
  node->param_list = NULL;
  if (from->kind == NODE_KERNEL) set_kernel_params(node, from->param_list, NULL);
}

struct Node *add_node(struct Graph *graph, const struct Node *node, struct Node *const *dependencies, size_t count) {
  struct Node *added = malloc(sizeof *added);
  if (added == NULL) return NULL;
  *added = *node;
  copy_params(added, node);
  added->graph = graph;
  added->dependencies = calloc(count + 1, sizeof *added->dependencies);
  if (count > 0) memcpy(added->dependencies, dependencies, count * sizeof *dependencies);
  added->dependency_count = count;
  if (graph->count == graph->capacity) {
    graph->capacity = 2 * graph->capacity + 16;
    graph->nodes = realloc(graph->nodes, graph->capacity * sizeof *graph->nodes);
  }
  graph->nodes[graph->count++] = added;
  return added;
}

static void free_nodes(struct Graph *graph) {
  for (size_t i = 0; i < graph->count; i++) {
    free(graph->nodes[i]->params);
    free(graph->nodes[i]->param_list);
    free(graph->nodes[i]->dependencies);
    free(graph->nodes[i]);
  }
  free(graph->nodes);
}

void free_graph(struct Graph *graph) {
  remove_handle(HANDLE_GRAPH, graph);
  free_nodes(graph);
  free(graph);
}

CUresult run_graph(const struct Graph *graph) {
  for (size_t i = 0; i < graph->count; i++) {
    const CUresult status = run_node(graph->nodes[i]);
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

static struct Node *copy_of(const struct Graph *graph, const struct Node *origin) {
  for (size_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->origin == origin) return graph->nodes[i];
  }
  return NULL;
}

// copy_graph copies the nodes in an order in which each follows those that it depends on: of the
// nodes that may come next, the first that was added. It returns false for a cycle.
static bool copy_graph(struct Graph *to, const struct Graph *from) {
  while (to->count < from->count) {
    const size_t before = to->count;
    for (size_t i = 0; i < from->count; i++) {
      const struct Node *node = from->nodes[i];
      if (copy_of(to, node) != NULL) continue;
      struct Node *dependencies[node->dependency_count + 1];
      size_t ready = 0;
      while (ready < node->dependency_count && (dependencies[ready] = copy_of(to, node->dependencies[ready])) != NULL) ready++;
      if (ready < node->dependency_count) continue;
      struct Node *added = add_node(to, node, dependencies, ready);
      added->origin = node;
      if (node->kind == NODE_GRAPH) {
        added->child = new_graph();
        if (!copy_graph(added->child, node->child)) return false;
      }
    }
    if (to->count == before) return false;
  }
  return true;
}

API CUresult cuGraphCreate(CUgraph *graph, unsigned flags) {
  (void)flags;
  *graph = new_graph();
  return *graph == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(CUgraph graph) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  free_graph(graph);
  return CUDA_SUCCESS;
}

API CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  *clone = new_graph();
  return copy_graph(*clone, graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode origin, CUgraph clone) {
  *node = copy_of(clone, origin);
  return *node == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// ---- nodes -------------------------------------------------------------------------------------

static CUresult add(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count, const struct Node *node) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  struct Node *made = add_node(graph, node, dependencies, count);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (added != NULL) *added = made;
  return CUDA_SUCCESS;
}

struct KernelParams {
  CUfunction function;
  uint32_t grid[3], block[3], shared;
  void **params, **extra;
  CUfunction kernel;  // from version 2 on, where function is NULL
  CUcontext context;
};

static CUresult set_kernel(struct Node *node, const struct KernelParams *p, bool has_kernel) {
  struct Function *function = p->function == NULL && has_kernel ? p->kernel : p->function;
  if (!is_handle(HANDLE_FUNCTION, function)) return CUDA_ERROR_INVALID_VALUE;
  node->kind = NODE_KERNEL;
  node->kernel.function = function;
  node->kernel.shared = p->shared;
  memcpy(node->kernel.grid, p->grid, sizeof p->grid);
  memcpy(node->kernel.block, p->block, sizeof p->block);
  free(node->params);
  free(node->param_list);
  return set_kernel_params(node, p->params, p->extra);
}

static CUresult add_kernel(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                           const struct KernelParams *p, bool has_kernel) {
  struct Node node = {0};
  CUresult status = set_kernel(&node, p, has_kernel);
  if (status == CUDA_SUCCESS) status = add(added, graph, dependencies, count, &node);
  free(node.params);
  free(node.param_list);
  return status;
}

API CUresult cuGraphAddKernelNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  const struct KernelParams *p) {
  return add_kernel(added, graph, dependencies, count, p, false);
}

API CUresult cuGraphAddKernelNode_v2(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                     const struct KernelParams *p) {
  return add_kernel(added, graph, dependencies, count, p, true);
}

API CUresult cuGraphKernelNodeGetParams(CUgraphNode node, struct KernelParams *p) {
  p->function = node->kernel.function;
  memcpy(p->grid, node->kernel.grid, sizeof p->grid);
  memcpy(p->block, node->kernel.block, sizeof p->block);
  p->shared = node->kernel.shared;
  p->params = node->param_list;
  p->extra = NULL;
  return CUDA_SUCCESS;
}

API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, struct KernelParams *p) {
  p->kernel = NULL;
  p->context = primary_context;
  return cuGraphKernelNodeGetParams(node, p);
}

API CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const struct KernelParams *p) { return set_kernel(node, p, false); }
API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const struct KernelParams *p) { return set_kernel(node, p, true); }

enum { kAttributeCooperative = 2, kAttributeCluster = 4 };

API CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, int attribute, const void *value) {
  if (attribute == kAttributeCooperative) node->kernel.cooperative = *(const int *)value != 0;
  if (attribute == kAttributeCluster) memcpy(node->kernel.cluster, value, sizeof node->kernel.cluster);
  return CUDA_SUCCESS;
}

API CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, int attribute, void *value) {
  memset(value, 0, 64);
  if (attribute == kAttributeCooperative) *(int *)value = (int)node->kernel.cooperative;
  if (attribute == kAttributeCluster) memcpy(value, node->kernel.cluster, sizeof node->kernel.cluster);
  return CUDA_SUCCESS;
}

API CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  to->kernel.cooperative = from->kernel.cooperative;
  memcpy(to->kernel.cluster, from->kernel.cluster, sizeof to->kernel.cluster);
  return CUDA_SUCCESS;
}

struct Memcpy3D;
struct Copy copy_of_3d(const struct Memcpy3D *m);

API CUresult cuGraphAddMemcpyNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  const struct Memcpy3D *m, CUcontext context) {
  (void)context;
  const struct Node node = {.kind = NODE_MEMCPY, .copy = copy_of_3d(m)};
  return add(added, graph, dependencies, count, &node);
}

API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const struct Memcpy3D *m) {
  node->copy = copy_of_3d(m);
  return CUDA_SUCCESS;
}

struct MemsetParams {
  CUdeviceptr to;
  size_t pitch;
  uint32_t value, element;
  size_t width, height;
};

static struct Fill fill_of(const struct MemsetParams *p) {
  return (struct Fill){.to = p->to, .pitch = p->pitch, .width = p->width, .height = p->height, .value = p->value, .element = p->element};
}

API CUresult cuGraphAddMemsetNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                  const struct MemsetParams *p, CUcontext context) {
  (void)context;
  const struct Node node = {.kind = NODE_MEMSET, .fill = fill_of(p)};
  return add(added, graph, dependencies, count, &node);
}

API CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const struct MemsetParams *p) {
  node->fill = fill_of(p);
  return CUDA_SUCCESS;
}

API CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, struct MemsetParams *p) {
  const struct Fill *f = &node->fill;
  *p = (struct MemsetParams){f->to, f->pitch, f->value, f->element, f->width, f->height};
  return CUDA_SUCCESS;
}

struct HostParams {
  CUhostFn function;
  void *data;
};

API CUresult cuGraphAddHostNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                const struct HostParams *p) {
  const struct Node node = {.kind = NODE_HOST, .host = p->function, .host_data = p->data};
  return add(added, graph, dependencies, count, &node);
}

API CUresult cuGraphHostNodeGetParams(CUgraphNode node, struct HostParams *p) {
  *p = (struct HostParams){node->host, node->host_data};
  return CUDA_SUCCESS;
}

API CUresult cuGraphHostNodeSetParams(CUgraphNode node, const struct HostParams *p) {
  node->host = p->function;
  node->host_data = p->data;
  return CUDA_SUCCESS;
}

API CUresult cuGraphAddChildGraphNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraph child) {
  struct Node node = {.kind = NODE_GRAPH, .child = new_graph()};
  if (!copy_graph(node.child, child)) return CUDA_ERROR_INVALID_VALUE;
  return add(added, graph, dependencies, count, &node);
}

API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
  *graph = node->child;
  return CUDA_SUCCESS;
}

API CUresult cuGraphAddEmptyNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count) {
  const struct Node node = {.kind = NODE_EMPTY};
  return add(added, graph, dependencies, count, &node);
}

API CUresult cuGraphAddEventRecordNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event) {
  const struct Node node = {.kind = NODE_EVENT_RECORD, .event = event};
  return add(added, graph, dependencies, count, &node);
}

API CUresult cuGraphAddEventWaitNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUevent event) {
  const struct Node node = {.kind = NODE_WAIT_EVENT, .event = event};
  return add(added, graph, dependencies, count, &node);
}

// AllocationParams describes an allocation node. The memory has its address from the start, and stays
// until the program ends: launches may repeat.
struct AllocationParams {
  unsigned char pool[88];
  const void *access;
  size_t access_count, bytes;
  CUdeviceptr address;
};

_Static_assert(sizeof(struct AllocationParams) == 120, "the driver's structure");

API CUresult cuGraphAddMemAllocNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                    struct AllocationParams *p) {
  const CUresult status = allocate_for_graph(p->bytes, &p->address);
  const struct Node node = {.kind = NODE_MEM_ALLOC, .address = p->address, .bytes = p->bytes};
  return status == CUDA_SUCCESS ? add(added, graph, dependencies, count, &node) : status;
}

API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, struct AllocationParams *p) {
  *p = (struct AllocationParams){.bytes = node->bytes, .address = node->address};
  return CUDA_SUCCESS;
}

API CUresult cuGraphAddMemFreeNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUdeviceptr address) {
  const struct Node node = {.kind = NODE_MEM_FREE, .address = address};
  return add(added, graph, dependencies, count, &node);
}

API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address) {
  *address = node->address;
  return CUDA_SUCCESS;
}

// NodeParams is the description of a node of any kind.
struct NodeParams {
  int kind, reserved[3];
  union {
    struct KernelParams kernel;
    struct {
      int flags, reserved;
      CUcontext context;
      char copy[1];
    } memcpy;
    struct MemsetParams memset;
    struct HostParams host;
    struct {
      CUgraph graph;
    } child;
    struct {
      CUevent event;
    } event;
    struct AllocationParams allocation;
    struct {
      CUdeviceptr address;
    } release;
  };
};

API CUresult cuGraphAddNode(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, size_t count, struct NodeParams *p) {
  switch (p->kind) {
    case NODE_KERNEL: return cuGraphAddKernelNode_v2(added, graph, dependencies, count, &p->kernel);
    case NODE_MEMCPY: return cuGraphAddMemcpyNode(added, graph, dependencies, count, (const struct Memcpy3D *)p->memcpy.copy, NULL);
    case NODE_MEMSET: return cuGraphAddMemsetNode(added, graph, dependencies, count, &p->memset, NULL);
    case NODE_HOST: return cuGraphAddHostNode(added, graph, dependencies, count, &p->host);
    case NODE_GRAPH: return cuGraphAddChildGraphNode(added, graph, dependencies, count, p->child.graph);
    case NODE_EMPTY: return cuGraphAddEmptyNode(added, graph, dependencies, count);
    case NODE_WAIT_EVENT: return cuGraphAddEventWaitNode(added, graph, dependencies, count, p->event.event);
    case NODE_EVENT_RECORD: return cuGraphAddEventRecordNode(added, graph, dependencies, count, p->event.event);
    case NODE_MEM_ALLOC: return cuGraphAddMemAllocNode(added, graph, dependencies, count, &p->allocation);
    case NODE_MEM_FREE: return cuGraphAddMemFreeNode(added, graph, dependencies, count, p->release.address);
    case NODE_CONDITIONAL: return unsupported("a conditional node of a graph");
    default: return unsupported("cuGraphAddNode with a node of this kind");
  }
}

API CUresult cuGraphAddNode_v2(CUgraphNode *added, CUgraph graph, const CUgraphNode *dependencies, const void *edges, size_t count,
                               struct NodeParams *p) {
  (void)edges;
  return cuGraphAddNode(added, graph, dependencies, count, p);
}

static CUresult set_params(struct Node *node, const struct NodeParams *p) {
  switch (p->kind) {
    case NODE_KERNEL: return set_kernel(node, &p->kernel, true);
    case NODE_MEMCPY: return cuGraphMemcpyNodeSetParams(node, (const struct Memcpy3D *)p->memcpy.copy);
    case NODE_MEMSET: return cuGraphMemsetNodeSetParams(node, &p->memset);
    case NODE_HOST: return cuGraphHostNodeSetParams(node, &p->host);
    default: return unsupported("cuGraphNodeSetParams with a node of this kind");
  }
}

API CUresult cuGraphNodeSetParams(CUgraphNode node, const struct NodeParams *p) { return set_params(node, p); }

API CUresult cuGraphNodeGetType(CUgraphNode node, int *kind) {
  *kind = (int)node->kind;
  return CUDA_SUCCESS;
}

// ---- topology ----------------------------------------------------------------------------------

// list_nodes fills a list of at most *count nodes, and sets *count to how many there are.
static CUresult list_nodes(CUgraphNode *list, size_t *count, struct Node *const *nodes, size_t have) {
  for (size_t i = 0; list != NULL && i < *count; i++) list[i] = i < have ? nodes[i] : NULL;
  if (list == NULL || *count > have) *count = have;
  return CUDA_SUCCESS;
}

API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  return list_nodes(nodes, count, graph->nodes, graph->count);
}

API CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  struct Node *roots[graph->count + 1];
  size_t have = 0;
  for (size_t i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->dependency_count == 0) roots[have++] = graph->nodes[i];
  }
  return list_nodes(nodes, count, roots, have);
}

API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *list, size_t *count) {
  return list_nodes(list, count, node->dependencies, node->dependency_count);
}

static bool depends(const struct Node *node, const struct Node *on) {
  for (size_t i = 0; i < node->dependency_count; i++) {
    if (node->dependencies[i] == on) return true;
  }
  return false;
}

API CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *list, size_t *count) {
  const struct Graph *graph = node->graph;
  struct Node *dependents[graph->count + 1];
  size_t have = 0;
  for (size_t i = 0; i < graph->count; i++) {
    if (depends(graph->nodes[i], node)) dependents[have++] = graph->nodes[i];
  }
  return list_nodes(list, count, dependents, have);
}

API CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  size_t have = 0;
  for (size_t i = 0; i < graph->count; i++) {
    const struct Node *node = graph->nodes[i];
    for (size_t j = 0; j < node->dependency_count; j++, have++) {
      if (from == NULL || to == NULL || have >= *count) continue;
      from[have] = node->dependencies[j];
      to[have] = graph->nodes[i];
    }
  }
  if (from == NULL || *count > have) *count = have;
  return CUDA_SUCCESS;
}

API CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  (void)graph;
  for (size_t i = 0; i < count; i++) {
    struct Node *node = to[i];
    if (depends(node, from[i])) return CUDA_ERROR_INVALID_VALUE;
    node->dependencies = realloc(node->dependencies, (node->dependency_count + 1) * sizeof *node->dependencies);
    node->dependencies[node->dependency_count++] = from[i];
  }
  return CUDA_SUCCESS;
}

API CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  (void)graph;
  for (size_t i = 0; i < count; i++) {
    struct Node *node = to[i];
    size_t kept = 0;
    for (size_t j = 0; j < node->dependency_count; j++) {
      if (node->dependencies[j] != from[i]) node->dependencies[kept++] = node->dependencies[j];
    }
    node->dependency_count = kept;
  }
  return CUDA_SUCCESS;
}

API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const void *edges, size_t count) {
  (void)edges;
  return cuGraphAddDependencies(graph, from, to, count);
}

API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const void *edges, size_t count) {
  (void)edges;
  return cuGraphRemoveDependencies(graph, from, to, count);
}

API CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, void *edges, size_t *count) {
  const CUresult status = cuGraphGetEdges(graph, from, to, count);
  if (edges != NULL) memset(edges, 0, *count * 8);
  return status;
}

API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *list, void *edges, size_t *count) {
  (void)edges;
  return cuGraphNodeGetDependencies(node, list, count);
}

API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *list, void *edges, size_t *count) {
  (void)edges;
  return cuGraphNodeGetDependentNodes(node, list, count);
}

API CUresult cuGraphDestroyNode(CUgraphNode node) {
  struct Graph *graph = node->graph;
  size_t kept = 0;
  for (size_t i = 0; i < graph->count; i++) {
    struct Node *other = graph->nodes[i];
    const struct Node *to = other;
    cuGraphRemoveDependencies(graph, (CUgraphNode[]){node}, (CUgraphNode[]){other}, 1);
    if (to != node) graph->nodes[kept++] = other;
  }
  graph->count = kept;
  return CUDA_SUCCESS;
}

API CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned flags) {
  if (!is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  (void)flags;
  FILE *file = fopen(path, "w");
  if (file == NULL) return CUDA_ERROR_OPERATING_SYSTEM;
  fprintf(file, "digraph graph_%llu {\n", (unsigned long long)graph->id);
  for (size_t i = 0; i < graph->count; i++) {
    const struct Node *node = graph->nodes[i];
    fprintf(file, "  \"%p\" [label=\"%s\"];\n", (const void *)node, node->kind == NODE_KERNEL ? node->kernel.function->name : "");
    for (size_t j = 0; j < node->dependency_count; j++) fprintf(file, "  \"%p\" -> \"%p\";\n", (void *)node->dependencies[j], (const void *)node);
  }
  fprintf(file, "}\n");
  fclose(file);
  return CUDA_SUCCESS;
}

// ---- executable graphs -------------------------------------------------------------------------

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  if (!is_handle(HANDLE_GRAPH, graph) || exec == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct Exec *made = calloc(1, sizeof *made);
  if (made == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  made->flags = flags;
  if (!copy_graph(&made->graph, graph)) return CUDA_ERROR_INVALID_VALUE;
  if (!add_handle(HANDLE_EXEC, made)) return CUDA_ERROR_OUT_OF_MEMORY;
  *exec = made;
  return CUDA_SUCCESS;
}

API CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t bytes) {
  if (failed != NULL) *failed = NULL;
  if (log != NULL && bytes > 0) log[0] = 0;
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}

struct InstantiateParams {
  uint64_t flags;
  CUstream upload;
  CUgraphNode failed;
  int result;
};

API CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, struct InstantiateParams *p) {
  p->failed = NULL;
  p->result = 0;
  return cuGraphInstantiateWithFlags(exec, graph, p->flags);
}

API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  if (!is_handle(HANDLE_EXEC, exec)) return CUDA_ERROR_INVALID_VALUE;
  if (sticky != CUDA_SUCCESS) return sticky;
  const struct Node node = {.kind = NODE_GRAPH, .child = &exec->graph};
  return submit(stream, &node);
}

API CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return is_handle(HANDLE_EXEC, exec) && is_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  if (!remove_handle(HANDLE_EXEC, exec)) return CUDA_ERROR_INVALID_VALUE;
  free_nodes(&exec->graph);
  free(exec);
  return CUDA_SUCCESS;
}

API CUresult cuGraphExecGetFlags(CUgraphExec exec, uint64_t *flags) {
  if (!is_handle(HANDLE_EXEC, exec)) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

#define NODE_OF(exec, origin)                                  \
  if (!is_handle(HANDLE_EXEC, exec)) return CUDA_ERROR_INVALID_VALUE; \
  struct Node *const node = copy_of(&(exec)->graph, (origin)); \
  if (node == NULL) return CUDA_ERROR_INVALID_VALUE

API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode origin, const struct KernelParams *p) {
  NODE_OF(exec, origin);
  return set_kernel(node, p, false);
}

API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode origin, const struct KernelParams *p) {
  NODE_OF(exec, origin);
  return set_kernel(node, p, true);
}

API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode origin, const struct Memcpy3D *m, CUcontext context) {
  (void)context;
  NODE_OF(exec, origin);
  return cuGraphMemcpyNodeSetParams(node, m);
}

API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode origin, const struct MemsetParams *p, CUcontext context) {
  (void)context;
  NODE_OF(exec, origin);
  return cuGraphMemsetNodeSetParams(node, p);
}

API CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode origin, const struct HostParams *p) {
  NODE_OF(exec, origin);
  return cuGraphHostNodeSetParams(node, p);
}

API CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode origin, const struct NodeParams *p) {
  NODE_OF(exec, origin);
  return set_params(node, p);
}

API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode origin, unsigned enabled) {
  NODE_OF(exec, origin);
  node->disabled = enabled == 0;
  return CUDA_SUCCESS;
}

API CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode origin, unsigned *enabled) {
  NODE_OF(exec, origin);
  *enabled = !node->disabled;
  return CUDA_SUCCESS;
}

// UpdateResult says why an executable graph cannot take the parameters of another graph.
struct UpdateResult {
  int result;
  CUgraphNode node, from;
};

enum { kUpdateTopology = 2, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910 };

// can_update reports whether two graphs have the same nodes in the same order.
static bool can_update(const struct Graph *a, const struct Graph *b) {
  bool same = a->count == b->count;
  for (size_t i = 0; same && i < a->count; i++) {
    same = a->nodes[i]->kind == b->nodes[i]->kind && a->nodes[i]->dependency_count == b->nodes[i]->dependency_count;
  }
  return same;
}

API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, struct UpdateResult *result) {
  if (!is_handle(HANDLE_EXEC, exec) || !is_handle(HANDLE_GRAPH, graph)) return CUDA_ERROR_INVALID_VALUE;
  struct Graph updated = {0};
  if (result != NULL) memset(result, 0, sizeof *result);
  if (copy_graph(&updated, graph) && can_update(&exec->graph, &updated)) {
    for (size_t i = 0; i < updated.count; i++) {
      updated.nodes[i]->origin = exec->graph.nodes[i]->origin;
      updated.nodes[i]->disabled = exec->graph.nodes[i]->disabled;
    }
    free_nodes(&exec->graph);
    exec->graph = updated;
    return CUDA_SUCCESS;
  }
  free_nodes(&updated);
  if (result != NULL) result->result = kUpdateTopology;
  return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *failed, int *result) {
  struct UpdateResult detail;
  const CUresult status = cuGraphExecUpdate_v2(exec, graph, &detail);
  if (failed != NULL) *failed = NULL;
  if (result != NULL) *result = detail.result;
  return status;
}

API CUresult cuGraphRetainUserObject(CUgraph graph, void *object, unsigned count, unsigned flags) {
  (void)graph, (void)object, (void)count, (void)flags;
  return CUDA_SUCCESS;
}
