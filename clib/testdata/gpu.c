/* Computes problems on a GPU. A line of standard input has batch, heads, kv_heads, queries, keys,
 * head_dim, causal and a folder, which has the files q, k, v, descale_q, descale_k and descale_v,
 * and gets the file o. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attune_sdpa.h"

static int (*init)(unsigned), (*retain)(void **, int), (*set_current)(void *), (*synchronize)(void);
static int (*allocate)(void **, size_t), (*release)(void *);
static int (*to_gpu)(void *, const void *, size_t), (*from_gpu)(void *, const void *, size_t);

static void check(int code, const char *what) {
  if (code != 0) fprintf(stderr, "%s: %d\n", what, code), exit(1);
}

static FILE *file(const char *folder, const char *name, const char *mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, mode);
  if (f == NULL) perror(path), exit(1);
  return f;
}

/* A file as device memory. */
static void *load(const char *folder, const char *name) {
  FILE *f = file(folder, name, "rb");
  fseek(f, 0, SEEK_END);
  const size_t bytes = (size_t)ftell(f);
  rewind(f);
  void *host = malloc(bytes), *device = NULL;
  check(host == NULL || fread(host, 1, bytes, f) != bytes, name);
  check(allocate(&device, bytes), "cuMemAlloc");
  check(to_gpu(device, host, bytes), "cuMemcpyHtoD");
  fclose(f);
  free(host);
  return device;
}

static void compute(attune_sdpa_params p, const char *folder) {
  const size_t bytes = (size_t)2 * p.batch * p.heads * p.queries * p.head_dim;
  void *all[] = {load(folder, "q"),         load(folder, "k"),         load(folder, "v"),
                 load(folder, "descale_q"), load(folder, "descale_k"), load(folder, "descale_v"), NULL};
  check(allocate(&all[6], bytes), "cuMemAlloc");
  p.q = all[0], p.k = all[1], p.v = all[2], p.o = all[6];
  p.descale_q = all[3], p.descale_k = all[4], p.descale_v = all[5];
  if (attune_sdpa_forward(&p, NULL) != ATTUNE_SDPA_OK) {
    fprintf(stderr, "%s\n", attune_sdpa_last_error()), exit(1);
  }
  check(synchronize(), "cuCtxSynchronize");
  void *host = malloc(bytes);
  check(host == NULL, "malloc");
  check(from_gpu(host, all[6], bytes), "cuMemcpyDtoH");
  FILE *f = file(folder, "o", "wb");
  check(fwrite(host, 1, bytes, f) != bytes || fclose(f) != 0, "o");
  free(host);
  for (int i = 0; i < 7; ++i) check(release(all[i]), "cuMemFree");
  printf("%s\n", attune_sdpa_form(&p));
}

int main(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
  check(cuda == NULL, "libcuda.so.1");
  init = dlsym(cuda, "cuInit"), retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  set_current = dlsym(cuda, "cuCtxSetCurrent"), synchronize = dlsym(cuda, "cuCtxSynchronize");
  allocate = dlsym(cuda, "cuMemAlloc_v2"), release = dlsym(cuda, "cuMemFree_v2");
  to_gpu = dlsym(cuda, "cuMemcpyHtoD_v2"), from_gpu = dlsym(cuda, "cuMemcpyDtoH_v2");
  check(init(0), "cuInit");
  check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
  check(set_current(context), "cuCtxSetCurrent");
  attune_sdpa_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.dtype = ATTUNE_SDPA_E4M3, p.out_dtype = ATTUNE_SDPA_FP16;
  p.window_left = p.window_right = -1;
  char folder[2048];
  while (scanf("%d %d %d %d %d %d %d %2047s", &p.batch, &p.heads, &p.kv_heads, &p.queries, &p.keys,
               &p.head_dim, &p.causal, folder) == 8) {
    compute(p, folder);
  }
  return 0;
}
