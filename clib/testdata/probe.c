/* Calls attune_sdpa as the lines of standard input say, and prints what it answers. */
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
    .window_left = -1, .window_right = -1,
};

static attune_sdpa_params p;

static void set(const char *field, const char *text) {
  const long long n = strtoll(text, NULL, 0);
#define POINTER(name) if (strcmp(field, #name) == 0) { p.name = (void *)(uintptr_t)n; return; }
#define NUMBER(name, type) if (strcmp(field, #name) == 0) { p.name = (type)n; return; }
#define STRIDES(name) \
  for (int i = 0; i < 3; ++i) { \
    char element[32]; \
    snprintf(element, sizeof element, #name "[%d]", i); \
    if (strcmp(field, element) == 0) { p.name[i] = n; return; } \
  }
  POINTER(q) POINTER(k) POINTER(v) POINTER(o) POINTER(lse) POINTER(sinks) POINTER(workspace)
  POINTER(descale_q) POINTER(descale_k) POINTER(descale_v)
  NUMBER(struct_size, size_t) NUMBER(workspace_bytes, size_t) NUMBER(causal, int32_t)
  NUMBER(batch, int32_t) NUMBER(heads, int32_t) NUMBER(kv_heads, int32_t)
  NUMBER(queries, int32_t) NUMBER(keys, int32_t) NUMBER(head_dim, int32_t)
  NUMBER(window_left, int32_t) NUMBER(window_right, int32_t)
  NUMBER(dtype, attune_sdpa_dtype) NUMBER(out_dtype, attune_sdpa_dtype)
  STRIDES(q_stride) STRIDES(k_stride) STRIDES(v_stride) STRIDES(o_stride)
  if (strcmp(field, "scale") == 0) { p.scale = strtof(text, NULL); return; }
  fprintf(stderr, "no field %s\n", field);
  exit(2);
}

static void *double_function(const char *name) {
  void *f = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
  if (f == NULL) fprintf(stderr, "%s\n", dlerror()), exit(2);
  return f;
}

/* Every thread calls on its device with two forms, several times. */
static void *work(void *argument) {
  const int device = (int)(intptr_t)argument % 2;
  ((void (*)(int))double_function("double_context"))(device);
  attune_sdpa_params mine = valid;
  const uint64_t offset = (uint64_t)device << 40;
  mine.q = (char *)valid.q + offset, mine.k = (char *)valid.k + offset;
  mine.v = (char *)valid.v + offset, mine.o = (char *)valid.o + offset;
  mine.descale_q = mine.descale_k = mine.descale_v = (void *)mine.q;
  for (int i = 0; i < 20; ++i) {
    mine.queries = mine.keys = i % 2 ? 512 : 2048;
    if (attune_sdpa_forward(&mine, NULL) != ATTUNE_SDPA_OK) printf("%s\n", attune_sdpa_last_error());
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
  char line[256], word[64], field[64] = "", text[64] = "";
  p = valid;
  while (fgets(line, sizeof line, stdin) != NULL) {
    field[0] = text[0] = '\0';
    int after = 0;
    if (sscanf(line, "%63s %63s %63s %d", word, field, text, &after) < 1) continue;
    if (strcmp(word, "set") == 0) {
      set(field, text);
    } else if (strcmp(word, "reset") == 0) {
      p = valid;
    } else if (strcmp(word, "call") == 0) {
      const int status = attune_sdpa_forward(&p, (void *)(uintptr_t)strtoll(field, NULL, 0));
      printf("%d %s\n", status, attune_sdpa_last_error());
    } else if (strcmp(word, "null") == 0) {
      const int status = attune_sdpa_forward(NULL, NULL);
      printf("%d %s\n", status, attune_sdpa_last_error());
    } else if (strcmp(word, "form") == 0) {
      const char *form = attune_sdpa_form(&p);
      printf("%s %s\n", form == NULL ? "NULL" : form, attune_sdpa_last_error());
    } else if (strcmp(word, "workspace") == 0) {
      printf("%zu %s\n", attune_sdpa_workspace_bytes(&p), attune_sdpa_last_error());
    } else if (strcmp(word, "version") == 0) {
      printf("%s\n", attune_sdpa_version());
    } else if (strcmp(word, "threads") == 0) {
      threads(atoi(field));
    } else if (strcmp(word, "fail") == 0) {
      ((void (*)(const char *, int, int))double_function("double_fail"))(field, atoi(text), after);
    } else if (strcmp(word, "print") == 0) {
      ((void (*)(void))double_function("double_print"))();
    } else if (strcmp(word, "mode") == 0) {
      printf("%d\n", ((int (*)(void))double_function("double_capture_mode"))());
    } else { /* context, replace, capture */
      char name[80];
      snprintf(name, sizeof name, "double_%s", word);
      ((void (*)(int))double_function(name))(atoi(field));
    }
  }
  return 0;
}
