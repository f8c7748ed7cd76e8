// C = A B^T in FP8 on Hopper (sm_90a): tensor copies, mbarriers, wgmma, warpgroup roles.
//
//   C[m,n] = sum_k A[m,k] * B[n,k]
//
// A and B are E4M3 codes, both with K innermost; C is FP32. Any M, any N that is a multiple of 4 and any K that is a multiple of 16: tensor copies
// take rows of whole 16 bytes, read zeros outside of a tensor and write nothing there, so that edges need no code.
//
// A block computes a tile of 128 by 128 with three warpgroups:
//   two consumers  64 rows of the tile each: wgmma on the stages of the ring, sums in registers, then through shared memory to C
//   one producer   one thread of it issues the copies; the others have nothing to do, and give their registers to the consumers
//
// The ring has two stages of a (128, 128) tile of A and one of B, rows of 128 bytes with the 128-byte swizzle, and two barriers a stage:
//   full   the producer arrives once and announces the bytes; the copies bring them          consumers wait
//   empty  each warp of the consumers arrives once when its products have read the stage     the producer waits
// Step s uses stage s % 2 for the (s / 2)-th time, and so waits for phases of parity s / 2 % 2; the producer, which needs the stage to be empty
// since the time before, for the other parity.
//
// Budget: ring 64 KB, C tile 64 KB, one block a multiprocessor. Registers 168 a thread at the launch; then 40 for the producer and 232 for consumers.
#include "ptx.cuh"

namespace {

constexpr int kTileM = 128, kTileN = 128, kTileK = 128;
constexpr int kStages = 2;
constexpr int kConsumers = 2;  // warpgroups
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr int kRows = kTileM / kConsumers;  // of C, that a consumer computes
constexpr int kBoxN = 32;                   // columns of C in one store: 128 bytes, the span of the swizzle
constexpr int kBoxes = kTileN / kBoxN;

struct Stage {
  uint8_t a[kTileM][kTileK];
  uint8_t b[kTileN][kTileK];
};

struct Shared {
  Stage ring[kStages];
  float c[kConsumers][kBoxes][kRows][kBoxN];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// The producer's thread: fills stage after stage, each as soon as it is empty.
__device__ void produce(Shared& shared, const ptx::TensorMap& map_a, const ptx::TensorMap& map_b, int row, int column, unsigned steps) {
#pragma unroll 1
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned s = step % kStages;
    Stage& stage = shared.ring[s];
    ptx::mbarrier_wait_parity(&shared.empty[s], step / kStages % 2 ^ 1);
    ptx::mbarrier_arrive_expect_tx(&shared.full[s], sizeof(Stage));
    ptx::cp_async_bulk_tensor_2d_load(stage.a, &map_a, step * kTileK, row, &shared.full[s]);     // (128, 128) codes
    ptx::cp_async_bulk_tensor_2d_load(stage.b, &map_b, step * kTileK, column, &shared.full[s]);  // (128, 128) codes
  }
}

// A consumer's sums: lane 4g + t of warp w has columns 8j + 2t and the next of rows 16w + g (sums[4j], [4j+1]) and 16w + g + 8 ([4j+2], [4j+3]).
__device__ void multiply(float (&sums)[64], Shared& shared, int consumer, unsigned steps) {
#pragma unroll 1
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned s = step % kStages;
    const Stage& stage = shared.ring[s];
    ptx::mbarrier_wait_parity(&shared.full[s], step / kStages % 2);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileK; k += 32) {
      const uint64_t a = ptx::descriptor_128B(&stage.a[consumer * kRows][k]);  // (64, 32) codes
      const uint64_t b = ptx::descriptor_128B(&stage.b[0][k]);                 // (128, 32) codes
      ptx::wgmma_m64n128k32_e4m3(sums, a, b);                                  // (64, 128)
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    if (threadIdx.x % 32u == 0) ptx::mbarrier_arrive(&shared.empty[s]);
  }
}

// Lays a consumer's sums out as four boxes of (64, 32) floats, swizzled as the store expects them: 16-byte piece p of row r stands at p ^ r % 8.
__device__ void stage_sums(float (&boxes)[kBoxes][kRows][kBoxN], const float (&sums)[64]) {
  const int warp = threadIdx.x / 32u % 4u, g = threadIdx.x % 32u / 4u, t = threadIdx.x % 4u;
#pragma unroll
  for (int j = 0; j < kTileN / 8; ++j) {
    const int piece = 2 * (j % 4) + t / 2;              // of the row in its box
    const int column = 4 * (piece ^ g) + 2 * (t % 2);   // where it stands
    float* at = &boxes[j / 4][16 * warp + g][column];
    *reinterpret_cast<float2*>(at) = make_float2(sums[4 * j], sums[4 * j + 1]);
    *reinterpret_cast<float2*>(at + 8 * kBoxN) = make_float2(sums[4 * j + 2], sums[4 * j + 3]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
matmul(const uint8_t* /* a */,                          // (M, K) E4M3: the copies go by the maps
       const uint8_t* /* b */,                          // (N, K) E4M3
       float* /* c */,                                  // (M, N)
       const __grid_constant__ ptx::TensorMap map_a,    // box (128, 128), 128-byte swizzle
       const __grid_constant__ ptx::TensorMap map_b,    // box (128, 128), 128-byte swizzle
       const __grid_constant__ ptx::TensorMap map_c,    // box (64, 32), 128-byte swizzle
       unsigned k) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int row = kTileM * blockIdx.y, column = kTileN * blockIdx.x;
  const unsigned steps = (k + kTileK - 1) / kTileK;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&shared.full[s], 1);
      ptx::mbarrier_init(&shared.empty[s], 4 * kConsumers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128u;
  if (warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == 128 * kConsumers) produce(shared, map_a, map_b, row, column, steps);
    return;
  }
  ptx::setmaxnreg_inc<232>();
  float sums[64] = {};
  multiply(sums, shared, warpgroup, steps);
  stage_sums(shared.c[warpgroup], sums);
  ptx::fence_proxy_async();
  ptx::barrier_sync(1 + warpgroup, 128);
  if (threadIdx.x % 128u == 0) {
    for (int i = 0; i < kBoxes; ++i) {
      ptx::cp_async_bulk_tensor_2d_store(&map_c, column + kBoxN * i, row + kRows * warpgroup, shared.c[warpgroup][i]);  // (64, 32)
    }
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<0>();  // the block's shared memory must last until then
  }
}
