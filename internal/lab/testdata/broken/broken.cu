// Attention by the plainest means: a block for each query row, a thread for each column of O, every thread going over all keys by
// itself. The knob DEFECT puts in one thing that is wrong.
#include <cuda_fp16.h>
#include <cuda_fp8.h>

constexpr int kDefect = DEFECT;
constexpr int kHeadDim = HEAD_DIM;

extern "C" __device__ const unsigned attune_launch[3] = {kHeadDim, 1, 0};

__device__ float decode(unsigned char code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

extern "C" __global__ void broken(unsigned char* q, const unsigned char* k, const unsigned char* v, __half* o, const float* descale_q,
                                  const float* descale_k, const float* descale_v, unsigned heads, unsigned group, int queries, int keys,
                                  int causal, float softmax_scale
#if DEFECT == 12
                                  ,
                                  int window
#endif
) {
#if DEFECT == 7
  this is not C++;
#endif
  const int row = blockIdx.x, head = blockIdx.z * gridDim.y + blockIdx.y, kv_head = head / group, column = threadIdx.x;
  const size_t query = (static_cast<size_t>(head) * queries + row) * kHeadDim;
  const size_t first_key = static_cast<size_t>(kv_head) * keys * kHeadDim;
  if constexpr (kDefect == 1) {
    volatile int* never = reinterpret_cast<volatile int*>(o);
    while (*never != 12345) {
    }
  }
  if constexpr (kDefect == 5) q[query] ^= 1;
  if constexpr (kDefect == 8) {
    for (unsigned n = 0;; ++n) *reinterpret_cast<volatile unsigned*>(o) = n;
  }
#if DEFECT == 9
  asm volatile("multimem.red.release.gpu.global.add.u32 [%0], %1;" :: "l"(o), "r"(1) : "memory");
#endif
#if DEFECT == 11
  asm volatile(
      "{\n\t"
      ".reg .u32 unused;\n\t"
      "add.u32 unused, %0, 77;\n\t"
      "}" ::"r"(column));
#endif
  if constexpr (kDefect == 6) {
    if (row == queries - 1) return;
  }
  __shared__ float row_of_q[kHeadDim];
  if constexpr (kDefect == 10) row_of_q[column] = decode(q[query + column]);  // and no barrier
  const int visible = causal ? min(keys, row + 1 + keys - queries) : keys;
  const float scale = descale_q[head] * descale_k[kv_head] * softmax_scale;
  float top = -INFINITY, sum = 0, out = 0;
  for (int key = 0; key < visible; ++key) {
    float score = 0;
    for (int d = 0; d < kHeadDim; ++d) {
      const float x = kDefect == 10 ? row_of_q[d] : decode(q[query + d]);
      score += x * decode(k[first_key + key * kHeadDim + d]);
    }
    score *= scale;
    const float higher = fmaxf(top, score);
    const float shrink = expf(top - higher), p = expf(score - higher);
    out = out * shrink + p * decode(v[first_key + key * kHeadDim + column]);
    sum = sum * shrink + p;
    top = higher;
  }
  const float result = sum > 0 ? out / sum * descale_v[kv_head] : 0.0f;
  o[query + column] = __float2half(kDefect == 4 ? 0.0f : result);
  if constexpr (kDefect == 2) {
    if (row == queries - 1 && head == heads - 1) o[query + column + kHeadDim] = __float2half(result);
  }
  if constexpr (kDefect == 3) {
    if (row == 0) *reinterpret_cast<__half*>(0x10) = __float2half(result);
  }
}
