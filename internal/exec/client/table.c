// How programs find the entry points: by symbol, and by cuGetProcAddress.

#define _GNU_SOURCE
#include "client.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Version is an entry point whose parameters have changed: from this version of the API on, the name
// means the symbol. The others mean their newest symbol.
struct Version {
  const char *name;
  int since;
  const char *symbol;
};

// The later version comes first.
static const struct Version versions[] = {
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 11040, "cuCtxCreate_v3"},
    {"cuCtxCreate", 0, "cuCtxCreate_v2"},
    {"cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"},
    {"cuCtxGetDevice", 0, "cuCtxGetDevice"},
    {"cuCtxSynchronize", 0, "cuCtxSynchronize"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGetProcAddress", 0, "cuGetProcAddress"},
    {"cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"},
    {"cuGraphAddDependencies", 0, "cuGraphAddDependencies"},
    {"cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"},
    {"cuGraphAddKernelNode", 0, "cuGraphAddKernelNode"},
    {"cuGraphAddNode", 12030, "cuGraphAddNode_v2"},
    {"cuGraphAddNode", 0, "cuGraphAddNode"},
    {"cuGraphExecKernelNodeSetParams", 12000, "cuGraphExecKernelNodeSetParams_v2"},
    {"cuGraphExecKernelNodeSetParams", 0, "cuGraphExecKernelNodeSetParams"},
    {"cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"},
    {"cuGraphExecUpdate", 0, "cuGraphExecUpdate"},
    {"cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"},
    {"cuGraphGetEdges", 0, "cuGraphGetEdges"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
    {"cuGraphInstantiate", 0, "cuGraphInstantiate_v2"},
    {"cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"},
    {"cuGraphKernelNodeGetParams", 0, "cuGraphKernelNodeGetParams"},
    {"cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"},
    {"cuGraphKernelNodeSetParams", 0, "cuGraphKernelNodeSetParams"},
    {"cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"},
    {"cuGraphNodeGetDependencies", 0, "cuGraphNodeGetDependencies"},
    {"cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes_v2"},
    {"cuGraphNodeGetDependentNodes", 0, "cuGraphNodeGetDependentNodes"},
    {"cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies_v2"},
    {"cuGraphRemoveDependencies", 0, "cuGraphRemoveDependencies"},
    {"cuMemAdvise", 12020, "cuMemAdvise_v2"},
    {"cuMemAdvise", 0, "cuMemAdvise"},
    {"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
    {"cuMemPrefetchAsync", 0, "cuMemPrefetchAsync"},
    {"cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"},
    {"cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"},
    {"cuStreamGetCaptureInfo", 0, "cuStreamGetCaptureInfo"},
    {"cuStreamGetCtx", 0, "cuStreamGetCtx"},
    {"cuStreamUpdateCaptureDependencies", 12030, "cuStreamUpdateCaptureDependencies_v2"},
    {"cuStreamUpdateCaptureDependencies", 0, "cuStreamUpdateCaptureDependencies"},
};

// own_symbol finds an exported symbol of this library.
static void *own_symbol(const char *name) {
  static void *self;
  if (self == NULL) {
    Dl_info info;
    if (dladdr((void *)own_symbol, &info) == 0) return NULL;
    self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }
  return self == NULL ? NULL : dlsym(self, name);
}

// without_suffix removes what names the default stream of a thread: here it is that of the process.
static void without_suffix(char *name) {
  const size_t n = strlen(name);
  if (n > 5 && (strcmp(name + n - 5, "_ptsz") == 0 || strcmp(name + n - 5, "_ptds") == 0)) name[n - 5] = 0;
}

void *find_entry(const char *asked, int version) {
  char name[128], second[136];
  snprintf(name, sizeof name, "%s", asked);
  without_suffix(name);
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    if (strcmp(versions[i].name, name) == 0 && version >= versions[i].since) return own_symbol(versions[i].symbol);
  }
  snprintf(second, sizeof second, "%s_v2", name);
  void *found = own_symbol(second);
  return found != NULL ? found : own_symbol(name);
}

// ---- entry points that do not exist ------------------------------------------------------------

#if defined(__x86_64__)
enum { kThunkBytes = 24 };

// write_thunk writes the code: load the address of the name, jump to unsupported.
static void write_thunk(unsigned char *code, const char *name) {
  const uint64_t text = (uintptr_t)name, target = (uintptr_t)unsupported;
  memcpy(code, "\x48\xbf", 2);       // mov rdi, imm64
  memcpy(code + 2, &text, 8);
  memcpy(code + 10, "\x48\xb8", 2);  // mov rax, imm64
  memcpy(code + 12, &target, 8);
  memcpy(code + 20, "\xff\xe0", 2);  // jmp rax
}
#elif defined(__aarch64__)
enum { kThunkBytes = 32 };

static void write_thunk(unsigned char *code, const char *name) {
  const uint64_t text = (uintptr_t)name, target = (uintptr_t)unsupported;
  const uint32_t instructions[4] = {0x58000080, 0x580000b1, 0xd61f0220, 0xd503201f};  // ldr x0; ldr x17; br x17; nop
  memcpy(code, instructions, sizeof instructions);
  memcpy(code + 16, &text, 8);
  memcpy(code + 24, &target, 8);
  __builtin___clear_cache((char *)code, (char *)code + kThunkBytes);
}
#endif

// new_thunk makes a function that reports its own name. Programs ask for hundreds of entry points
// and call few of them.
static void *new_thunk(const char *name) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static unsigned char *next;
  static size_t left;
  pthread_mutex_lock(&lock);
  if (left < kThunkBytes) {
    left = 1 << 16;
    next = mmap(NULL, left, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (next == MAP_FAILED) left = 0;
  }
  void *made = NULL;
  if (left >= kThunkBytes) {
    made = next;
    write_thunk(next, strdup(name));
    next += kThunkBytes;
    left -= kThunkBytes;
  }
  pthread_mutex_unlock(&lock);
  return made;
}

enum { kFound = 0 };

API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
  (void)flags;
  if (symbol == NULL || function == NULL) return CUDA_ERROR_INVALID_VALUE;
  *function = find_entry(symbol, version);
  if (*function == NULL) *function = new_thunk(symbol);
  if (status != NULL) *status = kFound;
  return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

// ---- NVIDIA's runtime library ------------------------------------------------------------------

// NVIDIA's runtime library asks for tables that are not documented, and checks that the driver is
// NVIDIA's. A program needs attune's runtime library in its place.
API CUresult cuGetExportTable(const void **table, const void *uuid) {
  (void)uuid;
  *table = NULL;
  return unsupported("cuGetExportTable");
}

// ---- symbols that do not exist -----------------------------------------------------------------

// Programs that link libcuda need the symbols of all entry points that they name.
#define MISSING(name) \
  API CUresult name(void) { return unsupported(#name); }
#include "missing.h"
