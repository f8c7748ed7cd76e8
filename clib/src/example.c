/* A whole program that calls attune_sdpa: every code of q, k and v is 1, so every output is 1.
 * It opens the driver with dlopen, so that it builds without the CUDA toolkit. A program with the
 * toolkit includes cuda.h or cuda_runtime.h, and passes its pointers and its stream. */
#include <dlfcn.h>
#include <stdio.h>
#include "attune_sdpa.h"

enum { HEADS = 8, SEQUENCE = 512, HEAD_DIM = 64, CODES = HEADS * SEQUENCE * HEAD_DIM };
enum { E4M3_ONE = 0x38, FP16_ONE = 0x3c00, FP32_ONE = 0x3f800000 };
static uint16_t outputs[CODES];
static int fail(const char *why) { return fprintf(stderr, "%s\n", why), 1; }

int main(void) {
  void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
  if (cuda == NULL) return fail(dlerror());
  int (*init)(unsigned) = dlsym(cuda, "cuInit");
  int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
  int (*set_current)(void *) = dlsym(cuda, "cuCtxSetCurrent");
  int (*allocate)(char **, size_t) = dlsym(cuda, "cuMemAlloc_v2");
  int (*fill8)(void *, unsigned char, size_t) = dlsym(cuda, "cuMemsetD8_v2");
  int (*fill32)(void *, unsigned, size_t) = dlsym(cuda, "cuMemsetD32_v2");
  int (*from_gpu)(void *, const void *, size_t) = dlsym(cuda, "cuMemcpyDtoH_v2");
  char *gpu; /* GPU memory: codes of q, k and v; outputs, 2 bytes each; a factor for each head */
  if (init(0) || retain(&context, 0) || set_current(context) ||
      allocate(&gpu, 3 * CODES + 4 * HEADS) || fill8(gpu, E4M3_ONE, CODES) ||
      fill32(gpu + 3 * CODES, FP32_ONE, HEADS))
    return fail("the driver failed");
  float *ones = (float *)(gpu + 3 * CODES);
  attune_sdpa_params p = {.struct_size = sizeof p, .q = gpu, .k = gpu, .v = gpu, .o = gpu + CODES,
      .descale_q = ones, .descale_k = ones, .descale_v = ones,
      .batch = 1, .heads = HEADS, .kv_heads = HEADS, .queries = SEQUENCE, .keys = SEQUENCE,
      .head_dim = HEAD_DIM, .dtype = ATTUNE_SDPA_E4M3, .out_dtype = ATTUNE_SDPA_FP16};
  if (attune_sdpa_forward(&p, NULL) != ATTUNE_SDPA_OK) return fail(attune_sdpa_last_error());
  if (from_gpu(outputs, p.o, sizeof outputs)) return fail("the copy failed");
  int right = 0;
  for (int i = 0; i < CODES; ++i) right += outputs[i] == FP16_ONE;
  printf("%s\n%s\n", attune_sdpa_version(), attune_sdpa_form(&p));
  return printf("%d of %d outputs are 1\n", right, CODES), right != CODES;
}
