#define _GNU_SOURCE /* dlopen and pthreads beside -std=c11 */
#include "attune_sdpa.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attune_sdpa_forms.h"

/* ---- errors --------------------------------------------------------------------------------- */

static _Thread_local char last_error[1024];

__attribute__((format(printf, 2, 3))) static attune_sdpa_status fail(attune_sdpa_status status,
                                                                     const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(last_error, sizeof last_error, format, values);
  va_end(values);
  return status;
}

#define TRY(call)                                       \
  do {                                                  \
    const attune_sdpa_status status_ = (call);          \
    if (status_ != ATTUNE_SDPA_OK) return status_;      \
  } while (0)

/* ---- the driver ----------------------------------------------------------------------------- */

/* The part of cuda.h that is used. */
typedef int CUresult, CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;

typedef struct launch_attribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    unsigned cluster[3];
  } value;
} launch_attribute;

typedef struct launch_config {
  unsigned grid[3], block[3], shared_bytes;
  CUstream stream;
  launch_attribute *attributes;
  unsigned attribute_count;
} launch_config;

_Static_assert(sizeof(launch_attribute) == 72 && sizeof(launch_config) == 56,
               "CUlaunchAttribute and CUlaunchConfig have these sizes");

enum {
  DEVICE_MULTIPROCESSORS = 16,
  DEVICE_MAJOR = 75,
  DEVICE_MINOR = 76,
  POINTER_MEMORY_TYPE = 2,
  POINTER_IS_MANAGED = 8,
  POINTER_DEVICE_ORDINAL = 9,
  MEMORY_DEVICE = 2,
  FUNCTION_DYNAMIC_SHARED = 8,
  FUNCTION_NON_PORTABLE_CLUSTER = 14,
  LOAD_ERROR_LOG = 5,
  LOAD_ERROR_LOG_BYTES = 6,
  LAUNCH_CLUSTER = 4,
  CAPTURE_RELAXED = 2,
  UNSUPPORTED_PTX = 222,
  MAP_U8 = 0,
  MAP_F16 = 6,
  MAP_BF16 = 9,
  MAP_L2_256B = 3
};

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
  CUresult (*cuTensorMapEncodeTiled)(void *map, int type, unsigned rank, void *address,
                                     const uint64_t *dims, const uint64_t *strides,
                                     const unsigned *box, const unsigned *element_strides,
                                     int interleave, int swizzle, int l2_promotion, int oob_fill);
  CUresult (*cuLaunchKernelEx)(const launch_config *config, CUfunction function, void **parameters,
                               void **extra);
  /* The driver of CUDA 12 has all of the above, but not the driver of every minor version: NULL. */
  CUresult (*cuCtxGetId)(CUcontext context, unsigned long long *id);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int *mode);
} driver_api;

static driver_api driver;
static atomic_bool driver_started;
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
      SYMBOL(cuTensorMapEncodeTiled),
      SYMBOL(cuLaunchKernelEx),
      OPTIONAL(cuCtxGetId),
      OPTIONAL(cuThreadExchangeStreamCaptureMode),
#undef SYMBOL
#undef OPTIONAL
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; ++i) {
    void *symbol = dlsym(library, symbols[i].name);
    if (symbol == NULL && !symbols[i].optional) {
      return fail(ATTUNE_SDPA_NO_DRIVER,
                  "libcuda.so.1 has no function %s: the driver is older than CUDA 12; install a "
                  "newer one",
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
  return fail(status, "%s failed with %s (%d, %s)%s%s", call, name, code, text,
              *detail == '\0' ? "" : ": ", detail);
}

/* Opens the driver once. A failure is not remembered: the next call tries again. */
static attune_sdpa_status start_driver(void) {
  if (atomic_load(&driver_started)) return ATTUNE_SDPA_OK;
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  pthread_mutex_lock(&driver_lock);
  if (!atomic_load(&driver_started)) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == NULL) {
      status = fail(ATTUNE_SDPA_NO_DRIVER, "NVIDIA's driver cannot be opened: %s", dlerror());
    } else {
      status = bind_driver(library);
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

/* A CUDA context with the functions that were loaded into it. The list only grows, so it is read
 * without a lock. A context that its program destroys takes its modules with it; its entry stays.
 */
typedef struct context {
  struct context *next;
  unsigned long long id;
  CUdevice device;
  int multiprocessors;
  pthread_mutex_t loading;
  _Atomic(CUfunction) functions[]; /* by form; NULL until the form is loaded */
} context;

static _Atomic(context *) contexts;
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

static context *known_context(unsigned long long id) {
  context *c = atomic_load(&contexts);
  while (c != NULL && c->id != id) c = c->next;
  return c;
}

static attune_sdpa_status new_context(unsigned long long id, context **into) {
  CUdevice device = 0;
  int major = 0, minor = 0, multiprocessors = 0;
  DRIVER(cuCtxGetDevice, &device);
  DRIVER(cuDeviceGetAttribute, &major, DEVICE_MAJOR, device);
  DRIVER(cuDeviceGetAttribute, &minor, DEVICE_MINOR, device);
  DRIVER(cuDeviceGetAttribute, &multiprocessors, DEVICE_MULTIPROCESSORS, device);
  if (major != attune_sdpa_arch_major || minor != attune_sdpa_arch_minor) {
    return fail(ATTUNE_SDPA_UNSUPPORTED,
                "device %d of the current context is sm_%d%d; the code of this library is for "
                "sm_%d%d",
                device, major, minor, attune_sdpa_arch_major, attune_sdpa_arch_minor);
  }
  const size_t bytes = sizeof(context) + (size_t)attune_sdpa_form_count * sizeof(CUfunction);
  context *c = calloc(1, bytes);
  if (c == NULL) return fail(ATTUNE_SDPA_DRIVER_ERROR, "no memory for %zu bytes", bytes);
  c->id = id, c->device = device, c->multiprocessors = multiprocessors;
  pthread_mutex_init(&c->loading, NULL);
  c->next = atomic_load(&contexts);
  atomic_store(&contexts, c);
  *into = c;
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status current_context(context **into) {
  CUcontext current = NULL;
  DRIVER(cuCtxGetCurrent, &current);
  if (current == NULL) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT,
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
    snprintf(detail, sizeof detail, "%s%s%s%s", form->variant, *log == '\0' ? "" : ": ", log,
             code == UNSUPPORTED_PTX ? "; install a newer driver" : "");
    return driver_failure(ATTUNE_SDPA_DRIVER_ERROR, code, "cuModuleLoadDataEx", detail);
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

/* The function of a form in a context. Only the first call of each loads, under the context's lock:
 * launches on other devices do not wait for it. */
static attune_sdpa_status loaded(context *c, const attune_sdpa_form_info *form,
                                 CUfunction *function) {
  _Atomic(CUfunction) *slot = &c->functions[form - attune_sdpa_forms];
  if ((*function = atomic_load(slot)) != NULL) return ATTUNE_SDPA_OK;
  attune_sdpa_status status = ATTUNE_SDPA_OK;
  pthread_mutex_lock(&c->loading);
  if ((*function = atomic_load(slot)) == NULL) {
    /* A thread that captures a stream may not load modules, except in relaxed mode. */
    int mode = CAPTURE_RELAXED;
    const bool relaxed = driver.cuThreadExchangeStreamCaptureMode != NULL &&
                         driver.cuThreadExchangeStreamCaptureMode(&mode) == 0;
    status = load(form, function);
    if (relaxed) driver.cuThreadExchangeStreamCaptureMode(&mode);
    if (status == ATTUNE_SDPA_OK) atomic_store(slot, *function);
  }
  pthread_mutex_unlock(&c->loading);
  return status;
}

/* ---- the problem ---------------------------------------------------------------------------- */

/* The largest extents and tensors that the kernels are checked with. */
#define MAX_EXTENT ((int64_t)1 << 24)
#define MAX_ELEMENTS ((double)((int64_t)1 << 31))

/* The four tensors with what is known of each. */
typedef struct tensor {
  const char *name, *stride_name;
  const void *address;
  const int64_t *stride;
  int64_t heads, rows;
} tensor;

enum { TENSORS = 4, TENSOR_O = 3 };

static void list_tensors(const attune_sdpa_params *p, tensor all[TENSORS]) {
  all[0] = (tensor){"q", "q_stride", p->q, p->q_stride, p->heads, p->queries};
  all[1] = (tensor){"k", "k_stride", p->k, p->k_stride, p->kv_heads, p->keys};
  all[2] = (tensor){"v", "v_stride", p->v, p->v_stride, p->kv_heads, p->keys};
  all[3] = (tensor){"o", "o_stride", p->o, p->o_stride, p->heads, p->queries};
}

static attune_sdpa_status check_sizes(const attune_sdpa_params *p) {
  const struct {
    const char *name;
    int32_t value;
  } sizes[] = {{"batch", p->batch},     {"heads", p->heads}, {"kv_heads", p->kv_heads},
               {"queries", p->queries}, {"keys", p->keys},   {"head_dim", p->head_dim}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    if (sizes[i].value < 1 || sizes[i].value > MAX_EXTENT) {
      return fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s is %d; it must be from 1 to %d", sizes[i].name,
                  sizes[i].value, (int)MAX_EXTENT);
    }
  }
  if (p->heads % p->kv_heads != 0) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT, "kv_heads is %d, which does not divide heads, %d",
                p->kv_heads, p->heads);
  }
  const int32_t rows = p->queries > p->keys ? p->queries : p->keys;
  if ((double)p->batch * p->heads * rows * p->head_dim > MAX_ELEMENTS) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                "batch is %d, heads %d, %s %d and head_dim %d: a tensor would have more than 2^31 "
                "elements",
                p->batch, p->heads, rows == p->queries ? "queries" : "keys", rows, p->head_dim);
  }
  return ATTUNE_SDPA_OK;
}

/* Strides of a dimension of one element do not matter. */
static attune_sdpa_status check_strides(const attune_sdpa_params *p) {
  tensor all[TENSORS];
  list_tensors(p, all);
  for (int i = 0; i < TENSORS; ++i) {
    const int64_t *s = all[i].stride, row = p->head_dim, head = all[i].rows * row,
                  extents[3] = {p->batch, all[i].heads, all[i].rows},
                  wanted[3] = {all[i].heads * head, head, row};
    if (s[0] == 0 && s[1] == 0 && s[2] == 0) continue;
    for (int d = 0; d < 3; ++d) {
      if (extents[d] == 1 || s[d] == wanted[d]) continue;
      return fail(ATTUNE_SDPA_UNSUPPORTED,
                  "%s[%d] is %lld; the forms of this library take contiguous tensors, with a "
                  "stride of %lld here",
                  all[i].stride_name, d, (long long)s[d], (long long)wanted[d]);
    }
  }
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status check_dtype(const char *name, attune_sdpa_dtype dtype, int supported) {
  static const char *const names[] = {"", "E4M3", "FP16", "BF16"};
  if ((int)dtype < ATTUNE_SDPA_E4M3 || (int)dtype > ATTUNE_SDPA_BF16) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s is %d; it must be a value of attune_sdpa_dtype",
                name, (int)dtype);
  }
  if ((supported >> dtype & 1) == 0) {
    return fail(ATTUNE_SDPA_UNSUPPORTED, "%s is ATTUNE_SDPA_%s, which no form of this library has",
                name, names[dtype]);
  }
  return ATTUNE_SDPA_OK;
}

static attune_sdpa_status check_features(const attune_sdpa_params *p) {
  TRY(check_dtype("dtype", p->dtype, 1 << ATTUNE_SDPA_E4M3));
  TRY(check_dtype("out_dtype", p->out_dtype, 1 << ATTUNE_SDPA_FP16 | 1 << ATTUNE_SDPA_BF16));
  /* The row max is taken of the scores before they are scaled. */
  if (!isfinite(p->scale) || p->scale < 0) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT, "scale is %g; it must be finite and not negative",
                (double)p->scale);
  }
  const struct {
    const char *name;
    int32_t value;
  } windows[] = {{"window_left", p->window_left}, {"window_right", p->window_right}};
  for (int i = 0; i < 2; ++i) {
    if (windows[i].value < -1) {
      return fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                  "%s is %d; it must be -1 for no limit, or at least 0", windows[i].name,
                  windows[i].value);
    }
    if (windows[i].value >= 0) {
      return fail(ATTUNE_SDPA_UNSUPPORTED,
                  "%s is %d; no form of this library has a window, and -1 means no limit",
                  windows[i].name, windows[i].value);
    }
  }
  if (p->sinks != NULL) {
    return fail(ATTUNE_SDPA_UNSUPPORTED,
                "sinks is %p; no form of this library has sinks, so it must be NULL",
                (const void *)p->sinks);
  }
  return check_strides(p);
}

static attune_sdpa_status no_head_dim(int32_t head_dim) {
  char dims[128] = "";
  size_t used = 0;
  for (int i = 0; i < attune_sdpa_form_count; ++i) {
    int j = 0;
    while (attune_sdpa_forms[j].head_dim != attune_sdpa_forms[i].head_dim) ++j;
    if (j < i || used >= sizeof dims) continue;
    used += (size_t)snprintf(dims + used, sizeof dims - used, "%s%d", used == 0 ? "" : ", ",
                             attune_sdpa_forms[i].head_dim);
  }
  return fail(ATTUNE_SDPA_UNSUPPORTED, "head_dim is %d; the forms of this library have %s",
              head_dim, dims);
}

/* Checks everything but pointers and finds the form. */
static attune_sdpa_status select_form(const attune_sdpa_params *p,
                                      const attune_sdpa_form_info **form) {
  last_error[0] = '\0';
  if (p == NULL) return fail(ATTUNE_SDPA_INVALID_ARGUMENT, "params is NULL");
  if (p->struct_size != sizeof *p) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                "struct_size is %zu; sizeof(attune_sdpa_params) is %zu in the header of this "
                "library",
                p->struct_size, sizeof *p);
  }
  TRY(check_sizes(p));
  TRY(check_features(p));
  const attune_sdpa_shape shape = {.batch = p->batch,
                                   .heads = (int64_t)p->batch * p->heads,
                                   .kv_heads = (int64_t)p->batch * p->kv_heads,
                                   .queries = p->queries,
                                   .keys = p->keys,
                                   .head_dim = p->head_dim,
                                   .causal = p->causal != 0};
  const int *outputs = attune_sdpa_choices[attune_sdpa_choose(&shape)];
  const int bf16 = p->out_dtype == ATTUNE_SDPA_BF16, lse = p->lse != NULL;
  /* Every choice has the plain form. */
  if (attune_sdpa_forms[outputs[0]].head_dim != p->head_dim) return no_head_dim(p->head_dim);
  const int index = outputs[bf16 + 2 * lse];
  if (index < 0 && lse) {
    return fail(ATTUNE_SDPA_UNSUPPORTED,
                "lse is %p; this library was exported without forms that write it, so it must be "
                "NULL",
                (const void *)p->lse);
  }
  if (index < 0) {
    return fail(ATTUNE_SDPA_UNSUPPORTED,
                "out_dtype is ATTUNE_SDPA_BF16; this library was exported with FP16 outputs only");
  }
  *form = &attune_sdpa_forms[index];
  return ATTUNE_SDPA_OK;
}

/* ---- pointers ------------------------------------------------------------------------------- */

typedef struct pointer {
  const char *name;
  const void *address;
  unsigned alignment; /* TMA and 16-byte loads and stores need 16 */
} pointer;

enum { POINTERS = 8 };

static attune_sdpa_status check_address(const pointer *argument) {
  if (argument->address == NULL) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s is NULL", argument->name);
  }
  if ((uintptr_t)argument->address % argument->alignment != 0) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s is %p; it must be a multiple of %u",
                argument->name, argument->address, argument->alignment);
  }
  return ATTUNE_SDPA_OK;
}

/* Refuses host memory and memory of another device, on which the kernel would fault. */
static attune_sdpa_status check_memory(const context *c, const pointer *argument) {
  int attributes[] = {POINTER_MEMORY_TYPE, POINTER_IS_MANAGED, POINTER_DEVICE_ORDINAL};
  unsigned type = 0, managed = 0;
  int device = -1;
  void *data[] = {&type, &managed, &device};
  DRIVER(cuPointerGetAttributes, 3, attributes, data, (uintptr_t)argument->address);
  if (managed != 0) return ATTUNE_SDPA_OK;
  if (type != MEMORY_DEVICE) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s is %p, which is not device memory",
                argument->name, argument->address);
  }
  if (device != c->device) {
    return fail(ATTUNE_SDPA_INVALID_ARGUMENT,
                "%s is %p, memory of device %d; the current context is of device %d",
                argument->name, argument->address, device, c->device);
  }
  return ATTUNE_SDPA_OK;
}

/* Lists the pointers that a form reads and writes, in the order of its parameters. */
static int list_pointers(const attune_sdpa_params *p, const attune_sdpa_form_info *form,
                         pointer all[POINTERS]) {
  int n = 0;
  all[n++] = (pointer){"q", p->q, 16};
  all[n++] = (pointer){"k", p->k, 16};
  all[n++] = (pointer){"v", p->v, 16};
  all[n++] = (pointer){"o", p->o, 16};
  if (form->has_lse) all[n++] = (pointer){"lse", p->lse, sizeof(float)};
  all[n++] = (pointer){"descale_q", p->descale_q, sizeof(float)};
  all[n++] = (pointer){"descale_k", p->descale_k, sizeof(float)};
  all[n++] = (pointer){"descale_v", p->descale_v, sizeof(float)};
  return n;
}

/* ---- launches ------------------------------------------------------------------------------- */

static int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* One block for each tile of query rows of each head: tiles in x, in whole clusters, heads in y,
 * and also in z if there are too many. With grouped heads y has the heads of a group and z the K/V
 * heads. A persistent form gets as many blocks as the device holds at once. */
static attune_sdpa_status set_grid(const attune_sdpa_params *p, const attune_sdpa_form_info *form,
                                   const context *c, unsigned grid[3]) {
  enum { MAX_GRID_YZ = 65535 };
  const int64_t heads = (int64_t)p->batch * p->heads,
                tiles = quotient_up(p->queries, form->query_rows),
                cluster = form->cluster > 1 ? form->cluster : 1;
  if (form->blocks_per_multiprocessor > 0) {
    const int64_t wanted = quotient_up(heads * tiles, cluster);
    int64_t room = (int64_t)form->blocks_per_multiprocessor * c->multiprocessors / cluster;
    if (room < 1) room = 1;
    grid[0] = (unsigned)((wanted < room ? wanted : room) * cluster);
    grid[1] = grid[2] = 1;
    return ATTUNE_SDPA_OK;
  }
  int64_t y = p->heads / p->kv_heads, z = (int64_t)p->batch * p->kv_heads;
  if (y == 1) {
    z = quotient_up(heads, MAX_GRID_YZ);
    y = quotient_up(heads, z);
  }
  if (y > MAX_GRID_YZ || z > MAX_GRID_YZ) {
    return fail(ATTUNE_SDPA_UNSUPPORTED,
                "batch is %d, heads %d and kv_heads %d; the form takes at most %d heads in a group "
                "and %d K/V heads",
                p->batch, p->heads, p->kv_heads, MAX_GRID_YZ, MAX_GRID_YZ);
  }
  grid[0] = (unsigned)(quotient_up(tiles, cluster) * cluster);
  grid[1] = (unsigned)y, grid[2] = (unsigned)z;
  return ATTUNE_SDPA_OK;
}

/* A tensor map has the dimensions columns, rows and heads of all batches. A box covers one head. */
static attune_sdpa_status encode_map(const attune_sdpa_params *p, const attune_sdpa_map *map,
                                     void *into) {
  tensor all[TENSORS];
  list_tensors(p, all);
  const tensor *t = &all[map->tensor];
  int type = MAP_U8;
  unsigned size = 1;
  if (map->tensor == TENSOR_O) {
    type = p->out_dtype == ATTUNE_SDPA_BF16 ? MAP_BF16 : MAP_F16;
    size = 2;
  }
  const uint64_t row = (uint64_t)p->head_dim * size,
                 dims[] = {(uint64_t)p->head_dim, (uint64_t)t->rows,
                           (uint64_t)p->batch * (uint64_t)t->heads},
                 strides[] = {row, (uint64_t)t->rows * row};
  const unsigned box[] = {(unsigned)map->inner_bytes / size, (unsigned)map->rows, 1},
                 element_strides[] = {1, 1, 1};
  int swizzle = 0; /* CU_TENSOR_MAP_SWIZZLE_: 1 for 32 bytes, 2 for 64, 3 for 128 */
  while (swizzle < 3 && 16 << swizzle < map->swizzle_bytes) ++swizzle;
  /* The driver's parameter is a pointer that it does not write to. */
  DRIVER(cuTensorMapEncodeTiled, into, type, 3, (void *)(uintptr_t)t->address, dims, strides, box,
         element_strides, 0, swizzle, MAP_L2_256B, 0);
  return ATTUNE_SDPA_OK;
}

static float softmax_scale(const attune_sdpa_params *p) {
  return p->scale != 0 ? p->scale : (float)(1 / sqrt((double)p->head_dim));
}

static attune_sdpa_status launch(const attune_sdpa_params *p, const attune_sdpa_form_info *form,
                                 const context *c, CUfunction function, CUstream stream) {
  launch_attribute cluster = {.id = LAUNCH_CLUSTER};
  cluster.value.cluster[0] = (unsigned)form->cluster;
  cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
  launch_config config = {.block = {(unsigned)form->threads, 1, 1},
                          .shared_bytes = (unsigned)form->shared_bytes,
                          .stream = stream,
                          .attributes = form->cluster > 1 ? &cluster : NULL,
                          .attribute_count = form->cluster > 1};
  TRY(set_grid(p, form, c, config.grid));

  /* The driver copies the parameters before cuLaunchKernelEx returns. */
  uint32_t heads = (uint32_t)p->batch * (uint32_t)p->heads,
           group = (uint32_t)(p->heads / p->kv_heads);
  int32_t queries = p->queries, keys = p->keys, causal = p->causal != 0;
  float scale = softmax_scale(p);
  pointer pointers[POINTERS];
  const int pointer_count = list_pointers(p, form, pointers);
  _Alignas(64) unsigned char maps[ATTUNE_SDPA_MAX_MAPS][128];
  void *scalars[] = {&heads, &group, &queries, &keys, &causal, &scale};
  void *parameters[POINTERS + sizeof scalars / sizeof *scalars + ATTUNE_SDPA_MAX_MAPS];
  int n = 0;
  for (int i = 0; i < pointer_count; ++i) parameters[n++] = &pointers[i].address;
  for (size_t i = 0; i < sizeof scalars / sizeof *scalars; ++i) parameters[n++] = scalars[i];
  for (int i = 0; i < form->map_count; ++i) {
    TRY(encode_map(p, &form->maps[i], maps[i]));
    parameters[n++] = maps[i];
  }
  DRIVER(cuLaunchKernelEx, &config, function, parameters, NULL);
  return ATTUNE_SDPA_OK;
}

/* ---- the interface -------------------------------------------------------------------------- */

attune_sdpa_status attune_sdpa_forward(const attune_sdpa_params *params,
                                       struct CUstream_st *stream) {
  const attune_sdpa_form_info *form = NULL;
  TRY(select_form(params, &form));
  if (form->workspace_bytes > params->workspace_bytes) {
    return fail(ATTUNE_SDPA_WORKSPACE_TOO_SMALL, "workspace_bytes is %zu; this problem needs %zu",
                params->workspace_bytes, form->workspace_bytes);
  }
  pointer pointers[POINTERS + 1];
  int n = list_pointers(params, form, pointers);
  if (form->workspace_bytes > 0) pointers[n++] = (pointer){"workspace", params->workspace, 16};
  for (int i = 0; i < n; ++i) TRY(check_address(&pointers[i]));

  TRY(start_driver());
  context *c = NULL;
  TRY(current_context(&c));
  for (int i = 0; i < n; ++i) TRY(check_memory(c, &pointers[i]));
  CUfunction function = NULL;
  TRY(loaded(c, form, &function));
  return launch(params, form, c, function, stream);
}

size_t attune_sdpa_workspace_bytes(const attune_sdpa_params *params) {
  const attune_sdpa_form_info *form = NULL;
  return select_form(params, &form) == ATTUNE_SDPA_OK ? form->workspace_bytes : 0;
}

const char *attune_sdpa_form(const attune_sdpa_params *params) {
  const attune_sdpa_form_info *form = NULL;
  return select_form(params, &form) == ATTUNE_SDPA_OK ? form->variant : NULL;
}

const char *attune_sdpa_last_error(void) { return last_error; }

const char *attune_sdpa_version(void) { return attune_sdpa_version_text; }
