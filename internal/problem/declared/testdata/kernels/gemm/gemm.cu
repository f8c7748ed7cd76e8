#include <cuda_fp16.h>
#include <mma.h>

// One warp computes a tile of 16 x 16 of C = A Bᵀ.
extern "C" __global__ void gemm(const __half *a, const __half *b, float *c, int n, int k) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  for (int i = 0; i < k; i += 16) {
    load_matrix_sync(fa, a + blockIdx.y * 16 * k + i, k);
    load_matrix_sync(fb, b + blockIdx.x * 16 * k + i, k);
    mma_sync(sum, fa, fb, sum);
  }
  store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, mem_row_major);
}
