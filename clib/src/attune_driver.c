/* The driver: its functions, the contexts of the program, the code that is loaded into them. */
#define _GNU_SOURCE /* dlopen and pthreads beside -std=c11 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attune_internal.h"

/* ---- errors --------------------------------------------------------------------------------- */

static _Thread_local char last_error[1024];

attune_sdpa_status attune_fail(attune_sdpa_status status, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(last_error, sizeof last_error, format, values);
  va_end(values);
  return status;
}

void attune_clear_error(void) { last_error[0] = '\0'; }

const char *attune_sdpa_last_error(void) { return last_error; }

/* ---- the functions of libcuda.so.1 ---------------------------------------------------------- */

typedef struct driver_api {
  CUresult (*cuInit)(unsigned flags);
  CUresult (*cuGetErrorName)(CUresult code, const char **name);
  CUresult (*cuGetErrorString)(CUresult code, const char **text);
  CUresult (*cuCtxGetCurrent)(CUcontext *context);
  CUresult (*cuCtxGetDevice)(CUdevice *device);
  CUresult (*cuDeviceGetAttribute)(int *value, int attribute, CUdevice device);
  CUresult (*cuPointerGetAttributes)(unsigned count, int *attributes, void **data,
                                     uint64_t pointer);
  CUresult (*cuModuleLoadDataEx)(CUmodule *module, const void *image, unsigned count, int *options,
                                 void **values);
  CUresult (*cuModuleUnload)(CUmodule module);
  CUresult (*cuModuleGetFunction)(CUfunction *function, CUmodule module, const char *name);
  CUresult (*cuFuncSetAttribute)(CUfunction function, int attribute, int value);
  CUresult (*cuLaunchKernelEx)(const launch_config *config, CUfunction function, void **parameters,
                               void **extra);
  CUresult (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, CUfunction function,
                                                          int threads, size_t shared_bytes);
  /* The driver of CUDA 11.8 has all of the above. Of these, the first is for forms with tensor maps,
   * and not every driver of CUDA 12 has the others: NULL. */
  CUresult (*cuTensorMapEncodeTiled)(void *map, int type, unsigned rank, void *address,
                                     const uint64_t *dims, const uint64_t *strides,
                                     const unsigned *box, const unsigned *element_strides,
                                     int interleave, int swizzle, int l2_promotion, int oob_fill);
  CUresult (*cuCtxGetId)(CUcontext context, unsigned long long *id);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int *mode);
} driver_api;

static driver_api driver;
static atomic_bool driver_bound, driver_started;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

static attune_sdpa_status bind_driver(void *library) {
  static const struct {
    const char *name;
    size_t offset;
    int optional;
  } symbols[] = {
#define SYMBOL(name) {#name, offsetof(driver_api, name), 0}
#define OPTIONAL(name) {#name, offsetof(driver_api, name), 1}
      SYMBOL(cuInit),
      SYMBOL(cuGetErrorName),
      SYMBOL(cuGetErrorString),
      SYMBOL(cuCtxGetCurrent),
      SYMBOL(cuCtxGetDevice),
      SYMBOL(cuDeviceGetAttribute),
      SYMBOL(cuPointerGetAttributes),
      SYMBOL(cuModuleLoadDataEx),
      SYMBOL(cuModuleUnload),
      SYMBOL(cuModuleGetFunction),
      SYMBOL(cuFuncSetAttribute),
      SYMBOL(cuLaunchKernelEx),
      SYMBOL(cuOccupancyMaxActiveBlocksPerMultiprocessor),
      OPTIONAL(cuTensorMapEncodeTiled),
      OPTIONAL(cuCtxGetId),
      OPTIONAL(cuThreadExchangeStreamCaptureMode),
#undef SYMBOL
#undef OPTIONAL
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; ++i) {
    void *symbol = dlsym(library, symbols[i].name);
    if (symbol == NULL && !symbols[i].optional) {
      return attune_fail(ATTUNE_SDPA_NO_DRIVER,
                  "libcuda.so.1 has no function %s: the driver is older than CUDA 11.8; install "
                  "a newer one",
                  symbols[i].name);
    }
    memcpy((char *)&driver + symbols[i].offset, &symbol, sizeof symbol);
  }
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status driver_failure(attune_sdpa_status status, CUresult code, const char *call,
                                         const char *detail) {
  const char *name = NULL, *text = NULL;
  if (driver.cuGetErrorName(code, &name) != 0 || name == NULL) name = "an unknown error";
  if (driver.cuGetErrorString(code, &text) != 0 || text == NULL) text = "no description";
  return attune_fail(status, "%s failed with %s (%d, %s)%s%s", call, name, code, text,
              *detail == '\0' ? "" : ": ", detail);
}

/* Opens the driver once. A failure is not remembered: the next call tries again. */
attune_sdpa_status attune_start_driver(void) {
  if (atomic_load(&driver_started)) return ATTUNE_SDPA_OK;
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  pthread_mutex_lock(&driver_lock);
  if (!atomic_load(&driver_started)) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
      status =
          attune_fail(ATTUNE_SDPA_NO_DRIVER, "NVIDIA's driver cannot be opened: %s", dlerror());
    } else {
      status = bind_driver(library);
      if (status == ATTUNE_SDPA_OK) atomic_store(&driver_bound, true);
      const CUresult code = status == ATTUNE_SDPA_OK ? driver.cuInit(0) : 0;
      if (code != 0) status = driver_failure(ATTUNE_SDPA_NO_DRIVER, code, "cuInit", "");
      if (status == ATTUNE_SDPA_OK) atomic_store(&driver_started, true);
    }
  }
  pthread_mutex_unlock(&driver_lock);
  return status;
}

#define DRIVER(name, ...)                                                                \
  do {                                                                                   \
    const CUresult code_ = driver.name(__VA_ARGS__);                                     \
    if (code_ != 0) return driver_failure(ATTUNE_SDPA_DRIVER_ERROR, code_, #name, "");   \
  } while (0)

/* ---- contexts and their modules ------------------------------------------------------------- */

/* What a context knows of a form. */
typedef struct loaded_form {
  _Atomic(CUfunction) function; /* NULL until the form is loaded */
  atomic_int resident_blocks;   /* on a multiprocessor; 0 until it is asked for */
} loaded_form;

/* The list of contexts only grows, so it is read without a lock. A context that its program
 * destroys takes its modules with it; its entry stays. */
struct context {
  struct context *next;
  unsigned long long id;
  CUdevice device;
  target target;
  int l2_bytes;
  pthread_mutex_t loading;
  loaded_form forms[]; /* as attune_sdpa_forms */
};

static _Atomic(context *) contexts;
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

static context *known_context(unsigned long long id) {
  context *c = atomic_load(&contexts);
  while (c != NULL && c->id != id) c = c->next;
  return c;
}

enum { FIRST_ARCH = 80 }; /* of the forms for other GPUs than Hopper's */

/* The architecture that ATTUNE_ARCH names in place of a later one of the GPU. */
static attune_sdpa_status named_arch(int32_t *arch) {
  const char *named = getenv("ATTUNE_ARCH");
  if (named == NULL || *named == '\0' || *arch < FIRST_ARCH) return ATTUNE_SDPA_OK;
  char *end = NULL;
  const long number = strncmp(named, "sm_", 3) == 0 ? strtol(named + 3, &end, 10) : 0;
  if (number < FIRST_ARCH || number > *arch || *end != '\0') {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "the variable ATTUNE_ARCH is %.40s: it names an architecture from sm_%d to "
                       "that of the GPU, sm_%d",
                       named, FIRST_ARCH, *arch);
  }
  if (number == attune_sdpa_arch && number != *arch) { /* its code runs on no later GPU */
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                       "the variable ATTUNE_ARCH is %s, and the GPU sm_%d: code for Hopper runs on "
                       "no other GPU; name another architecture, such as sm_89",
                       named, *arch);
  }
  *arch = (int32_t)number;
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status new_context(unsigned long long id, context **into) {
  CUdevice device = 0;
  int major = 0, minor = 0, multiprocessors = 0, l2_bytes = 0;
  DRIVER(cuCtxGetDevice, &device);
  DRIVER(cuDeviceGetAttribute, &major, DEVICE_MAJOR, device);
  DRIVER(cuDeviceGetAttribute, &minor, DEVICE_MINOR, device);
  DRIVER(cuDeviceGetAttribute, &multiprocessors, DEVICE_MULTIPROCESSORS, device);
  DRIVER(cuDeviceGetAttribute, &l2_bytes, DEVICE_L2_BYTES, device);
  if (multiprocessors < 1) {
    return attune_fail(ATTUNE_SDPA_DRIVER_ERROR, "the driver reports %d multiprocessors of device %d",
                       multiprocessors, device);
  }
  int32_t arch = 10 * major + minor;
  TRY(named_arch(&arch));
  const size_t bytes = sizeof(context) + (size_t)attune_sdpa_form_count * sizeof(loaded_form);
  context *c = calloc(1, bytes);
  if (c == NULL) return attune_fail(ATTUNE_SDPA_DRIVER_ERROR, "no memory for %zu bytes", bytes);
  c->id = id, c->device = device, c->l2_bytes = l2_bytes;
  c->target = (target){arch, multiprocessors};
  pthread_mutex_init(&c->loading, NULL);
  c->next = atomic_load(&contexts);
  atomic_store(&contexts, c);
  *into = c;
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_current_context(context **into) {
  CUcontext current = NULL;
  DRIVER(cuCtxGetCurrent, &current);
  if (current == NULL) {
    return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                "no CUDA context is current on this thread; make one current with cuCtxSetCurrent "
                "or cudaSetDevice");
  }
  /* An address is reused after its context is destroyed, an id is not. */
  unsigned long long id = (uintptr_t)current;
  if (driver.cuCtxGetId != NULL) DRIVER(cuCtxGetId, current, &id);
  if ((*into = known_context(id)) != NULL) return ATTUNE_SDPA_OK;
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  pthread_mutex_lock(&contexts_lock);
  if ((*into = known_context(id)) == NULL) status = new_context(id, into);
  pthread_mutex_unlock(&contexts_lock);
  return status;
}

attune_sdpa_status attune_started_context(context **into) {
  *into = NULL;
  return atomic_load(&driver_started) ? attune_current_context(into) : ATTUNE_SDPA_OK;
}

/* To start the driver here would be no good: a fork of the program could not use it. */
context *attune_peek_context(void) {
  if (!atomic_load(&driver_bound)) {
    pthread_mutex_lock(&driver_lock);
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL && bind_driver(library) == ATTUNE_SDPA_OK) atomic_store(&driver_bound, true);
    pthread_mutex_unlock(&driver_lock);
  }
  CUcontext current = NULL;
  context *c = NULL;
  if (!atomic_load(&driver_bound)) return NULL;
  if (driver.cuCtxGetCurrent(&current) != 0 || current == NULL) return NULL;
  return attune_current_context(&c) == ATTUNE_SDPA_OK ? c : NULL;
}

target attune_target_of(const context *c) { return c->target; }

int attune_device_of(const context *c) { return c->device; }

int attune_l2_bytes(const context *c) { return c->l2_bytes; }

/* ---- architectures -------------------------------------------------------------------------- */

bool attune_runs_on(const attune_sdpa_form_info *form, int32_t arch) {
  if (form->is_exact) return arch == form->arch;
  return arch >= form->arch && (form->is_ptx || arch / 10 == form->arch / 10);
}

int32_t attune_shared_bytes_of(target t) {
  enum { MOST_AMPERE = 128 };
  const bool is_later = t.arch == 80 && t.multiprocessors > MOST_AMPERE;
  const int32_t kilobytes = is_later || (t.arch >= 90 && t.arch < 120) ? 228
                            : t.arch == 80 || t.arch == 87             ? 164
                                                                       : 100;
  return kilobytes << 10;
}

static attune_sdpa_status raise_limits(const attune_sdpa_form_info *form, CUfunction function) {
  enum { PORTABLE_CLUSTER = 8 };
  if (form->shared_bytes > 0) {
    DRIVER(cuFuncSetAttribute, function, FUNCTION_DYNAMIC_SHARED, form->shared_bytes);
  }
  if (form->cluster > PORTABLE_CLUSTER) {
    DRIVER(cuFuncSetAttribute, function, FUNCTION_NON_PORTABLE_CLUSTER, 1);
  }
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status load(const attune_sdpa_form_info *form, CUfunction *function) {
  char log[512] = "";
  int options[] = {LOAD_ERROR_LOG, LOAD_ERROR_LOG_BYTES};
  void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
  CUmodule module = NULL;
  CUresult code = driver.cuModuleLoadDataEx(&module, form->image, 2, options, values);
  if (code != 0) {
    char detail[768];
    /* Older drivers know neither PTX nor machine code of a newer compiler. */
    const bool old = code == UNSUPPORTED_PTX || code == INVALID_IMAGE || code == NO_BINARY_FOR_GPU;
    snprintf(detail, sizeof detail, "%s%s%s%s", form->variant, *log == '\0' ? "" : ": ", log,
             old ? "; install a newer driver" : "");
    return driver_failure(old ? ATTUNE_SDPA_NO_DRIVER : ATTUNE_SDPA_DRIVER_ERROR, code,
                          "cuModuleLoadDataEx", detail);
  }
  code = driver.cuModuleGetFunction(function, module, form->entry);
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  if (code != 0) {
    status = driver_failure(ATTUNE_SDPA_DRIVER_ERROR, code, "cuModuleGetFunction", form->variant);
  } else {
    status = raise_limits(form, *function);
  }
  if (status != ATTUNE_SDPA_OK) driver.cuModuleUnload(module);
  return status;
}

/* Only the first call of each form loads, under the context's lock: launches on other devices do
 * not wait for it. */
attune_sdpa_status attune_load(context *c, const attune_sdpa_form_info *form) {
  _Atomic(CUfunction) *slot = &c->forms[form - attune_sdpa_forms].function;
  if (atomic_load(slot) != NULL) return ATTUNE_SDPA_OK;
  if (!attune_runs_on(form, c->target.arch)) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "device %d of the current context is sm_%d; the code of %s is for sm_%d%s",
                       c->device, c->target.arch, form->variant, form->arch,
                       form->is_exact ? "a" : form->is_ptx ? " and later" : "");
  }
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  pthread_mutex_lock(&c->loading);
  if (atomic_load(slot) == NULL) {
    /* A thread that captures a stream may not load modules, except in relaxed mode. */
    int mode = CAPTURE_RELAXED;
    const bool relaxed = driver.cuThreadExchangeStreamCaptureMode != NULL &&
                         driver.cuThreadExchangeStreamCaptureMode(&mode) == 0;
    CUfunction function = NULL;
    status = load(form, &function);
    if (relaxed) driver.cuThreadExchangeStreamCaptureMode(&mode);
    if (status == ATTUNE_SDPA_OK) atomic_store(slot, function);
  }
  pthread_mutex_unlock(&c->loading);
  return status;
}

/* Threads that ask at the same time get the same answer, so there is no lock. */
attune_sdpa_status attune_resident_blocks(context *c, const attune_sdpa_form_info *form,
                                          int *blocks) {
  loaded_form *f = &c->forms[form - attune_sdpa_forms];
  if ((*blocks = atomic_load(&f->resident_blocks)) > 0) return ATTUNE_SDPA_OK;
  DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks, atomic_load(&f->function),
         form->threads, (size_t)form->shared_bytes);
  if (*blocks < 1) {
    return attune_fail(ATTUNE_SDPA_UNSUPPORTED,
                       "a multiprocessor of device %d has no room for a block of %s", c->device,
                       form->variant);
  }
  atomic_store(&f->resident_blocks, *blocks);
  return ATTUNE_SDPA_OK;
}

/* ---- launches ------------------------------------------------------------------------------- */

attune_sdpa_status attune_encode_map(const tensor_map *map, encoded_map *into) {
  static const unsigned element_strides[] = {1, 1, 1, 1};
  if (driver.cuTensorMapEncodeTiled == NULL) {
    return attune_fail(ATTUNE_SDPA_NO_DRIVER,
                       "libcuda.so.1 has no function cuTensorMapEncodeTiled: the driver is older than "
                       "CUDA 12; install a newer one");
  }
  int swizzle = 0; /* CU_TENSOR_MAP_SWIZZLE_: 1 for 32 bytes, 2 for 64, 3 for 128 */
  while (swizzle < 3 && 16 << swizzle < map->swizzle_bytes) ++swizzle;
  /* The driver's parameter is a pointer that it does not write to. */
  DRIVER(cuTensorMapEncodeTiled, into, map->type, map->rank, (void *)(uintptr_t)map->address,
         map->dims, map->strides, map->box, element_strides, 0, swizzle, map->l2_promotion, 0);
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_launch(context *c, const attune_sdpa_form_info *form,
                                 const unsigned grid[3], void *values[ATTUNE_ARGUMENTS],
                                 CUstream stream, bool dependent) {
  void *parameters[ATTUNE_SDPA_MAX_ARGUMENTS];
  for (int i = 0; i < form->argument_count; ++i) parameters[i] = values[form->arguments[i]];
  launch_attribute attribute = {.id = LAUNCH_CLUSTER};
  if (dependent) {
    attribute.id = LAUNCH_DEPENDENT;
    attribute.value.dependent = 1;
  } else if (form->cooperative) {
    attribute.id = LAUNCH_COOPERATIVE;
    attribute.value.cooperative = 1;
  } else {
    attribute.value.cluster[0] = (unsigned)form->cluster;
    attribute.value.cluster[1] = attribute.value.cluster[2] = 1;
  }
  const bool has_attribute = dependent || form->cooperative || form->cluster > 1;
  const launch_config config = {.grid = {grid[0], grid[1], grid[2]},
                                .block = {(unsigned)form->threads, 1, 1},
                                .shared_bytes = (unsigned)form->shared_bytes,
                                .stream = stream,
                                .attributes = has_attribute ? &attribute : NULL,
                                .attribute_count = has_attribute};
  DRIVER(cuLaunchKernelEx, &config, atomic_load(&c->forms[form - attune_sdpa_forms].function),
         parameters, NULL);
  return ATTUNE_SDPA_OK;
}

/* ---- pointers ------------------------------------------------------------------------------- */

attune_sdpa_status attune_check_addresses(const pointer *all, int count) {
  for (const pointer *argument = all; argument < all + count; ++argument) {
    if (argument->address == NULL) {
      return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s is NULL", argument->name);
    }
    if ((uintptr_t)argument->address % argument->alignment != 0) {
      return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s is %p; it must be a multiple of %u",
                         argument->name, argument->address, argument->alignment);
    }
  }
  return ATTUNE_SDPA_OK;
}

attune_sdpa_status attune_check_memory(const context *c, const pointer *all, int count) {
  int attributes[] = {POINTER_MEMORY_TYPE, POINTER_IS_MANAGED, POINTER_DEVICE_ORDINAL};
  for (const pointer *argument = all; argument < all + count; ++argument) {
    unsigned type = 0, managed = 0;
    int device = -1;
    void *data[] = {&type, &managed, &device};
    DRIVER(cuPointerGetAttributes, 3, attributes, data, (uintptr_t)argument->address);
    if (managed != 0) continue;
    if (type != MEMORY_DEVICE) {
      return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s is %p, which is not device memory",
                         argument->name, argument->address);
    }
    if (device != c->device) {
      return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                         "%s is %p, memory of device %d; the current context is of device %d",
                         argument->name, argument->address, device, c->device);
    }
  }
  return ATTUNE_SDPA_OK;
}
