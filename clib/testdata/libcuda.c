/* A double of libcuda.so.1 for the tests of attune_sdpa. It has the devices of a list of cards, checks
 * how it is called, records launches and loads, and fails on request. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };
enum { UNSUPPORTED_CAPTURE = 900, MAX_PARAMETERS = 64, DEVICES = 14 };

typedef struct context {
  int device;
  unsigned long long id;
} context;

/* A module and its only function. */
typedef struct module {
  unsigned long long context;
  int count, sizes[MAX_PARAMETERS];
  int shared, non_portable;
} module;

static context contexts[DEVICES] = {{0, 11}, {1, 12}, {2, 13}, {3, 14}, {4, 15}, {5, 16},
                                    {6, 17}, {7, 18}, {8, 19}, {9, 20}, {10, 21}, {11, 22}, {12, 23}, {13, 24}};

/* TestCards has the same list. */
static const struct {
  int major, minor, multiprocessors, l2_bytes;
} cards[DEVICES] = {
    {9, 0, 132, 60 << 20},  /* H200 */
    {9, 0, 114, 50 << 20},  /* H100 PCIe */
    {8, 0, 108, 40 << 20},  /* A100 */
    {8, 6, 72, 6 << 20},    /* A10 */
    {8, 6, 82, 6 << 20},    /* RTX 3090 */
    {8, 9, 58, 48 << 20},   /* L4 */
    {8, 9, 128, 72 << 20},  /* RTX 4090 */
    {12, 0, 170, 96 << 20}, /* RTX 5090 */
    {7, 5, 40, 4 << 20},    /* T4 */
    {10, 0, 148, 126 << 20}, /* B200 */
    {12, 1, 48, 24 << 20},  /* GB10 */
    {8, 6, 84, 6 << 20},    /* RTX A6000 */
    {8, 9, 142, 96 << 20},  /* L40S */
    {12, 0, 188, 128 << 20}, /* RTX PRO 6000 */
};
static _Thread_local context *current;
static _Thread_local int capture_mode;
static int capturing, initialized;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char record[1 << 22];
static size_t recorded;

static char fail_name[64];
static int fail_code, fail_after;

/* ---- controls of the tests ---- */

void double_context(int device) { current = device < 0 ? NULL : &contexts[device]; }
/* Replaces the context of a device by another at the same address. */
void double_replace(int device) { contexts[device].id += 100; }
/* Blocks that a multiprocessor has room for. */
static int room = 2;
void double_room(int blocks) { room = blocks; }
/* Multiprocessors that a driver reports for each card, below 0 those of the list. */
static int reported = -1;
void double_multiprocessors(int count) { reported = count; }
void double_capture(int on) { capturing = on; }
void double_fail(const char *name, int code, int after) {
  snprintf(fail_name, sizeof fail_name, "%s", name);
  fail_code = code, fail_after = after;
}
void double_print(void) {
  fputs(record, stdout);
  recorded = 0, record[0] = '\0';
}

static void note(const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (recorded + 4096 < sizeof record) {
    recorded += (size_t)vsnprintf(record + recorded, sizeof record - recorded, format, values);
  }
  va_end(values);
}

/* The result that a function is asked to return, by a test or, for a program that is no test, by the
 * variable DOUBLE_FAIL with the function's name. */
static int requested(const char *name) {
  const char *const failing = getenv("DOUBLE_FAIL");
  int code = failing != NULL && strcmp(name, failing) == 0 ? INVALID_VALUE : 0;
  pthread_mutex_lock(&lock);
  if (strcmp(name, fail_name) == 0 && fail_code != 0 && fail_after-- == 0) {
    code = fail_code, fail_code = 0;
  }
  pthread_mutex_unlock(&lock);
  return code;
}

#define BEGIN                                        \
  do {                                               \
    const int code = requested(__func__);            \
    if (code != 0) return code;                      \
    if (!initialized) return NOT_INITIALIZED;        \
  } while (0)

/* ---- the driver ---- */

int cuInit(unsigned flags) {
  const int code = requested(__func__);
  if (code == 0) initialized = 1;
  return code != 0 ? code : flags == 0 ? 0 : INVALID_VALUE;
}

int cuGetErrorName(int code, const char **name) {
  *name = code == 777 ? NULL : "CUDA_ERROR_OF_THE_TEST";
  return code == 777 ? INVALID_VALUE : 0;
}

int cuGetErrorString(int code, const char **text) {
  *text = code == 777 ? NULL : "as requested";
  return code == 777 ? INVALID_VALUE : 0;
}

int cuCtxGetCurrent(context **into) {
  BEGIN;
  *into = current;
  return 0;
}

int cuCtxGetDevice(int *device) {
  BEGIN;
  if (current == NULL) return INVALID_CONTEXT;
  *device = current->device;
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  BEGIN;
  switch (attribute) {
    case 75: *value = cards[device].major; return 0;
    case 76: *value = cards[device].minor; return 0;
    case 16: *value = reported < 0 ? cards[device].multiprocessors : reported; return 0;
    case 38: *value = cards[device].l2_bytes; return 0;
  }
  return INVALID_VALUE;
}

/* Bits 40 and above of an address say what it is: 0x10 and the device, 0x20 managed, 0x30 pinned. */
int cuPointerGetAttributes(unsigned count, int *attributes, void **data, uint64_t pointer) {
  BEGIN;
  const unsigned kind = (unsigned)(pointer >> 40);
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case 2: *(unsigned *)data[i] = kind >> 4 == 1 ? 2 : kind == 0x30 ? 1 : 0; break;
      case 8: *(unsigned *)data[i] = kind == 0x20; break;
      case 9: *(int *)data[i] = kind >> 4 == 1 ? (int)(kind & 15) : -2; break;
      default: return INVALID_VALUE;
    }
  }
  return 0;
}

/* Reads the sizes of the parameters from PTX, in place of the table that a cubin has. */
static int read_parameters(module *m, const char *ptx) {
  const char *at = strstr(ptx, ".entry"), *end = at == NULL ? NULL : strchr(at, ')');
  if (end == NULL) return INVALID_VALUE;
  while ((at = strstr(at, ".param")) != NULL && at < end) {
    const char *next = strpbrk(at + 1, ",)"), *array = strchr(at, '[');
    int size = 4;
    if (array != NULL && array < next) {
      size = atoi(array + 1);
    } else if (memmem(at, (size_t)(next - at), "64 ", 3) != NULL) {
      size = 8;
    }
    m->sizes[m->count++] = size;
    at = next;
  }
  return 0;
}

int cuModuleLoadDataEx(module **into, const void *image, unsigned count, int *options,
                       void **values) {
  const int code = requested(__func__);
  if (code != 0) {
    if (count == 2 && options[0] == 5 && options[1] == 6 && (uintptr_t)values[1] > 32) {
      strcpy(values[0], "ptxas: line 7 is wrong");
    }
    return code;
  }
  if (current == NULL) return INVALID_CONTEXT;
  if (capturing && capture_mode != 2) return UNSUPPORTED_CAPTURE;
  module *m = calloc(1, sizeof *m);
  m->context = current->id;
  if (read_parameters(m, image) != 0) return free(m), INVALID_VALUE;
  pthread_mutex_lock(&lock);
  note("load %llu\n", current->id);
  pthread_mutex_unlock(&lock);
  *into = m;
  return 0;
}

int cuModuleUnload(module *m) {
  pthread_mutex_lock(&lock);
  note("unload %llu\n", m->context);
  pthread_mutex_unlock(&lock);
  free(m);
  return 0;
}

int cuModuleGetFunction(module **function, module *m, const char *name) {
  static const char *const entries[] = {"sdpa",  "decode", "prefill",  "native_attention",
                                        "mixed", "cast",   "quantize", "append",
                                        "pingpong_attention", "prefill16", "warp_attention",
                                        "warp8_attention", "quantize8"};
  BEGIN;
  for (size_t i = 0; i < sizeof entries / sizeof *entries; ++i) {
    if (strcmp(name, entries[i]) == 0) return *function = m, 0;
  }
  return INVALID_VALUE;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, module *m, int threads,
                                                size_t shared) {
  BEGIN;
  if (m->context != current->id || threads < 32 || (int)shared > m->shared) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  note("occupancy %llu\n", m->context);
  pthread_mutex_unlock(&lock);
  *blocks = room;
  return 0;
}

int cuFuncSetAttribute(module *m, int attribute, int value) {
  BEGIN;
  if (attribute == 8) {
    m->shared = value;
  } else if (attribute == 14) {
    m->non_portable = value;
  } else {
    return INVALID_VALUE;
  }
  return 0;
}

/* Packs the arguments into the map, so that a recorded launch shows them. */
#ifndef WITHOUT_MAPS
int cuTensorMapEncodeTiled(void *into, int type, unsigned rank, void *address, const uint64_t *dims,
                           const uint64_t *strides, const unsigned *box,
                           const unsigned *element_strides, int interleave, int swizzle, int l2,
                           int oob) {
  struct {
    uint64_t address, strides[3];
    unsigned dims[4];
    unsigned char box[4], element_strides[4], rank, type, interleave, swizzle, l2, oob;
  } m;
  BEGIN;
  if (rank < 3 || rank > 4 || (uintptr_t)into % 64 != 0 || (uintptr_t)address % 16 != 0) {
    return INVALID_VALUE;
  }
  memset(&m, 0, sizeof m);
  m.address = (uintptr_t)address;
  for (unsigned i = 0; i < rank; ++i) {
    if (dims[i] == 0 || dims[i] >> 32 != 0 || box[i] == 0 || box[i] > 256) return INVALID_VALUE;
    m.dims[i] = (unsigned)dims[i];
    m.box[i] = (unsigned char)(box[i] - 1);
    m.element_strides[i] = (unsigned char)element_strides[i];
    if (i + 1 < rank && (strides[i] % 16 != 0 || strides[i] >> 40 != 0)) return INVALID_VALUE;
    if (i + 1 < rank) m.strides[i] = strides[i];
  }
  m.rank = (unsigned char)rank, m.type = (unsigned char)type, m.oob = (unsigned char)oob;
  m.interleave = (unsigned char)interleave, m.swizzle = (unsigned char)swizzle;
  m.l2 = (unsigned char)l2;
  memset(into, 0, 128);
  memcpy(into, &m, sizeof m);
  return 0;
}
#endif

typedef struct config {
  unsigned grid[3], block[3], shared;
  void *stream;
  struct {
    int id, pad;
    unsigned value[16];
  } *attributes;
  unsigned count;
} config;

#ifndef WITHOUT_LAUNCH
int cuLaunchKernelEx(const config *c, module *m, void **parameters, void **extra) {
  BEGIN;
  if (current == NULL || m->context != current->id || extra != NULL) return INVALID_HANDLE;
  if ((int)c->shared > m->shared && c->shared > 48 * 1024) return INVALID_VALUE;
  unsigned cluster[3] = {0, 0, 0};
  int cooperative = 0, dependent = 0;
  if (c->count == 1 && c->attributes[0].id == 2) {
    cooperative = (int)c->attributes[0].value[0];
  } else if (c->count == 1 && c->attributes[0].id == 6) {
    dependent = (int)c->attributes[0].value[0];
  } else if (c->count == 1 && c->attributes[0].id == 4) {
    memcpy(cluster, c->attributes[0].value, sizeof cluster);
    if (cluster[0] > 8 && !m->non_portable) return INVALID_VALUE;
  } else if (c->count != 0) {
    return INVALID_VALUE;
  }
  pthread_mutex_lock(&lock);
  note("launch %llu grid %u %u %u block %u %u %u shared %u cluster %u %u %u%s%s stream %p",
       m->context, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2],
       c->shared, cluster[0], cluster[1], cluster[2], cooperative ? " cooperative" : "",
       dependent ? " dependent" : "",
       c->stream);
  for (int i = 0; i < m->count; ++i) {
    note(" ");
    for (int j = 0; j < m->sizes[i]; ++j) note("%02x", ((unsigned char *)parameters[i])[j]);
  }
  note("\n");
  pthread_mutex_unlock(&lock);
  return 0;
}
#endif

#ifndef WITHOUT_OPTIONAL
int cuCtxGetId(context *c, unsigned long long *id) {
  BEGIN;
  *id = c->id;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
  BEGIN;
  const int before = capture_mode;
  capture_mode = *mode, *mode = before;
  return 0;
}

int double_capture_mode(void) { return capture_mode; }
#endif

/* ---- what a whole program calls besides: one allocation, whose contents are not kept ---- */

static const uint64_t memory = 0x100000000000;
static size_t allocated;

static int outside(uint64_t address, size_t bytes) {
  return address < memory || address + bytes > memory + allocated;
}

int cuDevicePrimaryCtxRetain(context **into, int device) {
  BEGIN;
  *into = &contexts[device];
  return 0;
}

int cuCtxSetCurrent(context *c) {
  BEGIN;
  current = c;
  return 0;
}

int cuMemAlloc_v2(uint64_t *into, size_t bytes) {
  BEGIN;
  if (current == NULL || allocated != 0) return INVALID_CONTEXT;
  *into = memory, allocated = bytes;
  return 0;
}

int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t count) {
  BEGIN;
  return value == 0 || outside(address, count) ? INVALID_VALUE : 0;
}

int cuMemsetD32_v2(uint64_t address, unsigned value, size_t count) {
  BEGIN;
  return value == 0 || outside(address, 4 * count) ? INVALID_VALUE : 0;
}

/* No kernel runs, so the variable DOUBLE_FP16 has what all outputs are; without it they are 0. */
int cuMemcpyDtoH_v2(uint16_t *into, uint64_t address, size_t bytes) {
  BEGIN;
  if (recorded == 0 || outside(address, bytes)) return INVALID_VALUE; /* nothing was launched */
  const char *const value = getenv("DOUBLE_FP16");
  for (size_t i = 0; i < bytes / 2; ++i) {
    into[i] = value == NULL ? 0 : (uint16_t)strtol(value, NULL, 16);
  }
  return 0;
}
