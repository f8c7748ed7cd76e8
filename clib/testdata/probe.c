/* Calls attune_sdpa as the lines of standard input say, and prints what it answers. With the double
 * of the driver it controls that; on a GPU it also fills tensors from files and writes files. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attune_sdpa.h"

static const attune_sdpa_params valid = {
    .struct_size = sizeof(attune_sdpa_params),
    .q = (void *)0x100000000000,
    .k = (void *)0x100100000000,
    .v = (void *)0x100200000000,
    .o = (void *)0x100300000000,
    .descale_q = (void *)0x100500000000,
    .descale_k = (void *)0x100600000000,
    .descale_v = (void *)0x100700000000,
    .batch = 1, .heads = 8, .kv_heads = 8, .queries = 512, .keys = 512, .head_dim = 64,
    .dtype = ATTUNE_SDPA_E4M3, .out_dtype = ATTUNE_SDPA_FP16,
};

/* The other functions, with the pointers of their tensors. */
static const attune_quantize_params valid_quantize = {
    .struct_size = sizeof(attune_quantize_params),
    .q = (void *)0x100000000000, .k = (void *)0x100100000000, .v = (void *)0x100200000000,
    .y_q = (void *)0x100a00000000, .y_k = (void *)0x100b00000000, .y_v = (void *)0x100c00000000,
    .descale_q = (void *)0x100500000000,
    .descale_k = (void *)0x100600000000,
    .descale_v = (void *)0x100700000000,
    .mean_k = (void *)0x100d00000000,
    .batch = 1, .heads = 8, .kv_heads = 8, .queries = 512, .keys = 512, .head_dim = 64,
    .dtype = ATTUNE_SDPA_BF16,
    .workspace = (void *)0x100800000000, .workspace_bytes = 1 << 30,
};

static const attune_append_params valid_append = {
    .struct_size = sizeof(attune_append_params),
    .k = (void *)0x100100000000, .v = (void *)0x100200000000,
    .descale_k = (void *)0x100600000000, .descale_v = (void *)0x100700000000,
    .lengths = (void *)0x101000000000,
    .k_cache = (void *)0x100e00000000, .v_cache = (void *)0x100f00000000,
    .batch = 2, .kv_heads = 8, .rows = 1, .head_dim = 128, .capacity = 4096,
    .dtype = ATTUNE_SDPA_BF16,
};

/* The struct of a later header is longer. */
static struct {
  attune_sdpa_params params;
  unsigned char later[8];
} area;
#define p area.params
static attune_quantize_params z;
static attune_append_params a;

static void reset(void) {
  memset(&area, 0, sizeof area);
  p = valid, z = valid_quantize, a = valid_append;
}

/* Sets a field of the parameters of a function: forward, quantize or append. */
static void set(const char *function, const char *field, const char *text) {
  const long long n = strtoll(text, NULL, 0);
#define POINTER(x, name) if (strcmp(field, #name) == 0) { x.name = (void *)(uintptr_t)n; return; }
#define NUMBER(x, name) if (strcmp(field, #name) == 0) { x.name = (int32_t)n; return; }
#define SIZE(x, name) if (strcmp(field, #name) == 0) { x.name = (size_t)n; return; }
#define DTYPE(x, name) if (strcmp(field, #name) == 0) { x.name = (attune_sdpa_dtype)n; return; }
#define FLAGS(x, name) if (strcmp(field, #name) == 0) { x.name = (uint64_t)n; return; }
#define STRIDES(x, name) \
  for (int i = 0; i < 3; ++i) { \
    char element[32]; \
    snprintf(element, sizeof element, #name "[%d]", i); \
    if (strcmp(field, element) == 0) { x.name[i] = n; return; } \
  }
  if (strcmp(function, "forward") == 0) {
    POINTER(p, q) POINTER(p, k) POINTER(p, v) POINTER(p, o) POINTER(p, lse) POINTER(p, sinks)
    POINTER(p, descale_q) POINTER(p, descale_k) POINTER(p, descale_v) POINTER(p, workspace)
    POINTER(p, cu_queries) POINTER(p, cu_keys) POINTER(p, key_lengths) POINTER(p, page_table)
    SIZE(p, struct_size) SIZE(p, workspace_bytes) NUMBER(p, causal)
    NUMBER(p, batch) NUMBER(p, heads) NUMBER(p, kv_heads) NUMBER(p, queries) NUMBER(p, keys)
    NUMBER(p, head_dim) NUMBER(p, window_left) NUMBER(p, window_right) NUMBER(p, max_pages)
    NUMBER(p, page_size) NUMBER(p, pages) NUMBER(p, total_queries) NUMBER(p, total_keys)
    NUMBER(p, smooth_k) NUMBER(p, hadamard) FLAGS(p, flags)
    NUMBER(p, v_head_dim) NUMBER(p, reserved) NUMBER(p, precision) DTYPE(p, dtype) DTYPE(p, out_dtype) DTYPE(p, q_dtype)
    STRIDES(p, q_stride) STRIDES(p, k_stride) STRIDES(p, v_stride) STRIDES(p, o_stride)
    if (strcmp(field, "scale") == 0) { p.scale = strtof(text, NULL); return; }
    if (strcmp(field, "softcap") == 0) { p.softcap = strtof(text, NULL); return; }
    NUMBER(p, arch) NUMBER(p, multiprocessors)
    POINTER(p, alibi_slopes) NUMBER(p, alibi_stride) POINTER(p, tree_mask)
    if (strcmp(field, "later") == 0) { area.later[3] = (unsigned char)n; return; }
    if (strcmp(field, "window") == 0) { /* LEFT,RIGHT */
      p.has_window = 1;
      if (sscanf(text, "%d,%d", &p.window_left, &p.window_right) == 2) return;
    }
  } else if (strcmp(function, "quantize") == 0) {
    POINTER(z, q) POINTER(z, k) POINTER(z, v) POINTER(z, y_q) POINTER(z, y_k) POINTER(z, y_v)
    POINTER(z, descale_q) POINTER(z, descale_k) POINTER(z, descale_v) POINTER(z, mean_k)
    POINTER(z, workspace) SIZE(z, struct_size) SIZE(z, workspace_bytes) DTYPE(z, dtype)
    NUMBER(z, batch) NUMBER(z, heads) NUMBER(z, kv_heads) NUMBER(z, queries) NUMBER(z, keys)
    NUMBER(z, head_dim) NUMBER(z, smooth_k) NUMBER(z, hadamard) FLAGS(z, flags)
    STRIDES(z, q_stride) STRIDES(z, k_stride) STRIDES(z, v_stride)
  } else {
    POINTER(a, k) POINTER(a, v) POINTER(a, descale_k) POINTER(a, descale_v) POINTER(a, lengths)
    POINTER(a, page_table) POINTER(a, k_cache) POINTER(a, v_cache)
    SIZE(a, struct_size) NUMBER(a, batch) NUMBER(a, kv_heads) NUMBER(a, rows) NUMBER(a, head_dim)
    NUMBER(a, capacity) NUMBER(a, page_size) NUMBER(a, max_pages) NUMBER(a, pages) FLAGS(a, flags)
    DTYPE(a, dtype) STRIDES(a, k_stride) STRIDES(a, v_stride)
  }
  fprintf(stderr, "%s has no field %s\n", function, field);
  exit(2);
}

/* Calls a function on a stream. */
static int call(const char *function, void *stream) {
  if (strcmp(function, "quantize") == 0) return attune_sdpa_quantize(&z, stream);
  if (strcmp(function, "append") == 0) return attune_sdpa_append(&a, stream);
  return attune_sdpa_forward(&p, stream);
}

/* Calls a function with NULL for its parameters. */
static int call_with_null(const char *function) {
  if (strcmp(function, "quantize") == 0) return attune_sdpa_quantize(NULL, NULL);
  if (strcmp(function, "append") == 0) return attune_sdpa_append(NULL, NULL);
  return attune_sdpa_forward(NULL, NULL);
}

static void *double_function(const char *name) {
  void *f = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
  if (f == NULL) fprintf(stderr, "%s\n", dlerror()), exit(2);
  return f;
}

/* ---- memory of a GPU ---- */

static struct {
  char field[64];
  void *address;
} buffers[32];
static int buffer_count;

static void must(int code, const char *what) {
  if (code != 0) fprintf(stderr, "%s: %d\n", what, code), exit(1);
}

/* Makes the primary context of the first GPU current. */
static void open_gpu(void) {
  void *context = NULL;
  must(((int (*)(unsigned))double_function("cuInit"))(0), "cuInit");
  must(((int (*)(void **, int))double_function("cuDevicePrimaryCtxRetain"))(&context, 0), "context");
  must(((int (*)(void *))double_function("cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
}

/* Sets a field to new memory of zeros. */
static void *zero(const char *function, const char *field, size_t bytes) {
  char text[32];
  void *address = NULL;
  must(((int (*)(void **, size_t))double_function("cuMemAlloc_v2"))(&address, bytes), "cuMemAlloc");
  must(((int (*)(void *, unsigned char, size_t))double_function("cuMemsetD8_v2"))(address, 0, bytes),
       "cuMemsetD8");
  must(buffer_count == 32, "more than 32 buffers");
  snprintf(buffers[buffer_count].field, sizeof buffers[0].field, "%s", field);
  buffers[buffer_count++].address = address;
  snprintf(text, sizeof text, "%p", address);
  set(function, field, text);
  return address;
}

/* Sets a field to new memory with the contents of a file. */
static void load(const char *function, const char *field, const char *path) {
  FILE *f = fopen(path, "rb");
  if (f == NULL) perror(path), exit(1);
  fseek(f, 0, SEEK_END);
  const size_t bytes = (size_t)ftell(f);
  rewind(f);
  void *host = malloc(bytes);
  must(host == NULL || fread(host, 1, bytes, f) != bytes, path);
  fclose(f);
  must(((int (*)(void *, const void *, size_t))double_function("cuMemcpyHtoD_v2"))(
           zero(function, field, bytes), host, bytes), "cuMemcpyHtoD");
  free(host);
}

/* Writes the memory of a field to a file. */
static void save(const char *field, const char *path, size_t bytes) {
  int i = buffer_count - 1;
  while (i >= 0 && strcmp(buffers[i].field, field) != 0) --i;
  must(i < 0, field);
  void *host = malloc(bytes);
  must(host == NULL, "malloc");
  must(((int (*)(void))double_function("cuCtxSynchronize"))(), "cuCtxSynchronize");
  must(((int (*)(void *, void *, size_t))double_function("cuMemcpyDtoH_v2"))(
           host, buffers[i].address, bytes), "cuMemcpyDtoH");
  FILE *f = fopen(path, "wb");
  if (f == NULL) perror(path), exit(1);
  must(fwrite(host, 1, bytes, f) != bytes || fclose(f) != 0, path);
  free(host);
}

static void free_all(void) {
  while (buffer_count > 0) {
    must(((int (*)(void *))double_function("cuMemFree_v2"))(buffers[--buffer_count].address), "free");
  }
}

/* Every thread calls on its device with two forms and the quantiser, several times. */
static void *work(void *argument) {
  const int device = (int)(intptr_t)argument % 2;
  ((void (*)(int))double_function("double_context"))(device);
  attune_sdpa_params mine = valid;
  const uint64_t offset = (uint64_t)device << 40;
  mine.q = (char *)valid.q + offset, mine.k = (char *)valid.k + offset;
  mine.v = (char *)valid.v + offset, mine.o = (char *)valid.o + offset;
  mine.descale_q = mine.descale_k = mine.descale_v = (void *)mine.q;
  attune_quantize_params tensors = valid_quantize;
  tensors.q = tensors.k = tensors.v = mine.q, tensors.mean_k = NULL;
  tensors.y_q = tensors.y_k = tensors.y_v = tensors.workspace = mine.o;
  tensors.descale_q = tensors.descale_k = tensors.descale_v = mine.o;
  for (int i = 0; i < 20; ++i) {
    mine.queries = mine.keys = i % 2 ? 512 : 2048;
    if (attune_sdpa_forward(&mine, NULL) != ATTUNE_SDPA_OK) printf("%s\n", attune_sdpa_last_error());
    if (attune_sdpa_quantize(&tensors, NULL) != ATTUNE_SDPA_OK) {
      printf("%s\n", attune_sdpa_last_error());
    }
    /* The error of a thread is its own. */
    mine.heads = -1 - device;
    char want[64];
    snprintf(want, sizeof want, "heads is %d;", mine.heads);
    if (attune_sdpa_forward(&mine, NULL) != ATTUNE_SDPA_INVALID_ARGUMENT ||
        strncmp(attune_sdpa_last_error(), want, strlen(want)) != 0) {
      printf("the error is %s\n", attune_sdpa_last_error());
    }
    mine.heads = 8;
  }
  return NULL;
}

static void threads(int n) {
  pthread_t all[64];
  for (int i = 0; i < n; ++i) pthread_create(&all[i], NULL, work, (void *)(intptr_t)i);
  for (int i = 0; i < n; ++i) pthread_join(all[i], NULL);
}

int main(void) {
  static char line[4352], text[4096];
  char word[64], field[64] = "", function[16] = "forward";
  reset();
  while (fgets(line, sizeof line, stdin) != NULL) {
    field[0] = text[0] = '\0';
    long long after = 0;
    if (sscanf(line, "%63s %63s %4095s %lld", word, field, text, &after) < 1) continue;
    if (strcmp(word, "gpu") == 0) {
      open_gpu();
    } else if (strcmp(word, "load") == 0) {
      load(function, field, text);
    } else if (strcmp(word, "zero") == 0) {
      zero(function, field, (size_t)strtoll(text, NULL, 0));
    } else if (strcmp(word, "save") == 0) {
      save(field, text, (size_t)after);
    } else if (strcmp(word, "free") == 0) {
      free_all();
    } else if (strcmp(word, "set") == 0) {
      set(function, field, text);
    } else if (strcmp(word, "function") == 0) {
      snprintf(function, sizeof function, "%.15s", field);
    } else if (strcmp(word, "reset") == 0) {
      reset();
    } else if (strcmp(word, "call") == 0) {
      const int status = call(function, (void *)(uintptr_t)strtoll(field, NULL, 0));
      printf("%d %s\n", status, attune_sdpa_last_error());
    } else if (strcmp(word, "null") == 0) {
      const int status = call_with_null(function);
      printf("%d %s\n", status, attune_sdpa_last_error());
    } else if (strcmp(word, "form") == 0) {
      const char *form = attune_sdpa_form(&p);
      printf("%s %s\n", form == NULL ? "NULL" : form, attune_sdpa_last_error());
    } else if (strcmp(word, "explain") == 0) {
      attune_sdpa_explanation e = {.struct_size = sizeof e - (size_t)atoi(field)};
      const attune_sdpa_status status = attune_sdpa_explain(&p, &e);
      printf("%d %s", (int)status, attune_sdpa_last_error());
      if (status == ATTUNE_SDPA_OK) {
        printf("%s %s %d %d %zu %g %s", e.form, e.kernel, e.precision, e.launches, e.workspace_bytes,
               e.relative_error, e.reason);
      }
      printf("\n");
    } else if (strcmp(word, "target") == 0) {
      attune_sdpa_explanation e = {.struct_size = sizeof e};
      const attune_sdpa_status status = attune_sdpa_explain(&p, &e);
      printf("%d sm_%d %d\n", (int)status, e.arch, e.multiprocessors);
    } else if (strcmp(word, "workspace") == 0) {
      const size_t bytes = strcmp(function, "quantize") == 0
                               ? attune_sdpa_quantize_workspace_bytes(&z)
                               : attune_sdpa_workspace_bytes(&p);
      printf("%zu %s\n", bytes, attune_sdpa_last_error());
    } else if (strcmp(word, "version") == 0) {
      printf("%s\n", attune_sdpa_version());
    } else if (strcmp(word, "threads") == 0) {
      threads(atoi(field));
    } else if (strcmp(word, "fail") == 0) {
      ((void (*)(const char *, int, int))double_function("double_fail"))(field, atoi(text), (int)after);
    } else if (strcmp(word, "print") == 0) {
      ((void (*)(void))double_function("double_print"))();
    } else if (strcmp(word, "mode") == 0) {
      printf("%d\n", ((int (*)(void))double_function("double_capture_mode"))());
    } else { /* context, replace, capture, room */
      char name[80];
      snprintf(name, sizeof name, "double_%s", word);
      ((void (*)(int))double_function(name))(atoi(field));
    }
  }
  return 0;
}
