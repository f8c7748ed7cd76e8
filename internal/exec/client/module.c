// Modules, libraries and functions. A library and a module are the same object, and so are a kernel
// and a function: there is one context.

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A fat binary: the header of the container, and the wrapper that nvcc's registration points to.
struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};

struct FatWrapper {
  uint32_t magic, version;
  const void *data;
  void *more;
};

enum { kFatMagic = 0xba55ed50u, kWrapperMagic = 0x466243b1u, kElfMagic = 0x464c457fu, kLinkedAtLoad = 2 };

// elf_bytes returns the size of a cubin: the end of its section headers, which come last or before
// the program headers.
static size_t elf_bytes(const unsigned char *image) {
  uint64_t programs, sections;
  uint16_t program_bytes, program_count, section_bytes, section_count;
  memcpy(&programs, image + 32, 8);
  memcpy(&sections, image + 40, 8);
  memcpy(&program_bytes, image + 54, 2);
  memcpy(&program_count, image + 56, 2);
  memcpy(&section_bytes, image + 58, 2);
  memcpy(&section_count, image + 60, 2);
  const size_t a = programs + (size_t)program_bytes * program_count, b = sections + (size_t)section_bytes * section_count;
  return a > b ? a : b;
}

// image_of returns the bytes of an image in any of the forms that the driver takes.
static size_t image_of(const void **image) {
  uint32_t magic;
  memcpy(&magic, *image, sizeof magic);
  if (magic == (uint32_t)kWrapperMagic) {
    *image = ((const struct FatWrapper *)*image)->data;
    memcpy(&magic, *image, sizeof magic);
  }
  if (magic == (uint32_t)kFatMagic) {
    const struct FatHeader *header = *image;
    return header->header_bytes + header->bytes;
  }
  if (magic == (uint32_t)kElfMagic) return elf_bytes(*image);
  return strlen(*image);
}

// gather returns the images that the driver links when it loads them (nvcc -rdc=true), one behind the
// other: those of the wrapper's list.
static char *gather(const struct FatWrapper *wrapper, size_t *bytes) {
  char *all = NULL;
  *bytes = 0;
  for (const void *const *next = wrapper->more; *next != NULL; next++) {
    const void *image = *next;
    const size_t size = image_of(&image);
    char *grown = realloc(all, *bytes + size);
    if (grown == NULL) return all;
    all = grown;
    memcpy(all + *bytes, image, size);
    *bytes += size;
  }
  return all;
}

static CUresult load(CUmodule *module, const void *image) {
  if (module == NULL || image == NULL) return CUDA_ERROR_INVALID_VALUE;
  const struct FatWrapper *wrapper = image;
  uint32_t magic, id;
  memcpy(&magic, image, sizeof magic);
  CUresult status;
  size_t bytes;
  if (magic == (uint32_t)kWrapperMagic && wrapper->version == kLinkedAtLoad && wrapper->more != NULL) {
    char *images = gather(wrapper, &bytes);
    status = call(REQUEST_LOAD, NULL, 0, images, bytes, &id, sizeof id, NULL);
    free(images);
  } else {
    bytes = image_of(&image);
    status = call(REQUEST_LOAD, NULL, 0, image, bytes, &id, sizeof id, NULL);
  }
  if (status != CUDA_SUCCESS) return status;
  struct Module *loaded = calloc(1, sizeof *loaded);
  if (loaded == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  loaded->id = id;
  *module = loaded;
  return CUDA_SUCCESS;
}

char *read_file(const char *path, size_t *bytes) {
  FILE *file = path == NULL ? NULL : fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  char *data = calloc(1, *bytes + 8);
  const bool complete = data != NULL && fread(data, 1, *bytes, file) == *bytes;
  fclose(file);
  if (complete) return data;
  free(data);
  return NULL;
}

static CUresult load_file(CUmodule *module, const char *path) {
  size_t bytes;
  char *image = read_file(path, &bytes);
  if (image == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
  const CUresult status = load(module, image);
  free(image);
  return status;
}

API CUresult cuModuleLoadData(CUmodule *module, const void *image) { return load(module, image); }
API CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) { return load(module, image); }
API CUresult cuModuleLoad(CUmodule *module, const char *path) { return load_file(module, path); }

API CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
  (void)count, (void)options, (void)values;
  return load(module, image);
}

API CUresult cuLibraryLoadData(CUmodule *library, const void *code, int *options, void **values, unsigned count,
                               int *library_options, void **library_values, unsigned library_count) {
  (void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
  return load(library, code);
}

API CUresult cuLibraryLoadFromFile(CUmodule *library, const char *path, int *options, void **values, unsigned count,
                                   int *library_options, void **library_values, unsigned library_count) {
  (void)options, (void)values, (void)count, (void)library_options, (void)library_values, (void)library_count;
  return load_file(library, path);
}

API CUresult cuModuleUnload(CUmodule module) {
  if (module == NULL) return CUDA_ERROR_INVALID_HANDLE;
  flush_output();
  return call(REQUEST_UNLOAD, &module->id, sizeof module->id, NULL, 0, NULL, 0, NULL);
}

API CUresult cuLibraryUnload(CUmodule library) { return cuModuleUnload(library); }

API CUresult cuLibraryGetModule(CUmodule *module, CUmodule library) {
  *module = library;
  return CUDA_SUCCESS;
}

API CUresult cuModuleGetLoadingMode(int *mode) {
  *mode = 2;  // lazy
  return CUDA_SUCCESS;
}

// FunctionReply is what the server says of a function. The offsets and sizes of its parameters follow.
struct FunctionReply {
  uint32_t id, params, param_bytes;
  int32_t attributes[kFunctionAttributes];
  uint32_t layout[2 * 4096];
};

static struct Function *new_function(struct Module *module, const char *name, const struct FunctionReply *reply) {
  struct Function *f = calloc(1, sizeof *f);
  f->id = reply->id;
  f->module = module;
  f->name = strdup(name);
  f->params = reply->params;
  f->param_bytes = reply->param_bytes;
  f->offsets = calloc(reply->params + 1, sizeof *f->offsets);
  f->sizes = calloc(reply->params + 1, sizeof *f->sizes);
  for (uint32_t i = 0; i < reply->params; i++) {
    f->offsets[i] = reply->layout[2 * i];
    f->sizes[i] = reply->layout[2 * i + 1];
  }
  memcpy(f->attributes, reply->attributes, sizeof f->attributes);
  f->next = module->functions;
  module->functions = f;
  add_handle(HANDLE_FUNCTION, f);
  return f;
}

CUresult find_function(struct Module *module, const char *name, struct Function **function) {
  static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
  if (module == NULL || name == NULL || function == NULL) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&finding);
  CUresult status = CUDA_SUCCESS;
  struct Function *f = module->functions;
  while (f != NULL && strcmp(f->name, name) != 0) f = f->next;
  if (f == NULL) {
    struct FunctionReply *reply = calloc(1, sizeof *reply);
    status = call(REQUEST_FUNCTION, &module->id, sizeof module->id, name, strlen(name), reply, sizeof *reply, NULL);
    if (status == CUDA_SUCCESS) f = new_function(module, name, reply);
    free(reply);
  }
  *function = f;
  pthread_mutex_unlock(&finding);
  return status;
}

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  return find_function(module, name, function);
}

API CUresult cuLibraryGetKernel(CUfunction *kernel, CUmodule library, const char *name) {
  return find_function(library, name, kernel);
}

API CUresult cuKernelGetFunction(CUfunction *function, CUfunction kernel) {
  *function = kernel;
  return kernel == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

API CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
  *module = function->module;
  return CUDA_SUCCESS;
}

API CUresult cuKernelGetLibrary(CUmodule *library, CUfunction kernel) { return cuFuncGetModule(library, kernel); }

API CUresult cuFuncGetName(const char **name, CUfunction function) {
  *name = function->name;
  return CUDA_SUCCESS;
}

API CUresult cuKernelGetName(const char **name, CUfunction kernel) { return cuFuncGetName(name, kernel); }

API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
  if (index >= function->params) return CUDA_ERROR_INVALID_VALUE;
  if (offset != NULL) *offset = function->offsets[index];
  if (bytes != NULL) *bytes = function->sizes[index];
  return CUDA_SUCCESS;
}

API CUresult cuKernelGetParamInfo(CUfunction kernel, size_t index, size_t *offset, size_t *bytes) {
  return cuFuncGetParamInfo(kernel, index, offset, bytes);
}

// kernel_names returns the names of the kernels of a module, each with its 0 byte.
static char *kernel_names(struct Module *module, unsigned *count) {
  enum { kMost = 1 << 20 };
  char *names = malloc(kMost);
  size_t bytes = 0;
  *count = 0;
  if (call(REQUEST_KERNELS, &module->id, sizeof module->id, NULL, 0, names, kMost, &bytes) != CUDA_SUCCESS) bytes = 0;
  for (size_t i = 0; i < bytes; i++) *count += names[i] == 0;
  return names;
}

API CUresult cuLibraryGetKernelCount(unsigned *count, CUmodule library) {
  free(kernel_names(library, count));
  return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) { return cuLibraryGetKernelCount(count, module); }

API CUresult cuLibraryEnumerateKernels(CUfunction *kernels, unsigned most, CUmodule library) {
  unsigned count;
  char *names = kernel_names(library, &count);
  const char *name = names;
  for (unsigned i = 0; i < count && i < most; i++, name += strlen(name) + 1) find_function(library, name, &kernels[i]);
  free(names);
  return CUDA_SUCCESS;
}

API CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned most, CUmodule module) {
  return cuLibraryEnumerateKernels(functions, most, module);
}

API CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  if (module == NULL || name == NULL) return CUDA_ERROR_INVALID_VALUE;
  uint64_t reply[3];
  const CUresult status = call(REQUEST_GLOBAL, &module->id, sizeof module->id, name, strlen(name), reply, sizeof reply, NULL);
  if (status != CUDA_SUCCESS) return status;
  if (reply[2] != 0) attuneOpenMemory(reply[0], reply[1]);
  if (address != NULL) *address = reply[0];
  if (bytes != NULL) *bytes = reply[1];
  return CUDA_SUCCESS;
}

API CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule library, const char *name) {
  return cuModuleGetGlobal_v2(address, bytes, library, name);
}

API CUresult cuLibraryGetManaged(CUdeviceptr *address, size_t *bytes, CUmodule library, const char *name) {
  return cuModuleGetGlobal_v2(address, bytes, library, name);
}

// ---- attributes --------------------------------------------------------------------------------

enum { kFunctionMaxDynamicShared = 8, kFunctionMaxThreads = 0, kFunctionStaticShared = 1, kFunctionRegisters = 4 };

API CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute < 0 || attribute >= kFunctionAttributes) return CUDA_ERROR_INVALID_VALUE;
  *value = function->attributes[attribute];
  return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute < kFunctionMaxDynamicShared || attribute >= kFunctionAttributes) return CUDA_ERROR_INVALID_VALUE;
  const int optin = machine.attributes[97];
  if (attribute == kFunctionMaxDynamicShared && (value < 0 || value > optin - function->attributes[kFunctionStaticShared])) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  function->attributes[attribute] = value;
  return CUDA_SUCCESS;
}

API CUresult cuKernelGetAttribute(int *value, int attribute, CUfunction kernel, CUdevice device) {
  (void)device;
  return cuFuncGetAttribute(value, attribute, kernel);
}

API CUresult cuKernelSetAttribute(int attribute, int value, CUfunction kernel, CUdevice device) {
  (void)device;
  return cuFuncSetAttribute(kernel, attribute, value);
}

API CUresult cuFuncSetCacheConfig(CUfunction function, int config) {
  (void)function, (void)config;
  return CUDA_SUCCESS;
}

API CUresult cuKernelSetCacheConfig(CUfunction kernel, int config, CUdevice device) {
  (void)device;
  return cuFuncSetCacheConfig(kernel, config);
}

API CUresult cuFuncSetSharedMemConfig(CUfunction function, int config) {
  (void)function, (void)config;
  return CUDA_SUCCESS;
}

API CUresult cuFuncLoad(CUfunction function) {
  (void)function;
  return CUDA_SUCCESS;
}

API CUresult cuFuncIsLoaded(int *state, CUfunction function) {
  (void)function;
  *state = 1;
  return CUDA_SUCCESS;
}

// ---- occupancy ---------------------------------------------------------------------------------

static int least(int a, int b) { return a < b ? a : b; }

// resident_blocks is how many blocks of a kernel fit on a multiprocessor: by blocks, threads,
// registers and shared memory.
static int resident_blocks(const struct Function *f, int threads, size_t dynamic) {
  if (threads <= 0 || threads > f->attributes[kFunctionMaxThreads]) return 0;
  const int *a = machine.attributes;
  const int warps = (threads + 31) / 32, registers = (f->attributes[kFunctionRegisters] + 7) / 8 * 8;
  const size_t shared = (size_t)f->attributes[kFunctionStaticShared] + dynamic;
  if (shared > (size_t)a[97]) return 0;
  int blocks = least(a[106], a[39] / 32 / warps);
  if (registers > 0) blocks = least(blocks, a[82] / (registers * 32 * warps));
  return least(blocks, (int)((size_t)a[81] / (shared + (size_t)a[111])));
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads, size_t dynamic,
                                                                  unsigned flags) {
  (void)flags;
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = resident_blocks(function, threads, dynamic);
  return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t dynamic) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic, 0);
}

typedef size_t (*SharedOfBlock)(int threads);

API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function, SharedOfBlock shared_of,
                                                       size_t dynamic, int limit, unsigned flags) {
  (void)flags;
  if (function == NULL) return CUDA_ERROR_INVALID_HANDLE;
  int best = 0, most = function->attributes[kFunctionMaxThreads];
  if (limit > 0) most = least(most, limit);
  *block = *grid = 0;
  for (int threads = most / 32 * 32; threads >= 32; threads -= 32) {
    const int blocks = resident_blocks(function, threads, shared_of != NULL ? shared_of(threads) : dynamic);
    if (blocks * threads <= best) continue;
    best = blocks * threads;
    *block = threads;
    *grid = blocks * machine.attributes[16];
  }
  return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function, SharedOfBlock shared_of, size_t dynamic,
                                              int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, dynamic, limit, 0);
}

API CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamic, CUfunction function, int blocks, int threads) {
  (void)threads;
  if (function == NULL || blocks <= 0) return CUDA_ERROR_INVALID_VALUE;
  const int each = machine.attributes[81] / blocks - machine.attributes[111];
  const int room = least(each, machine.attributes[97]) - function->attributes[kFunctionStaticShared];
  *dynamic = room > 0 ? (size_t)room : 0;
  return CUDA_SUCCESS;
}
