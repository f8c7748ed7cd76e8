// What a program registers before main: fat binaries, kernels and variables. A fat binary is loaded
// when one of its kernels or variables is first used.

#include "runtime.h"

#include <stdlib.h>
#include <string.h>

struct Binary {
  const void *wrapper;
  CUmodule module;
  cudaError_t failed;
  bool loaded;
  struct Binary *next;
};

struct Entity {
  const void *host;  // address of the stub of a kernel, or of the shadow of a variable
  const char *name;  // on the device
  struct Binary *binary;
  CUfunction function;  // NULL before the first use
  void **managed;       // the pointer of a managed variable; NULL for others
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Binary *binaries;

// The entities, in a table by their host addresses.
static struct Entity *entities;
static size_t entity_count, entity_room;

static struct Entity *slot_of(struct Entity *table, size_t room, const void *host) {
  size_t i = (size_t)((uintptr_t)host * 0x9e3779b97f4a7c15u >> 20) % room;
  while (table[i].host != NULL && table[i].host != host) i = (i + 1) % room;
  return &table[i];
}

static void grow(void) {
  const size_t room = entity_room == 0 ? 256 : 2 * entity_room;
  struct Entity *table = calloc(room, sizeof *table);
  for (size_t i = 0; i < entity_room; i++) {
    if (entities[i].host != NULL) *slot_of(table, room, entities[i].host) = entities[i];
  }
  free(entities);
  entities = table;
  entity_room = room;
}

static void add_entity(struct Entity entity) {
  pthread_mutex_lock(&lock);
  if (2 * entity_count >= entity_room) grow();
  struct Entity *slot = slot_of(entities, entity_room, entity.host);
  entity_count += slot->host == NULL;
  *slot = entity;
  pthread_mutex_unlock(&lock);
}

static struct Entity *find_entity(const void *host) {
  pthread_mutex_lock(&lock);
  struct Entity *slot = entity_room == 0 ? NULL : slot_of(entities, entity_room, host);
  pthread_mutex_unlock(&lock);
  return slot == NULL || slot->host == NULL ? NULL : slot;
}

API void **__cudaRegisterFatBinary(void *wrapper) {
  struct Binary *b = calloc(1, sizeof *b);
  b->wrapper = wrapper;
  pthread_mutex_lock(&lock);
  b->next = binaries;
  binaries = b;
  pthread_mutex_unlock(&lock);
  return (void **)b;
}

API void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
API void __cudaUnregisterFatBinary(void **handle) { (void)handle; }

API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, void *thread, void *block,
                                void *block_size, void *grid_size, int *warp) {
  (void)device, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp;
  add_entity((struct Entity){.host = host, .name = name, .binary = (struct Binary *)handle});
}

API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes, int constant, int global) {
  (void)device, (void)external, (void)bytes, (void)constant, (void)global;
  add_entity((struct Entity){.host = host, .name = name, .binary = (struct Binary *)handle});
}

API void __cudaRegisterManagedVar(void **handle, void **pointer, char *device, const char *name, int external, size_t bytes, int constant,
                                  int global) {
  (void)device, (void)external, (void)bytes, (void)constant, (void)global;
  add_entity((struct Entity){.host = pointer, .name = name, .binary = (struct Binary *)handle, .managed = pointer});
}

API void __cudaRegisterTexture(void) {}
API void __cudaRegisterSurface(void) {}
API void __cudaRegisterHostVar(void) {}

static cudaError_t load(struct Binary *b) {
  if (b->loaded) return b->failed;
  b->loaded = true;
  return b->failed = cuModuleLoadData(&b->module, b->wrapper);
}

// __cudaInitModule gives the managed variables of a binary their addresses, before the host uses them.
API char __cudaInitModule(void **handle) {
  struct Binary *binary = (struct Binary *)handle;
  if (ready() != 0) return 0;
  for (size_t i = 0; i < entity_room; i++) {
    struct Entity *e = &entities[i];
    CUdeviceptr address;
    size_t bytes;
    if (e->host == NULL || e->managed == NULL || e->binary != binary || load(binary) != 0) continue;
    if (cuModuleGetGlobal_v2(&address, &bytes, binary->module, e->name) != 0) continue;
    *e->managed = (void *)(uintptr_t)address;
  }
  return 1;
}

cudaError_t function_of(const void *host, CUfunction *function) {
  struct Entity *e = find_entity(host);
  if (e == NULL) {
    // A cudaKernel_t or cudaFunction_t is the driver's handle itself.
    *function = (CUfunction)host;
    return attuneIsFunction(host) ? 0 : cudaErrorInvalidDeviceFunction;
  }
  if (e->function == NULL) {
    cudaError_t status = load(e->binary);
    if (status == 0) status = cuModuleGetFunction(&e->function, e->binary->module, e->name);
    if (status != 0) return status == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction : status;
  }
  *function = e->function;
  return 0;
}

const void *host_of(CUfunction function) {
  const void *host = function;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < entity_room; i++) {
    if (function != NULL && entities[i].function == function) host = entities[i].host;
  }
  pthread_mutex_unlock(&lock);
  return host;
}

cudaError_t variable_of(const void *host, CUdeviceptr *address, size_t *bytes) {
  struct Entity *e = find_entity(host);
  if (e == NULL) return cudaErrorInvalidSymbol;
  const cudaError_t status = load(e->binary);
  if (status != 0) return status;
  return cuModuleGetGlobal_v2(address, bytes, e->binary->module, e->name) == 0 ? 0 : cudaErrorInvalidSymbol;
}
