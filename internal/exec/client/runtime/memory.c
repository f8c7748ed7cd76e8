// Memory: allocations, copies, symbols and arrays.

#include "array.h"

#include <string.h>

CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocManaged(CUdeviceptr *, size_t, unsigned);
CUresult cuMemAllocPitch_v2(CUdeviceptr *, size_t *, size_t, size_t, unsigned);
CUresult cuMemHostAlloc(void **, size_t, unsigned);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemFreeHost(void *);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemHostRegister_v2(void *, size_t, unsigned);
CUresult cuMemHostUnregister(void *);

static CUdeviceptr address_of(const void *pointer) { return (uintptr_t)pointer; }

// An allocation of no bytes succeeds and has no address.
#define ALLOCATE(pointer, bytes, call)     \
  if ((pointer) == NULL) return record(1); \
  if ((bytes) == 0) {                      \
    *(pointer) = NULL;                     \
    return record(ready());                \
  }                                        \
  DO(call)

API cudaError_t cudaMalloc(void **p, size_t bytes) { ALLOCATE(p, bytes, cuMemAlloc_v2((CUdeviceptr *)p, bytes)); }

API cudaError_t cudaMallocManaged(void **p, size_t bytes, unsigned flags) {
  ALLOCATE(p, bytes, cuMemAllocManaged((CUdeviceptr *)p, bytes, flags));
}

API cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) { ALLOCATE(p, bytes, cuMemHostAlloc(p, bytes, flags)); }
API cudaError_t cudaMallocHost(void **p, size_t bytes) { return cudaHostAlloc(p, bytes, 0); }

API cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
  if (pitch == NULL) return record(CUDA_ERROR_INVALID_VALUE);
  ALLOCATE(p, width == 0 ? 0 : height, cuMemAllocPitch_v2((CUdeviceptr *)p, pitch, width, height, 4));
}

API cudaError_t cudaFree(void *p) { DO(cuMemFree_v2(address_of(p))); }
API cudaError_t cudaFreeHost(void *p) { DO(cuMemFreeHost(p)); }
API cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) { DO(cuMemGetInfo_v2(unused, total)); }
API cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) { DO(cuMemHostRegister_v2(p, bytes, flags)); }
API cudaError_t cudaHostUnregister(void *p) { DO(cuMemHostUnregister(p)); }

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *, void *, unsigned);
CUresult cuMemHostGetFlags(unsigned *, void *);

API cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
  DO(cuMemHostGetDevicePointer_v2((CUdeviceptr *)device, host, flags));
}

API cudaError_t cudaHostGetFlags(unsigned *flags, void *host) { DO(cuMemHostGetFlags(flags, host)); }

// ---- copies ------------------------------------------------------------------------------------

CUresult cuMemcpy(CUdeviceptr, CUdeviceptr, size_t);
CUresult cuMemcpyAsync(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpy3D_v2(const struct Memcpy3D *);
CUresult cuMemcpy3DAsync_v2(const struct Memcpy3D *, CUstream);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);

enum { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault };

static bool is_device(const void *p) {
  CUdeviceptr base;
  return cuMemGetAddressRange_v2(&base, NULL, address_of(p)) == 0;
}

// check_direction refuses a copy whose direction is not that of its pointers.
static cudaError_t check_direction(const void *to, const void *from, int kind) {
  if (kind < kHostToHost || kind > kDefault) return 21;  // not a direction
  if ((kind == kHostToDevice || kind == kDeviceToDevice) && !is_device(to)) return CUDA_ERROR_INVALID_VALUE;
  if ((kind == kDeviceToHost || kind == kDeviceToDevice) && !is_device(from)) return CUDA_ERROR_INVALID_VALUE;
  return 0;
}

API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
  cudaError_t status = ready();
  if (bytes == 0) return record(status);
  if (status == 0) status = check_direction(to, from, kind);
  return record(status != 0 ? status : cuMemcpy(address_of(to), address_of(from), bytes));
}

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, CUstream stream) {
  cudaError_t status = ready();
  if (bytes == 0) return record(status);
  if (status == 0) status = check_direction(to, from, kind);
  return record(status != 0 ? status : cuMemcpyAsync(address_of(to), address_of(from), bytes, stream));
}

API cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
  (void)to_device, (void)from_device;
  return cudaMemcpy(to, from, bytes, kDefault);
}

API cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, CUstream stream) {
  (void)to_device, (void)from_device;
  return cudaMemcpyAsync(to, from, bytes, kDefault, stream);
}

static cudaError_t copy_box(const struct Memcpy3D *m, CUstream stream, bool async) {
  const cudaError_t status = ready();
  return record(status != 0 ? status : async ? cuMemcpy3DAsync_v2(m, stream) : cuMemcpy3D_v2(m));
}

static cudaError_t copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, CUstream stream,
                           bool async) {
  if (width > to_pitch || width > from_pitch) return record(12);
  if (width == 0 || height == 0) return record(ready());
  const struct Memcpy3D m = {.from_type = kUnified, .from_device = address_of(from), .from_pitch = from_pitch, .to_type = kUnified,
                             .to_device = address_of(to), .to_pitch = to_pitch, .width = width, .height = height, .depth = 1};
  return copy_box(&m, stream, async);
}

API cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind) {
  (void)kind;
  return copy_2d(to, to_pitch, from, from_pitch, width, height, NULL, false);
}

API cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind,
                                  CUstream stream) {
  (void)kind;
  return copy_2d(to, to_pitch, from, from_pitch, width, height, stream, true);
}

// ---- arrays and boxes --------------------------------------------------------------------------

struct Extent {
  size_t width, height, depth;
};

struct Pitched {
  void *pointer;
  size_t pitch, width, height;
};

struct Position {
  size_t x, y, z;
};

struct Box {
  CUarray from_array;
  struct Position from_at;
  struct Pitched from;
  CUarray to_array;
  struct Position to_at;
  struct Pitched to;
  struct Extent extent;
  int kind;
};

CUresult cuArray3DCreate_v2(CUarray *, const struct Array3D *);
CUresult cuArray3DGetDescriptor_v2(struct Array3D *, CUarray);
CUresult cuArrayDestroy(CUarray);

API struct Channels cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return (struct Channels){x, y, z, w, kind}; }

int format_of(const struct Channels *c) {
  const int size = c->x == 8 ? 0 : c->x == 16 ? 1 : 2;
  static const int formats[3][3] = {{0x08, 0x09, 0x0a}, {0x01, 0x02, 0x03}, {0x10, 0x10, 0x20}};
  return formats[c->kind >= 0 && c->kind < 3 ? c->kind : 0][size];
}

unsigned channels_of(const struct Channels *c) { return 1 + (c->y > 0) + (c->z > 0) + (c->w > 0); }

static cudaError_t make_array(CUarray *array, const struct Channels *c, struct Extent e, unsigned flags) {
  const struct Array3D d = {e.width, e.height, e.depth, format_of(c), channels_of(c), flags};
  DO(cuArray3DCreate_v2(array, &d));
}

API cudaError_t cudaMallocArray(CUarray *array, const struct Channels *c, size_t width, size_t height, unsigned flags) {
  return make_array(array, c, (struct Extent){width, height, 0}, flags);
}

API cudaError_t cudaMalloc3DArray(CUarray *array, const struct Channels *c, struct Extent e, unsigned flags) {
  return make_array(array, c, e, flags);
}

API cudaError_t cudaFreeArray(CUarray array) { DO(array == NULL ? 0 : cuArrayDestroy(array)); }

API cudaError_t cudaMalloc3D(struct Pitched *p, struct Extent e) {
  size_t rows;
  if (__builtin_mul_overflow(e.height, e.depth == 0 ? 1 : e.depth, &rows)) return record(CUDA_ERROR_OUT_OF_MEMORY);
  p->width = e.width;
  p->height = e.height;
  return cudaMallocPitch(&p->pointer, &p->pitch, e.width, rows);
}

// element_of is the size of an element of an array in bytes.
static size_t element_of(CUarray array) {
  struct Array3D d = {0};
  cuArray3DGetDescriptor_v2(&d, array);
  const size_t one = d.format == 0x01 || d.format == 0x08 ? 1 : d.format == 0x02 || d.format == 0x09 || d.format == 0x10 ? 2 : 4;
  return one * d.channels;
}

// box_of is the driver's description of a copy. Widths and positions of arrays are in elements.
struct Memcpy3D box_of(const struct Box *b) {
  struct Memcpy3D m = {.from_x = b->from_at.x, .from_y = b->from_at.y, .from_z = b->from_at.z, .from_type = kUnified,
                       .from_device = address_of(b->from.pointer), .from_pitch = b->from.pitch, .from_height = b->from.height,
                       .to_x = b->to_at.x, .to_y = b->to_at.y, .to_z = b->to_at.z, .to_type = kUnified,
                       .to_device = address_of(b->to.pointer), .to_pitch = b->to.pitch, .to_height = b->to.height,
                       .width = b->extent.width, .height = b->extent.height, .depth = b->extent.depth};
  if (b->from_array != NULL) {
    m.from_type = kArray, m.from_array = b->from_array, m.from_x *= element_of(b->from_array);
    m.width = b->extent.width * element_of(b->from_array);
  }
  if (b->to_array != NULL) {
    m.to_type = kArray, m.to_array = b->to_array, m.to_x *= element_of(b->to_array);
    m.width = b->extent.width * element_of(b->to_array);
  }
  return m;
}

API cudaError_t cudaMemcpy3D(const struct Box *b) {
  const struct Memcpy3D m = box_of(b);
  return copy_box(&m, NULL, false);
}

API cudaError_t cudaMemcpy3DAsync(const struct Box *b, CUstream stream) {
  const struct Memcpy3D m = box_of(b);
  return copy_box(&m, stream, true);
}

// PeerBox is a Box between devices, of which there is one.
struct PeerBox {
  CUarray from_array;
  struct Position from_at;
  struct Pitched from;
  int from_device;
  CUarray to_array;
  struct Position to_at;
  struct Pitched to;
  int to_device;
  struct Extent extent;
};

static cudaError_t copy_peer_box(const struct PeerBox *p, CUstream stream, bool async) {
  if (p->from_device != 0 || p->to_device != 0) return record(101);
  const struct Box b = {.from_array = p->from_array, .from_at = p->from_at, .from = p->from, .to_array = p->to_array,
                        .to_at = p->to_at, .to = p->to, .extent = p->extent};
  const struct Memcpy3D m = box_of(&b);
  return copy_box(&m, stream, async);
}

API cudaError_t cudaMemcpy3DPeer(const struct PeerBox *p) { return copy_peer_box(p, NULL, false); }
API cudaError_t cudaMemcpy3DPeerAsync(const struct PeerBox *p, CUstream stream) { return copy_peer_box(p, stream, true); }

static cudaError_t array_copy(CUarray array, size_t x, size_t y, void *linear, size_t pitch, size_t width, size_t height, bool to_array,
                              CUstream stream, bool async) {
  struct Memcpy3D m = {.width = width, .height = height, .depth = 1};
  if (to_array) {
    m.to_type = kArray, m.to_array = array, m.to_x = x, m.to_y = y;
    m.from_type = kUnified, m.from_device = address_of(linear), m.from_pitch = pitch;
  } else {
    m.from_type = kArray, m.from_array = array, m.from_x = x, m.from_y = y;
    m.to_type = kUnified, m.to_device = address_of(linear), m.to_pitch = pitch;
  }
  return copy_box(&m, stream, async);
}

API cudaError_t cudaMemcpy2DToArray(CUarray array, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height, int kind) {
  (void)kind;
  return array_copy(array, x, y, (void *)from, pitch, width, height, true, NULL, false);
}

API cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, CUarray array, size_t x, size_t y, size_t width, size_t height, int kind) {
  (void)kind;
  return array_copy(array, x, y, to, pitch, width, height, false, NULL, false);
}

API cudaError_t cudaMemcpy2DToArrayAsync(CUarray array, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height,
                                         int kind, CUstream stream) {
  (void)kind;
  return array_copy(array, x, y, (void *)from, pitch, width, height, true, stream, true);
}

API cudaError_t cudaMemcpyToArray(CUarray array, size_t x, size_t y, const void *from, size_t bytes, int kind) {
  (void)kind;
  return array_copy(array, x, y, (void *)from, bytes, bytes, 1, true, NULL, false);
}

API cudaError_t cudaMemcpyFromArray(void *to, CUarray array, size_t x, size_t y, size_t bytes, int kind) {
  (void)kind;
  return array_copy(array, x, y, to, bytes, bytes, 1, false, NULL, false);
}

struct Channels channels_from(int format, unsigned channels) {
  const int bits = format == 0x01 || format == 0x08 ? 8 : format == 0x02 || format == 0x09 || format == 0x10 ? 16 : 32;
  const int kind = format < 8 ? 1 : format < 0x10 ? 0 : 2;
  return (struct Channels){bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 3 ? bits : 0, kind};
}

API cudaError_t cudaGetChannelDesc(struct Channels *c, CUarray array) {
  struct Array3D d = {0};
  cuArray3DGetDescriptor_v2(&d, array);
  *c = channels_from(d.format, d.channels);
  return 0;
}

API cudaError_t cudaArrayGetInfo(struct Channels *c, struct Extent *extent, unsigned *flags, CUarray array) {
  struct Array3D d = {0};
  if (array == NULL) return record(CUDA_ERROR_INVALID_HANDLE);
  cuArray3DGetDescriptor_v2(&d, array);
  if (c != NULL) *c = channels_from(d.format, d.channels);
  if (extent != NULL) *extent = (struct Extent){d.width, d.height, d.depth};
  if (flags != NULL) *flags = d.flags;
  return record(ready());
}

static cudaError_t array_to_array(CUarray to, size_t to_x, size_t to_y, CUarray from, size_t from_x, size_t from_y, size_t width, size_t height) {
  const struct Memcpy3D m = {.from_type = kArray, .from_array = from, .from_x = from_x, .from_y = from_y, .to_type = kArray,
                             .to_array = to, .to_x = to_x, .to_y = to_y, .width = width, .height = height, .depth = 1};
  return copy_box(&m, NULL, false);
}

API cudaError_t cudaMemcpy2DArrayToArray(CUarray to, size_t to_x, size_t to_y, CUarray from, size_t from_x, size_t from_y, size_t width,
                                         size_t height, int kind) {
  (void)kind;
  return array_to_array(to, to_x, to_y, from, from_x, from_y, width, height);
}

API cudaError_t cudaMemcpyArrayToArray(CUarray to, size_t to_x, size_t to_y, CUarray from, size_t from_x, size_t from_y, size_t bytes, int kind) {
  (void)kind;
  return array_to_array(to, to_x, to_y, from, from_x, from_y, bytes, 1);
}

API cudaError_t cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, CUarray array, size_t x, size_t y, size_t width, size_t height, int kind,
                                           CUstream stream) {
  (void)kind;
  return array_copy(array, x, y, to, pitch, width, height, false, stream, true);
}

API cudaError_t cudaMemcpyToArrayAsync(CUarray array, size_t x, size_t y, const void *from, size_t bytes, int kind, CUstream stream) {
  (void)kind;
  return array_copy(array, x, y, (void *)from, bytes, bytes, 1, true, stream, true);
}

API cudaError_t cudaMemcpyFromArrayAsync(void *to, CUarray array, size_t x, size_t y, size_t bytes, int kind, CUstream stream) {
  (void)kind;
  return array_copy(array, x, y, to, bytes, bytes, 1, false, stream, true);
}

// ---- symbols -----------------------------------------------------------------------------------

static cudaError_t symbol(const void *host, size_t offset, size_t bytes, CUdeviceptr *address) {
  size_t room = 0;
  cudaError_t status = ready();
  if (status == 0) status = variable_of(host, address, &room);
  if (status == 0 && (offset > room || bytes > room - offset)) status = CUDA_ERROR_INVALID_VALUE;
  *address += offset;
  return status;
}

API cudaError_t cudaMemcpyToSymbol(const void *host, const void *from, size_t bytes, size_t offset, int kind) {
  (void)kind;
  CUdeviceptr to = 0;
  const cudaError_t status = symbol(host, offset, bytes, &to);
  return record(status != 0 ? status : cuMemcpy(to, address_of(from), bytes));
}

API cudaError_t cudaMemcpyFromSymbol(void *to, const void *host, size_t bytes, size_t offset, int kind) {
  (void)kind;
  CUdeviceptr from = 0;
  const cudaError_t status = symbol(host, offset, bytes, &from);
  return record(status != 0 ? status : cuMemcpy(address_of(to), from, bytes));
}

API cudaError_t cudaMemcpyToSymbolAsync(const void *host, const void *from, size_t bytes, size_t offset, int kind, CUstream stream) {
  (void)kind;
  CUdeviceptr to = 0;
  const cudaError_t status = symbol(host, offset, bytes, &to);
  return record(status != 0 ? status : cuMemcpyAsync(to, address_of(from), bytes, stream));
}

API cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *host, size_t bytes, size_t offset, int kind, CUstream stream) {
  (void)kind;
  CUdeviceptr from = 0;
  const cudaError_t status = symbol(host, offset, bytes, &from);
  return record(status != 0 ? status : cuMemcpyAsync(address_of(to), from, bytes, stream));
}

API cudaError_t cudaGetSymbolAddress(void **pointer, const void *host) {
  CUdeviceptr address = 0;
  const cudaError_t status = symbol(host, 0, 0, &address);
  if (status == 0) *pointer = (void *)(uintptr_t)address;
  return record(status);
}

API cudaError_t cudaGetSymbolSize(size_t *bytes, const void *host) {
  CUdeviceptr address;
  const cudaError_t status = ready();
  return record(status != 0 ? status : variable_of(host, &address, bytes));
}

// ---- memset ------------------------------------------------------------------------------------

CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuMemsetD2D8_v2(CUdeviceptr, size_t, unsigned char, size_t, size_t);
CUresult cuMemsetD2D8Async(CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream);

API cudaError_t cudaMemset(void *to, int value, size_t bytes) { DO(cuMemsetD8_v2(address_of(to), (unsigned char)value, bytes)); }

API cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, CUstream stream) {
  DO(cuMemsetD8Async(address_of(to), (unsigned char)value, bytes, stream));
}

API cudaError_t cudaMemset2D(void *to, size_t pitch, int value, size_t width, size_t height) {
  if (width > pitch && height > 1) return record(CUDA_ERROR_INVALID_VALUE);
  DO(cuMemsetD2D8_v2(address_of(to), pitch, (unsigned char)value, width, height));
}

API cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height, CUstream stream) {
  if (width > pitch && height > 1) return record(CUDA_ERROR_INVALID_VALUE);
  DO(cuMemsetD2D8Async(address_of(to), pitch, (unsigned char)value, width, height, stream));
}

API cudaError_t cudaMemset3D(struct Pitched p, int value, struct Extent e) {
  return cudaMemset2D(p.pointer, p.pitch, value, e.width, e.height * e.depth);
}

API cudaError_t cudaMemset3DAsync(struct Pitched p, int value, struct Extent e, CUstream stream) {
  return cudaMemset2DAsync(p.pointer, p.pitch, value, e.width, e.height * e.depth, stream);
}

// ---- pools -------------------------------------------------------------------------------------

CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
CUresult cuDeviceGetMemPool(CUmemoryPool *, CUdevice);
CUresult cuDeviceSetMemPool(CUdevice, CUmemoryPool);
CUresult cuMemPoolCreate(CUmemoryPool *, const void *);
CUresult cuMemPoolDestroy(CUmemoryPool);
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t);
CUresult cuMemPoolSetAttribute(CUmemoryPool, int, void *);
CUresult cuMemPoolGetAttribute(CUmemoryPool, int, void *);

API cudaError_t cudaMallocAsync(void **p, size_t bytes, CUstream stream) {
  ALLOCATE(p, bytes, cuMemAllocAsync((CUdeviceptr *)p, bytes, stream));
}

API cudaError_t cudaFreeAsync(void *p, CUstream stream) { DO(cuMemFreeAsync(address_of(p), stream)); }

API cudaError_t cudaMallocFromPoolAsync(void **p, size_t bytes, CUmemoryPool pool, CUstream stream) {
  ALLOCATE(p, bytes, cuMemAllocFromPoolAsync((CUdeviceptr *)p, bytes, pool, stream));
}

API cudaError_t cudaDeviceGetDefaultMemPool(CUmemoryPool *pool, int device) { DO(cuDeviceGetDefaultMemPool(pool, device)); }
API cudaError_t cudaDeviceGetMemPool(CUmemoryPool *pool, int device) { DO(cuDeviceGetMemPool(pool, device)); }
API cudaError_t cudaDeviceSetMemPool(int device, CUmemoryPool pool) { DO(cuDeviceSetMemPool(device, pool)); }
API cudaError_t cudaMemPoolCreate(CUmemoryPool *pool, const void *properties) { DO(cuMemPoolCreate(pool, properties)); }
API cudaError_t cudaMemPoolDestroy(CUmemoryPool pool) { DO(cuMemPoolDestroy(pool)); }
API cudaError_t cudaMemPoolTrimTo(CUmemoryPool pool, size_t bytes) { DO(cuMemPoolTrimTo(pool, bytes)); }
API cudaError_t cudaMemPoolSetAttribute(CUmemoryPool pool, int a, void *value) { DO(cuMemPoolSetAttribute(pool, a, value)); }
API cudaError_t cudaMemPoolGetAttribute(CUmemoryPool pool, int a, void *value) { DO(cuMemPoolGetAttribute(pool, a, value)); }

API cudaError_t cudaMemPoolSetAccess(CUmemoryPool pool, const void *list, size_t count) {
  (void)pool, (void)list, (void)count;
  return record(ready());
}

// ---- advice and attributes ---------------------------------------------------------------------

// The host and the device see managed memory alike, whatever its place.
API cudaError_t cudaMemAdvise(const void *p, size_t bytes, int advice, uint64_t location) {
  (void)p, (void)bytes, (void)advice, (void)location;
  return record(ready());
}

API cudaError_t cudaMemPrefetchAsync(const void *p, size_t bytes, uint64_t location) {
  (void)p, (void)bytes, (void)location;
  return record(ready());
}

API cudaError_t cudaMemAdvise_v2(const void *p, size_t bytes, int advice, uint64_t location) {
  return cudaMemAdvise(p, bytes, advice, location);
}

API cudaError_t cudaMemPrefetchAsync_v2(const void *p, size_t bytes, uint64_t location) { return cudaMemPrefetchAsync(p, bytes, location); }

API cudaError_t cudaMemRangeGetAttribute(void *data, size_t bytes, int attribute, const void *p, size_t count) {
  (void)attribute, (void)p, (void)count;
  memset(data, 0, bytes);
  return record(ready());
}

struct PointerAttributes {
  int type, device;
  void *device_pointer, *host_pointer;
};

CUresult cuPointerGetAttribute(void *, int, CUdeviceptr);

API cudaError_t cudaPointerGetAttributes(struct PointerAttributes *a, const void *p) {
  const cudaError_t status = ready();
  if (status != 0) return record(status);
  *a = (struct PointerAttributes){.device = -2, .host_pointer = (void *)p};  // memory that is not the device's
  int type = 0, managed = 0;
  if (cuPointerGetAttribute(&type, 2, address_of(p)) != 0) return 0;
  cuPointerGetAttribute(&managed, 8, address_of(p));
  a->type = managed ? 3 : type;
  a->device = 0;
  a->device_pointer = (void *)p;
  a->host_pointer = type == kHost || managed ? (void *)p : NULL;
  return 0;
}
