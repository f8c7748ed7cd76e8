// The device and its context. There is one of each.

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Context {
  unsigned flags;
  bool active;
};

static struct Context the_context = {.active = true};
struct Context *const primary_context = &the_context;
static __thread struct Context *current;

enum { kDriverVersion = 13000 };

API CUresult cuInit(unsigned flags) {
  (void)flags;
  return connect_server();
}

API CUresult cuDriverGetVersion(int *version) {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *count) {
  *count = 1;
  return connect_server();
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return connect_server();
}

API CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
  (void)device;
  const CUresult status = connect_server();
  if (bytes > 0) snprintf(name, (size_t)bytes, "%s", machine.name);
  return status;
}

API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) {
  (void)device;
  memcpy(uuid, "attune simulator", 16);
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  (void)device;
  const CUresult status = connect_server();
  *bytes = machine.memory_bytes;
  return status;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  const CUresult status = connect_server();
  if (status != CUDA_SUCCESS) return status;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (value == NULL || attribute <= 0) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute < kAttributes ? machine.attributes[attribute] : 0;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  cuDeviceGetAttribute(major, 75, device);
  return cuDeviceGetAttribute(minor, 76, device);
}

struct DeviceProperties {
  int threads, block[3], grid[3], shared, constants, warp, pitch, registers, clock, alignment;
};

API CUresult cuDeviceGetProperties(struct DeviceProperties *p, CUdevice device) {
  (void)device;
  const int *a = machine.attributes;
  *p = (struct DeviceProperties){a[1], {a[2], a[3], a[4]}, {a[5], a[6], a[7]}, a[8], a[9], a[10], a[11], a[12], a[13], a[14]};
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device) {
  (void)device;
  snprintf(id, (size_t)bytes, "0000:01:00.0");
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id) {
  (void)id;
  *device = 0;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  *can = 0;
  return device != 0 || peer != 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

API CUresult cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice device, CUdevice peer) {
  (void)attribute, (void)device, (void)peer;
  *value = 0;
  return CUDA_ERROR_INVALID_DEVICE;  // a pair is two devices
}

API CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, int format, unsigned channels, CUdevice device) {
  (void)format, (void)channels, (void)device;
  *width = 1 << 28;
  return CUDA_SUCCESS;
}

// ---- contexts ----------------------------------------------------------------------------------

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *context = primary_context;
  return connect_server();
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  (void)device;
  flush_output();
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  (void)device;
  flush_output();
  sticky = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  (void)device;
  primary_context->flags = flags;
  return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  (void)device;
  *flags = primary_context->flags;
  *active = 1;
  return CUDA_SUCCESS;
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
  (void)flags;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *context = current = primary_context;
  return connect_server();
}

API CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
  (void)affinity, (void)count;
  return cuCtxCreate_v2(context, flags, device);
}

API CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device) {
  (void)params;
  return cuCtxCreate_v2(context, flags, device);
}

API CUresult cuCtxDestroy_v2(CUcontext context) {
  (void)context;
  flush_output();
  current = NULL;
  return CUDA_SUCCESS;
}

API CUresult cuCtxDetach(CUcontext context) { return cuCtxDestroy_v2(context); }

API CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context) {
  *context = current;
  return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(CUcontext context) { return cuCtxSetCurrent(context); }

API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  if (context != NULL) *context = current;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
  if (current == NULL) return CUDA_ERROR_INVALID_CONTEXT;
  *device = 0;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
  (void)context;
  *device = 0;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetFlags(unsigned *flags) {
  *flags = primary_context->flags;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSetFlags(unsigned flags) {
  primary_context->flags = flags;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  (void)context;
  *id = 1;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
  (void)context;
  *version = 3020;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void) {
  const CUresult status = check_captures(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, false);
  return status == CUDA_SUCCESS ? synchronize() : status;
}

API CUresult cuCtxSynchronize_v2(CUcontext context) {
  (void)context;
  return synchronize();
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least != NULL) *least = 0;
  if (greatest != NULL) *greatest = -5;
  return CUDA_SUCCESS;
}

// The values of limits; only the heap has an effect.
enum { kLimits = 16, kLimitHeap = 2 };

static size_t limits[kLimits] = {1024, 1 << 20, 8 << 20, 2, 2048, 64};

API CUresult cuCtxSetLimit(int limit, size_t value) {
  if (limit < 0 || limit >= kLimits) return CUDA_ERROR_INVALID_VALUE;
  limits[limit] = value;
  const uint64_t request[2] = {(uint64_t)limit, value};
  return call(REQUEST_LIMIT, request, sizeof request, NULL, 0, NULL, 0, NULL);
}

API CUresult cuCtxGetLimit(size_t *value, int limit) {
  if (limit < 0 || limit >= kLimits) return CUDA_ERROR_INVALID_VALUE;
  *value = limits[limit];
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetCacheConfig(int *config) {
  *config = 0;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSetCacheConfig(int config) {
  (void)config;
  return CUDA_SUCCESS;
}

API CUresult cuCtxGetSharedMemConfig(int *config) {
  *config = 1;
  return CUDA_SUCCESS;
}

API CUresult cuCtxSetSharedMemConfig(int config) {
  (void)config;
  return CUDA_SUCCESS;
}

API CUresult cuCtxResetPersistingL2Cache(void) { return CUDA_SUCCESS; }

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  (void)peer, (void)flags;
  return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

API CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  (void)peer;
  return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

API CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
API CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

// ---- tensor maps -------------------------------------------------------------------------------

struct TensorMapRequest {
  uint32_t type, rank;
  uint64_t address, extents[5], strides[5];
  uint32_t box[5], element_strides[5], interleave, swizzle, promotion, fill;
};

API CUresult cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *extents, const uint64_t *strides,
                                    const uint32_t *box, const uint32_t *element_strides, int interleave, int swizzle, int promotion,
                                    int fill) {
  if (map == NULL || rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
  struct TensorMapRequest r = {.type = (uint32_t)type, .rank = rank, .address = (uintptr_t)address, .interleave = (uint32_t)interleave,
                               .swizzle = (uint32_t)swizzle, .promotion = (uint32_t)promotion, .fill = (uint32_t)fill};
  for (uint32_t i = 0; i < rank; i++) {
    r.extents[i] = extents[i];
    r.box[i] = box[i];
    r.element_strides[i] = element_strides[i];
    if (i + 1 < rank) r.strides[i] = strides[i];
  }
  return call(REQUEST_TENSORMAP, &r, sizeof r, NULL, 0, map, 128, NULL);
}

// ---- errors ------------------------------------------------------------------------------------

struct ErrorText {
  CUresult code;
  const char *name, *text;
};

static const struct ErrorText errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed because it included changes which violated constraints"},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "cluster misconfiguration"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct ErrorText *error_text(CUresult code) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    if (errors[i].code == code) return &errors[i];
  }
  return NULL;
}

API CUresult cuGetErrorName(CUresult code, const char **name) {
  const struct ErrorText *e = error_text(code);
  *name = e == NULL ? NULL : e->name;
  return e == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API CUresult cuGetErrorString(CUresult code, const char **text) {
  const struct ErrorText *e = error_text(code);
  *text = e == NULL ? NULL : e->text;
  return e == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
