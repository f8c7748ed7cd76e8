// Launches, attributes of kernels, and occupancy.

#include "runtime.h"

#include <string.h>

CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);

// Configuration is what <<<...>>> leaves for the stub of a kernel.
struct Configuration {
  dim3 grid, block;
  size_t shared;
  CUstream stream;
};

enum { kMostConfigurations = 16 };
static __thread struct Configuration pushed[kMostConfigurations];
static __thread int pushed_count;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream stream) {
  if (pushed_count == kMostConfigurations) return 1;
  pushed[pushed_count++] = (struct Configuration){grid, block, shared, stream};
  return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, CUstream *stream) {
  if (pushed_count == 0) return record(52);  // no configuration
  const struct Configuration c = pushed[--pushed_count];
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *stream = c.stream;
  return 0;
}

// launch_status is the runtime's error for one of the driver: a launch whose extents are not allowed
// has an error of its own.
static cudaError_t launch_status(CUresult status, dim3 grid, dim3 block) {
  const unsigned long long threads = (unsigned long long)block.x * block.y * block.z;
  const bool allowed = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y <= 65535 && grid.z <= 65535 && threads > 0 && threads <= 1024 && block.z <= 64;
  return status == CUDA_ERROR_INVALID_VALUE && !allowed ? cudaErrorInvalidConfiguration : status;
}

static cudaError_t launch(const void *host, dim3 grid, dim3 block, void **args, size_t shared, CUstream stream, bool cooperative) {
  CUfunction function;
  cudaError_t status = ready();
  if (status == 0) status = function_of(host, &function);
  if (status != 0) return record(status);
  const unsigned bytes = (unsigned)shared;
  status = cooperative
               ? cuLaunchCooperativeKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, bytes, stream, args)
               : cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, bytes, stream, args, NULL);
  return record(launch_status(status, grid, block));
}

API cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared, CUstream stream) {
  return launch(host, grid, block, args, shared, stream, false);
}

API cudaError_t __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, CUstream stream) {
  return launch(kernel, grid, block, args, shared, stream, false);
}

API cudaError_t __cudaLaunchKernel_ptsz(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, CUstream stream) {
  return launch(kernel, grid, block, args, shared, stream, false);
}

API cudaError_t cudaLaunchKernel_ptsz(const void *host, dim3 grid, dim3 block, void **args, size_t shared, CUstream stream) {
  return launch(host, grid, block, args, shared, stream, false);
}

API cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared, CUstream stream) {
  return launch(host, grid, block, args, shared, stream, true);
}

struct RuntimeConfig {
  dim3 grid, block;
  size_t shared;
  CUstream stream;
  void *attributes;
  unsigned count;
};

struct DriverConfig {
  dim3 grid, block;
  unsigned shared;
  CUstream stream;
  void *attributes;
  unsigned count;
};

CUresult cuLaunchKernelEx(const struct DriverConfig *, CUfunction, void **, void **);

static struct DriverConfig driver_config(const struct RuntimeConfig *c) {
  return (struct DriverConfig){c->grid, c->block, (unsigned)c->shared, c->stream, c->attributes, c->count};
}

API cudaError_t cudaLaunchKernelExC(const struct RuntimeConfig *config, const void *host, void **args) {
  CUfunction function;
  cudaError_t status = ready();
  if (status == 0) status = function_of(host, &function);
  if (status != 0) return record(status);
  const struct DriverConfig driver = driver_config(config);
  return record(launch_status(cuLaunchKernelEx(&driver, function, args, NULL), config->grid, config->block));
}

CUresult cuLaunchHostFunc(CUstream, CUhostFn, void *);

API cudaError_t cudaLaunchHostFunc(CUstream stream, CUhostFn host, void *data) { DO(cuLaunchHostFunc(stream, host, data)); }

// ---- kernels -----------------------------------------------------------------------------------

API cudaError_t __cudaGetKernel(CUfunction *kernel, const void *host) {
  const cudaError_t status = ready();
  return record(status != 0 ? status : function_of(host, kernel));
}

API cudaError_t cudaGetKernel(CUfunction *kernel, const void *host) { return __cudaGetKernel(kernel, host); }
API cudaError_t cudaGetFuncBySymbol(CUfunction *function, const void *host) { return __cudaGetKernel(function, host); }

CUresult cuFuncGetAttribute(int *, int, CUfunction);
CUresult cuFuncSetAttribute(CUfunction, int, int);
CUresult cuFuncGetName(const char **, CUfunction);

// FunctionAttributes begins with sizes; the others are in the order of the driver's numbers.
struct FunctionAttributes {
  size_t shared, constants, local;
  int threads, registers, ptx, binary, cache, dynamic, carveout, cluster_set, cluster[3], scheduling, large_cluster, reserved[16];
};

API cudaError_t cudaFuncGetAttributes(struct FunctionAttributes *a, const void *host) {
  CUfunction function;
  const cudaError_t status = __cudaGetKernel(&function, host);
  if (status != 0) return status;
  int v[16] = {0};
  for (int i = 0; i < 16; i++) cuFuncGetAttribute(&v[i], i, function);
  *a = (struct FunctionAttributes){.shared = (size_t)v[1], .constants = (size_t)v[2], .local = (size_t)v[3], .threads = v[0],
                                   .registers = v[4], .ptx = v[5], .binary = v[6], .cache = v[7], .dynamic = v[8], .carveout = v[9],
                                   .cluster_set = v[10], .cluster = {v[11], v[12], v[13]}, .large_cluster = v[14], .scheduling = v[15]};
  return 0;
}

API cudaError_t cudaFuncSetAttribute(const void *host, int attribute, int value) {
  CUfunction function;
  const cudaError_t status = __cudaGetKernel(&function, host);
  return status != 0 ? status : record(cuFuncSetAttribute(function, attribute, value));
}

API cudaError_t cudaFuncGetName(const char **name, const void *host) {
  CUfunction function;
  const cudaError_t status = __cudaGetKernel(&function, host);
  return status != 0 ? status : record(cuFuncGetName(name, function));
}

API cudaError_t cudaFuncSetCacheConfig(const void *host, int config) {
  (void)host, (void)config;
  return record(ready());
}

API cudaError_t cudaFuncSetSharedMemConfig(const void *host, int config) { return cudaFuncSetCacheConfig(host, config); }

CUresult cuFuncGetParamInfo(CUfunction, size_t, size_t *, size_t *);

API cudaError_t cudaFuncGetParamInfo(const void *host, size_t index, size_t *offset, size_t *bytes) {
  CUfunction function;
  const cudaError_t status = __cudaGetKernel(&function, host);
  return status != 0 ? status : record(cuFuncGetParamInfo(function, index, offset, bytes));
}

// ---- occupancy ---------------------------------------------------------------------------------

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *, CUfunction, int, size_t);
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *, CUfunction, int, int);
CUresult cuOccupancyMaxPotentialClusterSize(int *, CUfunction, const struct DriverConfig *);
CUresult cuOccupancyMaxActiveClusters(int *, CUfunction, const struct DriverConfig *);

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads, size_t dynamic,
                                                                       unsigned flags) {
  (void)flags;
  CUfunction function;
  const cudaError_t status = __cudaGetKernel(&function, host);
  return status != 0 ? status : record(cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic));
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t dynamic) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, dynamic, 0);
}

API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic, const void *host, int blocks, int threads) {
  CUfunction function;
  const cudaError_t status = __cudaGetKernel(&function, host);
  return status != 0 ? status : record(cuOccupancyAvailableDynamicSMemPerBlock(dynamic, function, blocks, threads));
}

API cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *host, const struct RuntimeConfig *config) {
  CUfunction function;
  const cudaError_t status = __cudaGetKernel(&function, host);
  const struct DriverConfig driver = driver_config(config);
  return status != 0 ? status : record(cuOccupancyMaxPotentialClusterSize(size, function, &driver));
}

API cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *host, const struct RuntimeConfig *config) {
  CUfunction function;
  const cudaError_t status = __cudaGetKernel(&function, host);
  const struct DriverConfig driver = driver_config(config);
  return status != 0 ? status : record(cuOccupancyMaxActiveClusters(clusters, function, &driver));
}
