// Memory. The server has the table of allocations; the bytes are in memory that both map, so the
// client moves what the host is part of.

#include "client.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

CUresult allocate(size_t bytes, uint32_t kind, CUdeviceptr *address) {
  if (sticky != CUDA_SUCCESS) return sticky;
  if (address == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t request[2] = {bytes, kind};
  const CUresult status = call(REQUEST_ALLOC, request, sizeof request, NULL, 0, address, sizeof *address, NULL);
  if (status == CUDA_SUCCESS && (kind == ALLOCATE_MANAGED || kind == ALLOCATE_HOST)) attuneOpenMemory(*address, bytes);
  return status;
}

// GraphMemory is an allocation of a graph.
struct GraphMemory {
  uint64_t address;
  size_t bytes;
  struct GraphMemory *next;
};

static struct GraphMemory *of_graphs;

CUresult allocate_for_graph(size_t bytes, CUdeviceptr *address) {
  struct GraphMemory *m = calloc(1, sizeof *m);
  if (m == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult status = allocate(bytes, ALLOCATE_DEVICE, address);
  if (status != CUDA_SUCCESS) {
    free(m);
    return status;
  }
  m->address = *address;
  m->bytes = bytes;
  m->next = of_graphs;
  of_graphs = m;
  return CUDA_SUCCESS;
}

// Graphs keep their memory: what is used, what was used at most and what is reserved are the same.
API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, uint64_t *value) {
  (void)device, (void)attribute;
  *value = 0;
  for (const struct GraphMemory *m = of_graphs; m != NULL; m = m->next) *value += m->bytes;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, uint64_t *value) {
  (void)device, (void)attribute, (void)value;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGraphMemTrim(CUdevice device) {
  (void)device;
  return CUDA_SUCCESS;
}

static void return_to_pool(uint64_t address);

static CUresult release(uint64_t address, uint32_t host) {
  if (address == 0) return CUDA_SUCCESS;
  flush_output();
  for (const struct GraphMemory *m = of_graphs; m != NULL; m = m->next) {
    if (m->address == address) return CUDA_SUCCESS;
  }
  uint64_t bytes = 0;
  const CUresult status = call(REQUEST_FREE, &address, sizeof address, &host, sizeof host, &bytes, sizeof bytes, NULL);
  if (status != CUDA_SUCCESS) return status;
  close_memory(address, bytes);
  return_to_pool(address);
  return CUDA_SUCCESS;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) { return allocate(bytes, ALLOCATE_DEVICE, address); }

API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
  (void)flags;
  return allocate(bytes, ALLOCATE_MANAGED, address);
}

API CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  return allocate(bytes, ALLOCATE_HOST, (CUdeviceptr *)address);
}

API CUresult cuMemAllocHost_v2(void **address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }

enum { kPitch = 512 };

API CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
  (void)element;
  size_t bytes;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  if (*pitch < width || __builtin_mul_overflow(*pitch, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  return allocate(bytes, ALLOCATE_DEVICE, address);
}

API CUresult cuMemFree_v2(CUdeviceptr address) { return release(address, false); }
API CUresult cuMemFreeHost(void *address) { return release((uintptr_t)address, true); }

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  uint64_t reply[2];
  const CUresult status = call(REQUEST_MEMORY, NULL, 0, NULL, 0, reply, sizeof reply, NULL);
  if (status != CUDA_SUCCESS) return status;
  if (free_bytes != NULL) *free_bytes = reply[0];
  if (total != NULL) *total = reply[1];
  return CUDA_SUCCESS;
}

CUresult range_of(uint64_t address, struct Range *range) {
  return call(REQUEST_RANGE, &address, sizeof address, NULL, 0, range, sizeof *range, NULL);
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  struct Range range;
  const CUresult status = range_of(address, &range);
  if (status != CUDA_SUCCESS) return status;
  if (!range.known) return CUDA_ERROR_NOT_FOUND;
  if (base != NULL) *base = range.base;
  if (bytes != NULL) *bytes = range.bytes;
  return CUDA_SUCCESS;
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags) {
  struct Range range;
  if (device == NULL || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult status = range_of((uintptr_t)host, &range);
  if (status != CUDA_SUCCESS) return status;
  if (!range.known || range.kind != ALLOCATE_HOST) return CUDA_ERROR_INVALID_VALUE;  // not pinned
  *device = (uintptr_t)host;
  return CUDA_SUCCESS;
}

API CUresult cuMemHostGetFlags(unsigned *flags, void *host) {
  CUdeviceptr device;
  const CUresult status = cuMemHostGetDevicePointer_v2(&device, host, 0);
  if (status != CUDA_SUCCESS) return status;
  *flags = 2;  // mapped
  return CUDA_SUCCESS;
}

// ---- registered host memory --------------------------------------------------------------------

// RegisterReply is where the server wants the pages of registered memory in the file of device memory.
struct RegisterReply {
  uint64_t offset;
};

extern int arena_file;

struct Pages {
  char *first;
  size_t bytes;
};

static struct Pages pages_of(const void *address, size_t bytes) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)address / page * page;
  const uintptr_t end = ((uintptr_t)address + bytes + page - 1) / page * page;
  return (struct Pages){(char *)start, end - start};
}

// replace maps other pages at the addresses, with the same contents.
static CUresult replace(struct Pages pages, int flags, int file, off_t offset) {
  char *saved = malloc(pages.bytes);
  if (saved == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(saved, pages.first, pages.bytes);
  void *got = mmap(pages.first, pages.bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, offset);
  if (got != MAP_FAILED) memcpy(pages.first, saved, pages.bytes);
  free(saved);
  return got == MAP_FAILED ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

API CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
  (void)flags;
  if (address == NULL || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const struct Pages pages = pages_of(address, bytes);
  const uint64_t request[4] = {(uintptr_t)address, bytes, (uintptr_t)pages.first, pages.bytes};
  struct RegisterReply reply;
  const CUresult status = call(REQUEST_REGISTER, request, sizeof request, NULL, 0, &reply, sizeof reply, NULL);
  if (status != CUDA_SUCCESS) return status;
  return replace(pages, MAP_SHARED, arena_file, (off_t)reply.offset);
}

API CUresult cuMemHostUnregister(void *address) {
  const uint64_t request = (uintptr_t)address;
  uint64_t bytes;
  const CUresult status = call(REQUEST_UNREGISTER, &request, sizeof request, NULL, 0, &bytes, sizeof bytes, NULL);
  if (status != CUDA_SUCCESS) return status;
  return replace(pages_of(address, bytes), MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// ---- copies ------------------------------------------------------------------------------------

// run_copy has the server check the copy. The server moves the bytes between two places of device
// memory, with what is known of them; the client moves the others.
CUresult run_copy(const struct Copy *copy) {
  if (copy->width == 0 || copy->height == 0 || copy->depth == 0) return CUDA_SUCCESS;
  uint32_t done = 0;
  const CUresult status = call(REQUEST_COPY, copy, sizeof *copy, NULL, 0, &done, sizeof done, NULL);
  if (status != CUDA_SUCCESS || done) return status;
  for (uint64_t z = 0; z < copy->depth; z++) {
    for (uint64_t y = 0; y < copy->height; y++) {
      const uint64_t to = attuneHostAddress(copy->to + z * copy->to_slice + y * copy->to_pitch);
      const uint64_t from = attuneHostAddress(copy->from + z * copy->from_slice + y * copy->from_pitch);
      memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, copy->width);
    }
  }
  return CUDA_SUCCESS;
}

static CUresult copy_now(const struct Copy *copy) {
  flush_output();
  if (sticky != CUDA_SUCCESS) return sticky;
  return run_copy(copy);
}

static CUresult copy_async(const struct Copy *copy, CUstream stream) {
  const struct Node node = {.kind = NODE_MEMCPY, .copy = *copy};
  return submit(stream, &node);
}

static struct Copy row(uint64_t to, uint64_t from, size_t bytes) {
  return (struct Copy){.to = to, .from = from, .width = bytes, .height = 1, .depth = 1};
}

API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  const struct Copy copy = row(to, from, bytes);
  return copy_now(&copy);
}

API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  const struct Copy copy = row(to, from, bytes);
  return copy_async(&copy, stream);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) { return cuMemcpy(to, (uintptr_t)from, bytes); }
API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) { return cuMemcpy((uintptr_t)to, from, bytes); }
API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) { return cuMemcpy(to, from, bytes); }

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return cuMemcpyAsync(to, (uintptr_t)from, bytes, stream);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return cuMemcpyAsync((uintptr_t)to, from, bytes, stream);
}

API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}

API CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
  (void)to_context, (void)from_context;
  return cuMemcpy(to, from, bytes);
}

API CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                               CUstream stream) {
  (void)to_context, (void)from_context;
  return cuMemcpyAsync(to, from, bytes, stream);
}

size_t format_bytes(int format) {
  return format == 0x01 || format == 0x08 ? 1 : format == 0x02 || format == 0x09 || format == 0x10 ? 2 : 4;
}

size_t element_bytes(const struct Array *a) {
  return format_bytes(a->format) * a->channels;
}

static size_t at_least_one(size_t n) { return n == 0 ? 1 : n; }

// Place is one side of a copy in the driver's description.
struct Place {
  size_t x, y, z;
  int type;
  const void *host;
  CUdeviceptr device;
  const struct Array *array;
  size_t pitch, height;
};

// locate returns the address of a place, and sets its pitch and slice.
static uint64_t locate(struct Place p, uint64_t *pitch, uint64_t *slice) {
  uint64_t base = p.type == kHost ? (uintptr_t)p.host : p.device;
  if (p.type == kArray) {
    base = p.array->address;
    p.pitch = p.array->width * element_bytes(p.array);
    p.height = at_least_one(p.array->height);
  }
  *pitch = p.pitch;
  *slice = p.pitch * p.height;
  return base + p.x + p.y * *pitch + p.z * *slice;
}

struct Memcpy2D {
  size_t from_x, from_y;
  int from_type;
  const void *from_host;
  CUdeviceptr from_device;
  struct Array *from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_type;
  void *to_host;
  CUdeviceptr to_device;
  struct Array *to_array;
  size_t to_pitch;
  size_t width, height;
};

static struct Copy copy_of_2d(const struct Memcpy2D *m) {
  struct Copy copy = {.width = m->width, .height = m->height, .depth = 1};
  copy.from = locate((struct Place){m->from_x, m->from_y, 0, m->from_type, m->from_host, m->from_device, m->from_array, m->from_pitch, 1},
                     &copy.from_pitch, &copy.from_slice);
  copy.to = locate((struct Place){m->to_x, m->to_y, 0, m->to_type, m->to_host, m->to_device, m->to_array, m->to_pitch, 1},
                   &copy.to_pitch, &copy.to_slice);
  return copy;
}

API CUresult cuMemcpy2D_v2(const struct Memcpy2D *m) {
  const struct Copy copy = copy_of_2d(m);
  return copy_now(&copy);
}

API CUresult cuMemcpy2DUnaligned_v2(const struct Memcpy2D *m) { return cuMemcpy2D_v2(m); }

API CUresult cuMemcpy2DAsync_v2(const struct Memcpy2D *m, CUstream stream) {
  const struct Copy copy = copy_of_2d(m);
  return copy_async(&copy, stream);
}

struct Copy copy_of_3d(const struct Memcpy3D *m) {
  struct Copy copy = {.width = m->width, .height = at_least_one(m->height), .depth = at_least_one(m->depth)};
  copy.from = locate((struct Place){m->from_x, m->from_y, m->from_z, m->from_type, m->from_host, m->from_device, m->from_array,
                                    m->from_pitch, m->from_height},
                     &copy.from_pitch, &copy.from_slice);
  copy.to = locate(
      (struct Place){m->to_x, m->to_y, m->to_z, m->to_type, m->to_host, m->to_device, m->to_array, m->to_pitch, m->to_height},
      &copy.to_pitch, &copy.to_slice);
  return copy;
}

API CUresult cuMemcpy3D_v2(const struct Memcpy3D *m) {
  const struct Copy copy = copy_of_3d(m);
  return copy_now(&copy);
}

API CUresult cuMemcpy3DAsync_v2(const struct Memcpy3D *m, CUstream stream) {
  const struct Copy copy = copy_of_3d(m);
  return copy_async(&copy, stream);
}

API CUresult cuMemcpy3DPeer(const struct Memcpy3D *m) { return cuMemcpy3D_v2(m); }
API CUresult cuMemcpy3DPeerAsync(const struct Memcpy3D *m, CUstream stream) { return cuMemcpy3DAsync_v2(m, stream); }

// ---- memset ------------------------------------------------------------------------------------

static CUresult fill(CUdeviceptr to, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height, CUstream stream,
                     bool wait) {
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  const struct Node node = {
      .kind = NODE_MEMSET,
      .fill = {.to = to, .pitch = pitch, .width = width, .height = height, .value = value, .element = element}};
  if (wait) flush_output();
  return wait ? run_node(&node) : submit(stream, &node);
}

#define MEMSET(bits, type, bytes)                                                                                             \
  API CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t n) { return fill(to, 0, value, bytes, n, 1, NULL, true); } \
  API CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t n, CUstream stream) {                                \
    return fill(to, 0, value, bytes, n, 1, stream, false);                                                                    \
  }                                                                                                                           \
  API CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {                \
    return fill(to, pitch, value, bytes, width, height, NULL, true);                                                          \
  }                                                                                                                           \
  API CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream) { \
    return fill(to, pitch, value, bytes, width, height, stream, false);                                                       \
  }

MEMSET(8, unsigned char, 1)
MEMSET(16, unsigned short, 2)
MEMSET(32, unsigned, 4)

// ---- pools -------------------------------------------------------------------------------------

// Pool is a memory pool. It keeps no memory: a free returns it at once.
struct Pool {
  uint64_t threshold, used, most_used;  // in bytes
  uint32_t kind;                        // of its memory: that of the host is managed memory
};

// Pooled is an allocation of a pool.
struct Pooled {
  uint64_t address, bytes;
  struct Pool *pool;  // NULL when it has been destroyed
  struct Pooled *next;
};

static pthread_mutex_t pools = PTHREAD_MUTEX_INITIALIZER;
static struct Pooled *pooled;

static void take_from_pool(struct Pool *pool, uint64_t address, uint64_t bytes) {
  struct Pooled *p = malloc(sizeof *p);
  if (p == NULL) return;
  pthread_mutex_lock(&pools);
  *p = (struct Pooled){address, bytes, pool, pooled};
  pooled = p;
  pool->used += bytes;
  if (pool->used > pool->most_used) pool->most_used = pool->used;
  pthread_mutex_unlock(&pools);
}

static void return_to_pool(uint64_t address) {
  pthread_mutex_lock(&pools);
  struct Pooled **at = &pooled;
  while (*at != NULL && (*at)->address != address) at = &(*at)->next;
  struct Pooled *p = *at;
  if (p != NULL) {
    *at = p->next;
    if (p->pool != NULL) p->pool->used -= p->bytes;
    free(p);
  }
  pthread_mutex_unlock(&pools);
}

// PoolProperties is the beginning of the description of a pool.
struct PoolProperties {
  int type, handles, location;
};

enum { kManagedType = 2, kDeviceLocation = 1 };

static struct Pool default_pool;
static struct Pool *current_pool = &default_pool;

static CUresult allocate_in_stream(CUdeviceptr *address, size_t bytes, struct Pool *pool, CUstream stream) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (stream_of(stream)->capture == NULL) {
    const CUresult status = allocate(bytes, pool->kind, address);
    if (status == CUDA_SUCCESS) take_from_pool(pool, *address, bytes);
    return status;
  }
  const CUresult status = allocate_for_graph(bytes, address);
  const struct Node node = {.kind = NODE_MEM_ALLOC, .address = *address, .bytes = bytes};
  return status == CUDA_SUCCESS ? submit(stream, &node) : status;
}

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
  return allocate_in_stream(address, bytes, current_pool, stream);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (stream_of(stream)->capture == NULL) return release(address, false);
  const struct Node node = {.kind = NODE_MEM_FREE, .address = address};
  return submit(stream, &node);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return allocate_in_stream(address, bytes, pool == NULL ? current_pool : pool, stream);
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  (void)device;
  *pool = &default_pool;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
  (void)device;
  *pool = current_pool;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  (void)device;
  if (pool == NULL) return CUDA_ERROR_INVALID_VALUE;
  current_pool = pool;
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const void *properties) {
  const struct PoolProperties *p = properties;
  *pool = calloc(1, sizeof **pool);
  if (*pool == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  (*pool)->kind = p != NULL && (p->type == kManagedType || p->location > kDeviceLocation) ? ALLOCATE_MANAGED : ALLOCATE_DEVICE;
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  if (pool == &default_pool) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&pools);
  for (struct Pooled *p = pooled; p != NULL; p = p->next) {
    if (p->pool == pool) p->pool = NULL;
  }
  pthread_mutex_unlock(&pools);
  if (current_pool == pool) current_pool = &default_pool;
  free(pool);
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t bytes) {
  (void)pool, (void)bytes;
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const void *list, size_t count) {
  (void)pool, (void)list, (void)count;
  return CUDA_SUCCESS;
}

// What a pool has reserved is what is used of it.
enum { kPoolThreshold = 4, kPoolReserved = 5, kPoolMostReserved = 6, kPoolUsed = 7, kPoolMostUsed = 8 };

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
  if (attribute == kPoolThreshold) pool->threshold = *(uint64_t *)value;
  if (attribute == kPoolMostReserved || attribute == kPoolMostUsed) pool->most_used = pool->used;
  return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
  switch (attribute) {
    case kPoolThreshold: *(uint64_t *)value = pool->threshold; break;
    case kPoolReserved:
    case kPoolUsed: *(uint64_t *)value = pool->used; break;
    case kPoolMostReserved:
    case kPoolMostUsed: *(uint64_t *)value = pool->most_used; break;
    default: *(int *)value = 1;  // reuse is allowed
  }
  return CUDA_SUCCESS;
}

// ---- advice ------------------------------------------------------------------------------------

API CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, int device) {
  (void)address, (void)bytes, (void)advice, (void)device;
  return CUDA_SUCCESS;
}

API CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, uint64_t location) {
  (void)location;
  return cuMemAdvise(address, bytes, advice, 0);
}

API CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, int device, CUstream stream) {
  (void)address, (void)bytes, (void)device, (void)stream;
  return CUDA_SUCCESS;
}

API CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, uint64_t location, unsigned flags, CUstream stream) {
  (void)location, (void)flags;
  return cuMemPrefetchAsync(address, bytes, 0, stream);
}

// A stream's attachment of managed memory restricts what the host may touch meanwhile: nothing here.
API CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags) {
  (void)stream, (void)address, (void)bytes, (void)flags;
  return CUDA_SUCCESS;
}

// ---- pointer attributes ------------------------------------------------------------------------

static CUresult pointer_attribute(void *data, int attribute, const struct Range *range, uint64_t address) {
  switch (attribute) {
    case 1: *(CUcontext *)data = primary_context; break;
    case 2: *(int *)data = range->kind == ALLOCATE_HOST ? kHost : kDevice; break;
    case 3: *(uint64_t *)data = address; break;
    case 4:
      if (range->kind == ALLOCATE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      *(uint64_t *)data = address;
      break;
    case 6: *(int *)data = 1; break;
    case 7: *(uint64_t *)data = range->base; break;
    case 8: *(int *)data = range->kind == ALLOCATE_MANAGED; break;
    case 9: *(int *)data = 0; break;
    case 11: *(uint64_t *)data = range->base; break;
    case 12: *(size_t *)data = range->bytes; break;
    case 13: *(int *)data = 1; break;
    case 16: *(int *)data = 3; break;  // read and write
    case 17: *(void **)data = NULL; break;
    case 18: *(size_t *)data = range->bytes; break;
    case 19: *(uint64_t *)data = range->base; break;
    case 20: *(uint64_t *)data = range->base; break;
    default: *(int *)data = 0; break;
  }
  return CUDA_SUCCESS;
}

API CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr address) {
  struct Range range;
  const CUresult status = range_of(address, &range);
  if (status != CUDA_SUCCESS) return status;
  return range.known ? pointer_attribute(data, attribute, &range, address) : CUDA_ERROR_INVALID_VALUE;
}

// cuPointerGetAttributes gives zeros for memory that is not the device's.
API CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **data, CUdeviceptr address) {
  struct Range range;
  const CUresult status = range_of(address, &range);
  if (status != CUDA_SUCCESS) return status;
  for (unsigned i = 0; i < count; i++) {
    const bool wide = attributes[i] == 1 || attributes[i] == 3 || attributes[i] == 4 || attributes[i] == 7 || attributes[i] == 11 ||
                      attributes[i] == 12 || attributes[i] >= 17;
    memset(data[i], 0, wide ? 8 : 4);
    if (range.known) pointer_attribute(data[i], attributes[i], &range, address);
    else if (attributes[i] == 9) *(int *)data[i] = -2;
  }
  return CUDA_SUCCESS;
}

API CUresult cuPointerSetAttribute(const void *value, int attribute, CUdeviceptr address) {
  (void)value, (void)attribute, (void)address;
  return CUDA_SUCCESS;
}

API CUresult cuMemRangeGetAttribute(void *data, size_t bytes, int attribute, CUdeviceptr address, size_t count) {
  (void)attribute, (void)address, (void)count;
  memset(data, 0, bytes);
  return CUDA_SUCCESS;
}

// ---- arrays ------------------------------------------------------------------------------------

struct Array2D {
  size_t width, height;
  int format;
  unsigned channels;
};

API CUresult cuArray3DCreate_v2(CUarray *array, const struct Array3D *d) {
  struct Array *a = calloc(1, sizeof *a);
  if (a == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  *a = (struct Array){0, d->width, d->height, d->depth, d->format, d->channels, d->flags};
  size_t bytes;
  if (__builtin_mul_overflow(a->width, at_least_one(a->height), &bytes) || __builtin_mul_overflow(bytes, at_least_one(a->depth), &bytes) ||
      __builtin_mul_overflow(bytes, element_bytes(a), &bytes)) {
    free(a);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult status = allocate(bytes, ALLOCATE_DEVICE, &a->address);
  if (status != CUDA_SUCCESS) {
    free(a);
    return status;
  }
  *array = a;
  return CUDA_SUCCESS;
}

API CUresult cuArrayCreate_v2(CUarray *array, const struct Array2D *d) {
  const struct Array3D whole = {d->width, d->height, 0, d->format, d->channels, 0};
  return cuArray3DCreate_v2(array, &whole);
}

API CUresult cuArray3DGetDescriptor_v2(struct Array3D *d, CUarray array) {
  *d = (struct Array3D){array->width, array->height, array->depth, array->format, array->channels, array->flags};
  return CUDA_SUCCESS;
}

API CUresult cuArrayGetDescriptor_v2(struct Array2D *d, CUarray array) {
  *d = (struct Array2D){array->width, array->height, array->format, array->channels};
  return CUDA_SUCCESS;
}

API CUresult cuArrayDestroy(CUarray array) {
  if (array == NULL) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult status = release(array->address, false);
  free(array);
  return status;
}

API CUresult cuMemcpyHtoA_v2(CUarray array, size_t offset, const void *from, size_t bytes) {
  return cuMemcpy(array->address + offset, (uintptr_t)from, bytes);
}

API CUresult cuMemcpyAtoH_v2(void *to, CUarray array, size_t offset, size_t bytes) {
  return cuMemcpy((uintptr_t)to, array->address + offset, bytes);
}
