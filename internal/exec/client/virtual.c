// Virtual memory. A piece of memory is made where it is mapped: the simulator has the bytes of an address
// in one place. So a piece has one mapping.

#include "client.h"

#include <stdlib.h>

// Piece is physical memory.
struct Piece {
  size_t bytes;
  uint64_t mapped;  // its address; 0 before it is mapped
  unsigned char properties[64];
};

struct Location {
  int type, id;
};

// PieceProperties describes a piece.
struct PieceProperties {
  int type, handles;
  struct Location location;
  void *security;
  unsigned char flags[8];
};

enum { kGranularity = 2 << 20, kDeviceLocation = 1 };

API CUresult cuMemGetAllocationGranularity(size_t *bytes, const struct PieceProperties *p, int option) {
  (void)p, (void)option;
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags) {
  (void)wanted, (void)flags;
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment > kGranularity) return unsupported("cuMemAddressReserve with an alignment above 2 MiB");
  return allocate(bytes, ALLOCATE_RESERVED, address);
}

CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemGetInfo_v2(size_t *, size_t *);

API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  (void)bytes;
  return cuMemFree_v2(address);
}

API CUresult cuMemCreate(struct Piece **piece, size_t bytes, const struct PieceProperties *p, unsigned long long flags) {
  (void)flags;
  if (bytes == 0 || bytes % kGranularity != 0 || p == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (p->location.type == kDeviceLocation && p->location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (p->handles != 0) return unsupported("cuMemCreate of memory for other processes");
  size_t left;
  const CUresult status = cuMemGetInfo_v2(&left, NULL);
  if (status != CUDA_SUCCESS) return status;
  if (bytes > left) return CUDA_ERROR_OUT_OF_MEMORY;
  *piece = calloc(1, sizeof **piece);
  if (*piece == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*piece)->bytes = bytes;
  *(struct PieceProperties *)(*piece)->properties = *p;
  return CUDA_SUCCESS;
}

// A piece is used by its mappings too, so that its description stays.
API CUresult cuMemRelease(struct Piece *piece) { return piece == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }

API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, struct Piece *piece, unsigned long long flags) {
  if (piece == NULL || offset != 0 || flags != 0 || bytes > piece->bytes) return CUDA_ERROR_INVALID_VALUE;
  if (piece->mapped != 0) return unsupported("cuMemMap of memory that has an address already");
  const uint64_t device = ((struct PieceProperties *)piece->properties)->location.type == kDeviceLocation;
  const uint64_t request[3] = {address, bytes, device};
  const CUresult status = call(REQUEST_MAP, request, sizeof request, NULL, 0, NULL, 0, NULL);
  if (status != CUDA_SUCCESS) return status;
  piece->mapped = address;
  if (!device) attuneOpenMemory(address, bytes);
  return CUDA_SUCCESS;
}

API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  flush_output();
  const uint64_t request[2] = {address, bytes};
  const CUresult status = call(REQUEST_UNMAP, request, sizeof request, NULL, 0, NULL, 0, NULL);
  if (status == CUDA_SUCCESS) close_memory(address, bytes);
  return status;
}

API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const void *list, size_t count) {
  (void)address, (void)bytes, (void)list, (void)count;
  return CUDA_SUCCESS;
}

API CUresult cuMemGetAccess(unsigned long long *flags, const struct Location *location, CUdeviceptr address) {
  (void)location, (void)address;
  *flags = 3;  // read and write
  return CUDA_SUCCESS;
}

API CUresult cuMemGetAllocationPropertiesFromHandle(struct PieceProperties *p, struct Piece *piece) {
  if (piece == NULL) return CUDA_ERROR_INVALID_VALUE;
  *p = *(struct PieceProperties *)piece->properties;
  return CUDA_SUCCESS;
}
