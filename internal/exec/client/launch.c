// Launches.

#include "client.h"

#include <stdlib.h>
#include <string.h>

// LaunchRequest is the head of a launch. The parameters follow.
struct LaunchRequest {
  uint32_t function, grid[3], block[3], cluster[3], shared, cooperative;
};

enum { kLaunchParamEnd = 0, kLaunchParamPointer = 1, kLaunchParamSize = 2 };

// set_kernel_params copies the parameters of a launch into the node, as the kernel lays them out.
CUresult set_kernel_params(struct Node *node, void **params, void **extra) {
  const struct Function *f = node->kernel.function;
  node->params = calloc(1, f->param_bytes + 8);
  node->param_list = calloc(f->params + 1, sizeof *node->param_list);
  if (node->params == NULL || node->param_list == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t i = 0; i < f->params; i++) {
    node->param_list[i] = node->params + f->offsets[i];
    if (params != NULL && params[i] == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (params != NULL) memcpy(node->param_list[i], params[i], f->sizes[i]);
  }
  if (params != NULL || extra == NULL) return f->params > 0 && params == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  const void *buffer = NULL;
  size_t bytes = 0;
  for (int i = 0; (uintptr_t)extra[i] != kLaunchParamEnd; i += 2) {
    if ((uintptr_t)extra[i] == kLaunchParamPointer) buffer = extra[i + 1];
    if ((uintptr_t)extra[i] == kLaunchParamSize) bytes = *(const size_t *)extra[i + 1];
  }
  memcpy(node->params, buffer, bytes < f->param_bytes ? bytes : f->param_bytes);
  return CUDA_SUCCESS;
}

// run_kernel runs a launch to its end. What the driver refuses is the status; a kernel that fails
// ends the context, which later calls report.
static CUresult run_kernel(const struct Node *node) {
  const struct Kernel *k = &node->kernel;
  struct LaunchRequest request = {.function = k->function->id, .shared = k->shared, .cooperative = k->cooperative};
  memcpy(request.grid, k->grid, sizeof request.grid);
  memcpy(request.block, k->block, sizeof request.block);
  memcpy(request.cluster, k->cluster, sizeof request.cluster);
  int32_t failed = 0;
  const CUresult status =
      call(REQUEST_LAUNCH, &request, sizeof request, node->params, k->function->param_bytes, &failed, sizeof failed, NULL);
  if (status == CUDA_SUCCESS && failed != 0) sticky = failed;
  return status;
}

__thread bool in_callback;

static void leave_callback(const bool *before) { in_callback = *before; }

// call_host calls a function of the program, which may leave by an exception.
static void call_host(CUhostFn host, void *data) {
  __attribute__((cleanup(leave_callback))) const bool before = in_callback;
  in_callback = true;
  host(data);
}

CUresult run_node(const struct Node *node) {
  if (sticky != CUDA_SUCCESS) return sticky;
  if (node->disabled) return CUDA_SUCCESS;
  switch (node->kind) {
    case NODE_KERNEL: return run_kernel(node);
    case NODE_MEMCPY: return run_copy(&node->copy);
    case NODE_MEMSET: return call(REQUEST_FILL, &node->fill, sizeof node->fill, NULL, 0, NULL, 0, NULL);
    case NODE_HOST:
      flush_output();
      call_host(node->host, node->host_data);
      return CUDA_SUCCESS;
    case NODE_GRAPH: return run_graph(node->child);
    case NODE_EVENT_RECORD: {
      extern void stamp_event(struct Event *event);
      stamp_event(node->event);
      return CUDA_SUCCESS;
    }
    default: return CUDA_SUCCESS;
  }
}

// largest_cluster is the number of blocks that a cluster of a kernel may have. More than the 8 that
// each device has are for cuFuncSetAttribute to allow.
static uint64_t largest_cluster(const struct Function *f) {
  return f->attributes[kFunctionLargeClusters] != 0 ? 16 : 8;
}

// cluster_blocks is the number of blocks in a cluster: of the launch, else of the kernel.
static uint64_t cluster_blocks(const struct Kernel *k) {
  uint64_t blocks = 1;
  for (int i = 0; i < 3; i++) {
    const uint32_t compiled = (uint32_t)k->function->attributes[kFunctionClusterWidth + i];
    const uint32_t extent = k->cluster[0] != 0 ? k->cluster[i] : compiled;
    blocks *= extent > 1 ? extent : 1;
  }
  return blocks;
}

// check_launch refuses what the driver refuses before a launch.
static CUresult check_launch(const struct Kernel *k) {
  const struct Function *f = k->function;
  const int *a = machine.attributes;
  uint64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    if (k->grid[i] == 0 || k->block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    if (k->block[i] > (uint32_t)a[2 + i] || k->grid[i] > (uint32_t)a[5 + i]) return CUDA_ERROR_INVALID_VALUE;
    threads *= k->block[i];
  }
  if (threads > (uint64_t)a[1]) return CUDA_ERROR_INVALID_VALUE;
  if (threads > (uint64_t)f->attributes[0]) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const int room = f->attributes[8];  // what cuFuncSetAttribute allows, and 48 KB without it
  const int usual = a[8] - f->attributes[1];
  if ((int64_t)k->shared > (room > usual ? room : usual)) return CUDA_ERROR_INVALID_VALUE;
  return largest_cluster(f) < cluster_blocks(k) ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

static CUresult launch(const struct Kernel *kernel, CUstream stream, void **params, void **extra) {
  if (!is_handle(HANDLE_FUNCTION, kernel->function)) return CUDA_ERROR_INVALID_HANDLE;
  if (sticky != CUDA_SUCCESS) return sticky;
  CUresult status = check_launch(kernel);
  if (status != CUDA_SUCCESS) return status;
  struct Node node = {.kind = NODE_KERNEL, .kernel = *kernel};
  status = set_kernel_params(&node, params, extra);
  if (status == CUDA_SUCCESS) status = submit(stream, &node);
  free(node.params);
  free(node.param_list);
  return status;
}

API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, CUstream stream, void **params, void **extra) {
  const struct Kernel kernel = {.function = function, .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared = shared};
  return launch(&kernel, stream, params, extra);
}

API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                       unsigned bz, unsigned shared, CUstream stream, void **params) {
  const struct Kernel kernel = {
      .function = function, .grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared = shared, .cooperative = 1};
  return launch(&kernel, stream, params, NULL);
}

struct LaunchAttribute {
  int id;
  int padding;
  union {
    char space[64];
    int cooperative;
    uint32_t cluster[3];
  };
};

struct LaunchConfig {
  uint32_t grid[3], block[3], shared;
  CUstream stream;
  struct LaunchAttribute *attributes;
  unsigned count;
};

enum { kAttributeCooperative = 2, kAttributeCluster = 4 };

API CUresult cuLaunchKernelEx(const struct LaunchConfig *config, CUfunction function, void **params, void **extra) {
  if (config == NULL) return CUDA_ERROR_INVALID_VALUE;
  struct Kernel kernel = {.function = function, .shared = config->shared};
  memcpy(kernel.grid, config->grid, sizeof kernel.grid);
  memcpy(kernel.block, config->block, sizeof kernel.block);
  for (unsigned i = 0; i < config->count; i++) {
    const struct LaunchAttribute *a = &config->attributes[i];
    if (a->id == kAttributeCooperative) kernel.cooperative = a->cooperative != 0;
    if (a->id == kAttributeCluster) memcpy(kernel.cluster, a->cluster, sizeof kernel.cluster);
  }
  return launch(&kernel, config->stream, params, extra);
}

API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn host, void *data) {
  const struct Node node = {.kind = NODE_HOST, .host = host, .host_data = data};
  return submit(stream, &node);
}

typedef void (*StreamCallback)(CUstream stream, CUresult status, void *data);

struct Callback {
  StreamCallback function;
  CUstream stream;
  void *data;
};

static void run_callback(void *data) {
  const struct Callback *c = data;
  c->function(c->stream, sticky, c->data);
}

API CUresult cuStreamAddCallback(CUstream stream, StreamCallback callback, void *data, unsigned flags) {
  (void)flags;
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  flush_output();
  struct Callback c = {callback, stream, data};
  call_host(run_callback, &c);
  return CUDA_SUCCESS;
}

// ---- clusters ----------------------------------------------------------------------------------

API CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function, const struct LaunchConfig *config) {
  (void)config;
  *size = (int)largest_cluster(function);
  return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const struct LaunchConfig *config) {
  extern CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, CUfunction, int, size_t);
  int blocks = 0;
  uint32_t size = 1;
  for (unsigned i = 0; i < config->count; i++) {
    const struct LaunchAttribute *a = &config->attributes[i];
    if (a->id == kAttributeCluster) size = a->cluster[0] * a->cluster[1] * a->cluster[2];
  }
  const uint32_t threads = config->block[0] * config->block[1] * config->block[2];
  cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, (int)threads, config->shared);
  *clusters = blocks * machine.attributes[16] / (int)(size == 0 ? 1 : size);
  return CUDA_SUCCESS;
}
