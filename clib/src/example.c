/* A whole program that calls attune_sdpa: every code of q, k and v is 1, so every output is 1.
 * It opens the driver with dlopen, so that it builds without the CUDA toolkit. A program with the
 * toolkit includes cuda.h or cuda_runtime.h, and passes its pointers and its stream. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attune_sdpa.h"

int main(void) {
  enum { BATCH = 1, HEADS = 8, SEQUENCE = 512, HEAD_DIM = 64, E4M3_ONE = 0x38 };
  enum { CODES = BATCH * HEADS * SEQUENCE * HEAD_DIM };
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
  if (cuda == NULL) return fprintf(stderr, "no GPU: %s\n", dlerror()), 1;
  int (*init)(unsigned) = dlsym(cuda, "cuInit");
  int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void *) = dlsym(cuda, "cuCtxSetCurrent");
  int (*allocate)(void **, size_t) = dlsym(cuda, "cuMemAlloc_v2");
  int (*fill8)(void *, unsigned char, size_t) = dlsym(cuda, "cuMemsetD8_v2");
  int (*to_gpu)(void *, const void *, size_t) = dlsym(cuda, "cuMemcpyHtoD_v2");
  int (*from_gpu)(void *, const void *, size_t) = dlsym(cuda, "cuMemcpyDtoH_v2");
  void *codes, *descale, *o;
  float ones[BATCH * HEADS];
  for (int i = 0; i < BATCH * HEADS; ++i) ones[i] = 1;
  if (init(0) || retain(&context, 0) || set_current(context) || allocate(&codes, CODES) ||
      allocate(&descale, sizeof ones) || allocate(&o, 2 * CODES) ||
      fill8(codes, E4M3_ONE, CODES) || to_gpu(descale, ones, sizeof ones)) {
    return fprintf(stderr, "the driver failed\n"), 1;
  }

  attune_sdpa_params p;
  memset(&p, 0, sizeof p);
  p.struct_size = sizeof p;
  p.q = p.k = p.v = codes;
  p.o = o;
  p.descale_q = p.descale_k = p.descale_v = descale;
  p.batch = BATCH, p.heads = p.kv_heads = HEADS;
  p.queries = p.keys = SEQUENCE, p.head_dim = HEAD_DIM;
  p.dtype = ATTUNE_SDPA_E4M3, p.out_dtype = ATTUNE_SDPA_FP16;
  p.window_left = p.window_right = -1;
  if (attune_sdpa_forward(&p, NULL) != ATTUNE_SDPA_OK) {
    return fprintf(stderr, "%s\n", attune_sdpa_last_error()), 1;
  }

  unsigned short *half = malloc(2 * CODES); /* FP16: 1 is 0x3c00 */
  if (half == NULL || from_gpu(half, o, 2 * CODES)) return fprintf(stderr, "the copy failed\n"), 1;
  int right = 0;
  for (int i = 0; i < CODES; ++i) right += half[i] == 0x3c00;
  printf("%s\n%s\n%d of %d outputs are 1\n", attune_sdpa_version(), attune_sdpa_form(&p), right,
         CODES);
  free(half);
  return right == CODES ? 0 : 1;
}
