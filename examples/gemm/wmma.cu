// C = A B^T in FP16 with the tensor-core API of CUDA C++ (sm_80 and later).
//
//   C[m,n] = sum_k A[m,k] * B[n,k]
//
// A and B have K innermost. M is arbitrary; N and K must be multiples of 8, so that rows are aligned
// to 16 bytes. Rows beyond a matrix and columns beyond K are zeros.
//
// A block computes a 128 x 128 tile of C, each of its 4 or 8 warps 64 rows of it. A pipeline stage
// holds 32 columns of K. cp.async fills STAGES - 1 stages ahead of the one that is multiplied.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#include <cuda.h>

namespace wmma = nvcuda::wmma;

namespace {

constexpr int kTileM = TILE_M, kTileN = TILE_N, kTileK = 32;
constexpr int kWarpM = 64, kWarpN = kTileM * kTileN / (THREADS / 32) / kWarpM;  // of C per warp
constexpr int kStride = kTileK + 8;  // halves; the padding spreads rows over the banks
constexpr int kPieces = kTileK / 8;  // of a row, 16 bytes each

using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

struct Stage {
  __half a[kTileM][kStride];
  __half b[kTileN][kStride];
};

// Starts the copy of a tile of `kRows` rows of `matrix` (rows, k), from row `row` and column
// `column`. A copy beyond the matrix reads nothing and writes zeros.
template <int kRows>
__device__ void copy(__half (&tile)[kRows][kStride], const __half* matrix, int row, int column, int rows, int k) {
  for (int i = threadIdx.x; i < kRows * kPieces; i += THREADS) {
    const int r = i / kPieces, c = i % kPieces * 8;
    const bool inside = row + r < rows && column + c < k;
    const __half* from = inside ? matrix + size_t(row + r) * k + column + c : matrix;
    __pipeline_memcpy_async(&tile[r][c], from, 16, inside ? 0 : 16);
  }
}

// Adds the products of a stage to the accumulators of a warp.
__device__ void multiply(Accumulator (&sums)[kWarpM / 16][kWarpN / 16], const Stage& stage, int warp_m, int warp_n) {
#pragma unroll
  for (int k = 0; k < kTileK; k += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a[kWarpM / 16];
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b[kWarpN / 16];
    for (int i = 0; i < kWarpM / 16; i++) wmma::load_matrix_sync(a[i], &stage.a[warp_m + 16 * i][k], kStride);
    for (int j = 0; j < kWarpN / 16; j++) wmma::load_matrix_sync(b[j], &stage.b[warp_n + 16 * j][k], kStride);
    for (int i = 0; i < kWarpM / 16; i++) {
      for (int j = 0; j < kWarpN / 16; j++) wmma::mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
    }
  }
}

// Stores 16 x 16 sums as halves at (row, column) of C, through 1 KB of shared memory of the warp:
// which lane holds which element of an accumulator is not specified. Two lanes store a row.
__device__ void store(__half* c, const Accumulator& sums, float* buffer, int row, int column, int m, int n) {
  const int lane = threadIdx.x % 32, r = lane / 2, first = lane % 2 * 8;
  wmma::store_matrix_sync(buffer, sums, 16, wmma::mem_row_major);
  __syncwarp();
  if (row + r < m && column + first < n) {
    alignas(16) __half2 pairs[4];
    for (int i = 0; i < 4; i++) {
      pairs[i] = __floats2half2_rn(buffer[16 * r + first + 2 * i], buffer[16 * r + first + 2 * i + 1]);
    }
    *reinterpret_cast<uint4*>(&c[size_t(row + r) * n + column + first]) = *reinterpret_cast<const uint4*>(pairs);
  }
  __syncwarp();  // the next store overwrites the buffer
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const __half* a,                    // (M, K)
     const __half* b,                    // (N, K)
     __half* c,                          // (M, N)
     const __grid_constant__ CUtensorMap /* map_a */,  // of stage wgmma
     const __grid_constant__ CUtensorMap /* map_b */,
     const __grid_constant__ CUtensorMap /* map_c */, int m, int n, int k) {
  extern __shared__ __align__(128) unsigned char memory[];
  Stage* stages = reinterpret_cast<Stage*>(memory);

  // Consecutive blocks take GROUP_M tiles down, then the next column: they share A and B in L2.
  const int rows = (m + kTileM - 1) / kTileM, columns = (n + kTileN - 1) / kTileN;
  const int group = blockIdx.x / (GROUP_M * columns), within = blockIdx.x % (GROUP_M * columns);
  const int height = min(GROUP_M, rows - group * GROUP_M);
  const int row = kTileM * (group * GROUP_M + within % height), column = kTileN * (within / height);

  const int warp = threadIdx.x / 32;
  const int warp_m = warp % (kTileM / kWarpM) * kWarpM, warp_n = warp / (kTileM / kWarpM) * kWarpN;
  Accumulator sums[kWarpM / 16][kWarpN / 16];
  for (auto& line : sums) {
    for (auto& sum : line) wmma::fill_fragment(sum, 0);
  }

  const int steps = (k + kTileK - 1) / kTileK;
  auto load = [&](int step) {
    if (step < steps) {  // otherwise the group is empty
      copy(stages[step % STAGES].a, a, row, step * kTileK, m, k);
      copy(stages[step % STAGES].b, b, column, step * kTileK, n, k);
    }
    __pipeline_commit();
  };
  for (int step = 0; step < STAGES - 1; step++) load(step);
  for (int step = 0; step < steps; step++) {
    __pipeline_wait_prior(STAGES - 2);  // the copies of this thread for this step are done
    __syncthreads();                    // those of all threads; and all have read the stage before
    load(step + STAGES - 1);            // into the stage before
    multiply(sums, stages[step % STAGES], warp_m, warp_n);
  }
  __pipeline_wait_prior(0);
  __syncthreads();  // the sums overwrite the stages

  float* buffer = reinterpret_cast<float*>(memory) + warp * 256;
  for (int i = 0; i < kWarpM / 16; i++) {
    for (int j = 0; j < kWarpN / 16; j++) {
      store(c, sums[i][j], buffer, row + warp_m + 16 * i, column + warp_n + 16 * j, m, n);
    }
  }
}
