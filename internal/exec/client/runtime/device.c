// The device, errors, and what belongs to a thread.

#include "runtime.h"

#include <stdio.h>
#include <string.h>

static __thread cudaError_t last;

cudaError_t record(CUresult status) {
  if (status != 0 && status != CUDA_ERROR_NOT_READY) last = status;
  return status;
}

cudaError_t ready(void) {
  static __thread bool done;
  if (done) return 0;
  CUcontext context;
  CUresult status = cuInit(0);
  if (status == 0) status = cuDevicePrimaryCtxRetain(&context, 0);
  if (status == 0) status = cuCtxSetCurrent(context);
  done = status == 0;
  return status;
}

API cudaError_t cudaGetLastError(void) {
  const cudaError_t status = last;
  last = 0;
  return status;
}

API cudaError_t cudaPeekAtLastError(void) { return last; }

// Errors that the runtime has and the driver has not.
struct ErrorText {
  cudaError_t code;
  const char *name, *text;
};

static const struct ErrorText own_errors[] = {
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {13, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
};

// The runtime's names of the driver's errors.
static const struct ErrorText driver_names[] = {
    {0, "cudaSuccess", ""},
    {1, "cudaErrorInvalidValue", ""},
    {2, "cudaErrorMemoryAllocation", ""},
    {3, "cudaErrorInitializationError", ""},
    {100, "cudaErrorNoDevice", ""},
    {101, "cudaErrorInvalidDevice", ""},
    {200, "cudaErrorInvalidKernelImage", ""},
    {201, "cudaErrorDeviceUninitialized", ""},
    {209, "cudaErrorNoKernelImageForDevice", ""},
    {217, "cudaErrorPeerAccessUnsupported", ""},
    {218, "cudaErrorInvalidPtx", ""},
    {301, "cudaErrorFileNotFound", ""},
    {304, "cudaErrorOperatingSystem", ""},
    {400, "cudaErrorInvalidResourceHandle", ""},
    {401, "cudaErrorIllegalState", ""},
    {500, "cudaErrorSymbolNotFound", ""},
    {600, "cudaErrorNotReady", ""},
    {700, "cudaErrorIllegalAddress", ""},
    {701, "cudaErrorLaunchOutOfResources", ""},
    {702, "cudaErrorLaunchTimeout", ""},
    {704, "cudaErrorPeerAccessAlreadyEnabled", ""},
    {705, "cudaErrorPeerAccessNotEnabled", ""},
    {709, "cudaErrorContextIsDestroyed", ""},
    {710, "cudaErrorAssert", ""},
    {712, "cudaErrorHostMemoryAlreadyRegistered", ""},
    {713, "cudaErrorHostMemoryNotRegistered", ""},
    {715, "cudaErrorIllegalInstruction", ""},
    {716, "cudaErrorMisalignedAddress", ""},
    {719, "cudaErrorLaunchFailure", ""},
    {720, "cudaErrorCooperativeLaunchTooLarge", ""},
    {800, "cudaErrorNotPermitted", ""},
    {801, "cudaErrorNotSupported", ""},
    {900, "cudaErrorStreamCaptureUnsupported", ""},
    {901, "cudaErrorStreamCaptureInvalidated", ""},
    {904, "cudaErrorStreamCaptureUnjoined", ""},
    {906, "cudaErrorStreamCaptureImplicit", ""},
    {907, "cudaErrorCapturedEvent", ""},
    {910, "cudaErrorGraphExecUpdateFailure", ""},
    {912, "cudaErrorInvalidClusterSize", ""},
    {999, "cudaErrorUnknown", ""},
};

#define FIND(list, wanted, field)                                  \
  for (size_t i = 0; i < sizeof(list) / sizeof *(list); i++) {     \
    if ((list)[i].code == (wanted)) return (list)[i].field;        \
  }

API const char *cudaGetErrorName(cudaError_t code) {
  FIND(own_errors, code, name)
  FIND(driver_names, code, name)
  return "unrecognized error code";
}

API const char *cudaGetErrorString(cudaError_t code) {
  const char *text;
  FIND(own_errors, code, text)
  return cuGetErrorString(code, &text) == 0 ? text : "unrecognized error code";
}

// ---- the device --------------------------------------------------------------------------------

API cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return record(ready());
}

API cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return record(ready());
}

API cudaError_t cudaSetDevice(int device) { return record(device == 0 ? ready() : cudaErrorInvalidDevice); }

API cudaError_t cudaInitDevice(int device, unsigned flags, unsigned more) {
  (void)flags, (void)more;
  return cudaSetDevice(device);
}

API cudaError_t cudaSetDeviceFlags(unsigned flags) {
  (void)flags;
  return record(ready());
}

API cudaError_t cudaGetDeviceFlags(unsigned *flags) {
  *flags = 8;  // host memory can be mapped
  return record(ready());
}

API cudaError_t cudaSetValidDevices(int *list, int count) {
  (void)list, (void)count;
  return record(ready());
}

API cudaError_t cudaChooseDevice(int *device, const void *properties) {
  (void)properties;
  return cudaGetDevice(device);
}

API cudaError_t cudaDriverGetVersion(int *version) { return record(cuDriverGetVersion(version)); }

API cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = RUNTIME * 1000;
  return 0;
}

API cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) { DO(cuDeviceGetAttribute(value, attribute, device)); }
API cudaError_t cudaDeviceSynchronize(void) { DO(cuCtxSynchronize()); }
API cudaError_t cudaThreadSynchronize(void) { return cudaDeviceSynchronize(); }

CUresult cuDevicePrimaryCtxReset_v2(CUdevice);

API cudaError_t cudaDeviceReset(void) { DO(cuDevicePrimaryCtxReset_v2(0)); }
API cudaError_t cudaThreadExit(void) { return cudaDeviceReset(); }

CUresult cuCtxGetLimit(size_t *, int);
CUresult cuCtxSetLimit(int, size_t);

API cudaError_t cudaDeviceGetLimit(size_t *value, int limit) { DO(cuCtxGetLimit(value, limit)); }
API cudaError_t cudaDeviceSetLimit(int limit, size_t value) { DO(cuCtxSetLimit(limit, value)); }

// Settings of caches have no effect here.
API cudaError_t cudaDeviceSetCacheConfig(int config) {
  (void)config;
  return record(ready());
}

API cudaError_t cudaDeviceGetCacheConfig(int *config) {
  *config = 0;
  return record(ready());
}

API cudaError_t cudaDeviceSetSharedMemConfig(int config) { return cudaDeviceSetCacheConfig(config); }

API cudaError_t cudaDeviceGetSharedMemConfig(int *config) {
  *config = 1;
  return record(ready());
}

API cudaError_t cudaCtxResetPersistingL2Cache(void) { return record(ready()); }

CUresult cuCtxGetStreamPriorityRange(int *, int *);

API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { DO(cuCtxGetStreamPriorityRange(least, greatest)); }

API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = 0;
  return record(device != 0 || peer != 0 ? cudaErrorInvalidDevice : ready());
}

API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  (void)peer, (void)flags;
  return record(cudaErrorInvalidDevice);
}

API cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return record(peer == 0 ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : cudaErrorInvalidDevice);
}

CUresult cuDeviceGetP2PAttribute(int *, int, CUdevice, CUdevice);

API cudaError_t cudaDeviceGetP2PAttribute(int *value, int attribute, int device, int peer) {
  DO(cuDeviceGetP2PAttribute(value, attribute, device, peer));
}

CUresult cuDeviceGetPCIBusId(char *, int, CUdevice);

API cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device) { DO(cuDeviceGetPCIBusId(id, bytes, device)); }

API cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
  (void)id;
  return cudaGetDevice(device);
}

API cudaError_t cudaProfilerStart(void) { return record(ready()); }
API cudaError_t cudaProfilerStop(void) { return record(ready()); }

// ---- properties --------------------------------------------------------------------------------

// Properties begins alike in all versions.
struct Properties {
  char name[256];
  unsigned char uuid[16], luid[8];
  unsigned luid_mask;
  size_t memory, shared;
  int registers, warp;
  size_t pitch;
  int threads, block[3], grid[3];
#if RUNTIME < 13
  int clock;
#endif
  size_t constants;
  int major, minor;
  size_t texture_alignment, texture_pitch_alignment;
#if RUNTIME < 13
  int overlap;
#endif
  int multiprocessors;
#if RUNTIME < 13
  int timeout;
#endif
  int integrated, map_host;
#if RUNTIME < 13
  int compute_mode;
#endif
  int texture_1d, texture_1d_mipmap;
#if RUNTIME < 13
  int texture_1d_linear;
#endif
  int texture_2d[2], texture_2d_mipmap[2], texture_2d_linear[3], texture_2d_gather[2], texture_3d[3], texture_3d_alternate[3];
  int cubemap, layered_1d[2], layered_2d[3], cubemap_layered[2];
  int surface_1d, surface_2d[2], surface_3d[3], surface_layered_1d[2], surface_layered_2d[3], surface_cubemap, surface_cubemap_layered[2];
  size_t surface_alignment;
  int concurrent, ecc, pci_bus, pci_device, pci_domain, tcc, async_engines, unified;
#if RUNTIME < 13
  int memory_clock;
#endif
  int bus_width, l2, persisting_l2, multiprocessor_threads, priorities, global_l1, local_l1;
  size_t multiprocessor_shared;
  int multiprocessor_registers, managed, multi_board, board_group, native_atomics;
#if RUNTIME < 13
  int double_ratio;
#endif
  int pageable, concurrent_managed, preemption, registered_pointer, cooperative;
#if RUNTIME < 13
  int cooperative_multi;
#endif
  size_t shared_optin;
  int pageable_tables, direct_managed, multiprocessor_blocks, window;
  size_t reserved_shared;
  int host_register, sparse, read_only_register, timeline, pools, rdma;
  unsigned rdma_flush;
  int rdma_order;
  unsigned pool_handles;
  int deferred, ipc_event, cluster, function_pointers;
  int reserved[68];  // of later fields too
};

// PropertiesBytes is the size of the structure in the headers of the version.
enum { kPropertiesBytes = RUNTIME < 12 ? 712 : RUNTIME < 13 ? 1032 : 1008 };

CUresult cuDeviceGetName(char *, int, CUdevice);
CUresult cuDeviceTotalMem_v2(size_t *, CUdevice);
CUresult cuDeviceGetUuid_v2(unsigned char *, CUdevice);

static int attribute(int number) {
  int value = 0;
  cuDeviceGetAttribute(&value, number, 0);
  return value;
}

// fill_clocks fills the fields that version 13 has dropped.
static void fill_clocks(struct Properties *p) {
#if RUNTIME < 13
  p->clock = attribute(13);
  p->overlap = attribute(15);
  p->timeout = attribute(17);
  p->memory_clock = attribute(36);
  p->double_ratio = attribute(87);
  p->texture_1d_linear = attribute(69);
#else
  (void)p;
#endif
}

static void fill_textures(struct Properties *p) {
  p->texture_alignment = (size_t)attribute(14);
  p->texture_pitch_alignment = (size_t)attribute(51);
  p->surface_alignment = (size_t)attribute(30);
  p->texture_1d = attribute(21);
  for (int i = 0; i < 2; i++) p->texture_2d[i] = attribute(22 + i);
  for (int i = 0; i < 3; i++) p->texture_3d[i] = attribute(24 + i);
}

static void fill_sizes(struct Properties *p) {
  p->shared = (size_t)attribute(8);
  p->registers = attribute(12);
  p->warp = attribute(10);
  p->pitch = (size_t)attribute(11);
  p->threads = attribute(1);
  for (int i = 0; i < 3; i++) p->block[i] = attribute(2 + i), p->grid[i] = attribute(5 + i);
  p->constants = (size_t)attribute(9);
  p->major = attribute(75);
  p->minor = attribute(76);
  p->multiprocessors = attribute(16);
  p->bus_width = attribute(37);
  p->l2 = attribute(38);
  p->persisting_l2 = attribute(108);
  p->window = attribute(109);
  p->multiprocessor_threads = attribute(39);
  p->multiprocessor_shared = (size_t)attribute(81);
  p->multiprocessor_registers = attribute(82);
  p->multiprocessor_blocks = attribute(106);
  p->shared_optin = (size_t)attribute(97);
  p->reserved_shared = (size_t)attribute(111);
  p->async_engines = attribute(40);
}

static void fill_abilities(struct Properties *p) {
  p->map_host = attribute(19);
  p->concurrent = attribute(31);
  p->ecc = attribute(32);
  p->pci_bus = attribute(33);
  p->unified = attribute(41);
  p->priorities = attribute(78);
  p->global_l1 = attribute(79);
  p->local_l1 = attribute(80);
  p->managed = attribute(83);
  p->concurrent_managed = attribute(89);
  p->preemption = attribute(90);
  p->registered_pointer = attribute(91);
  p->cooperative = attribute(95);
  p->host_register = attribute(99);
  p->pools = attribute(115);
  p->cluster = attribute(120);
  p->function_pointers = attribute(129);
}

static cudaError_t properties(void *out, int device) {
  const cudaError_t status = ready();
  if (status != 0) return record(status);
  if (device != 0) return record(cudaErrorInvalidDevice);
  struct Properties p;
  memset(&p, 0, sizeof p);
  cuDeviceGetName(p.name, sizeof p.name, 0);
  cuDeviceGetUuid_v2(p.uuid, 0);
  cuDeviceTotalMem_v2(&p.memory, 0);
  fill_sizes(&p);
  fill_abilities(&p);
  fill_textures(&p);
  fill_clocks(&p);
  memcpy(out, &p, kPropertiesBytes < sizeof p ? kPropertiesBytes : sizeof p);
  return 0;
}

API cudaError_t cudaGetDeviceProperties(void *out, int device) { return properties(out, device); }
API cudaError_t cudaGetDeviceProperties_v2(void *out, int device) { return properties(out, device); }
