#if MODE == 4
#error "this variant does not compile"
#endif

extern "C" __global__ void tuned(const float *x, float *y, int n) {
  const int first = blockIdx.x * THREADS * ITEMS + threadIdx.x;
  const float factor = MODE == 1 ? 2.5f : 2.0f;
  for (int i = 0; i < ITEMS; i++) {
    const int at = first + i * THREADS;
    float value = at < n ? x[at] : 0.0f;
#if MODE == 3
#pragma unroll 1
    for (int k = 0; k < 400; k++) value = __fadd_rn(__fmul_rn(value, 1.0f), 0.0f);
#endif
    if (at < n || MODE == 2) y[at] = factor * value;
  }
}
