// C = A B^T in FP8 on Hopper (sm_90a): TMA loads and stores, mbarriers, wgmma, warp specialisation.
//
//   C[m,n] = sum_k A[m,k] * B[n,k]
//
// A and B are E4M3 with K innermost; C is FP32. M is arbitrary, N must be a multiple of 4 and K a
// multiple of 16, because TMA requires row strides of whole 16 bytes. TMA reads zeros outside a
// tensor and writes nothing there, so the edges need no code.
//
// A block computes a 128 x 128 tile of C with three warpgroups:
//   two consumers  64 rows of the tile each: wgmma on the pipeline stages, accumulators in
//                  registers, then through shared memory to C
//   one producer   one thread issues the TMA loads; the warpgroup gives its registers to the
//                  consumers
//
// The pipeline has two stages. A stage holds a 128 x 128 tile of A and one of B, in rows of 128
// bytes with the 128-byte swizzle. Each stage has two mbarriers:
//   full   the producer arrives once and sets the expected bytes, the loads complete them;
//          the consumers wait
//   empty  each consumer warp arrives once after its products have read the stage;
//          the producer waits
// Step s uses stage s % 2 for the (s / 2)-th time, so the consumers wait for parity s / 2 % 2. The
// producer waits for the opposite parity: the stage must be empty since its previous use.
//
// Budget: pipeline 64 KB, C tile 64 KB, one block per SM. 168 registers per thread at launch, then
// 40 for the producer and 232 for the consumers.
#include "ptx.cuh"

namespace {

constexpr int kTileM = 128, kTileN = 128, kTileK = 128;
constexpr int kStages = 2;
constexpr int kConsumers = 2;  // warpgroups
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr int kRows = kTileM / kConsumers;  // rows of C per consumer
constexpr int kBoxN = 32;                   // columns of C per store: 128 bytes, the swizzle width
constexpr int kBoxes = kTileN / kBoxN;

struct Stage {
  uint8_t a[kTileM][kTileK];
  uint8_t b[kTileN][kTileK];
};

struct Shared {
  Stage stages[kStages];
  float c[kConsumers][kBoxes][kRows][kBoxN];
  uint64_t full[kStages];
  uint64_t empty[kStages];
};

// The producer thread issues the loads of each stage as soon as the stage is empty.
__device__ void produce(Shared& shared, const ptx::TensorMap& map_a, const ptx::TensorMap& map_b, int row, int column,
                        unsigned steps) {
#pragma unroll 1
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned s = step % kStages;
    Stage& stage = shared.stages[s];
    ptx::mbarrier_wait_parity(&shared.empty[s], step / kStages % 2 ^ 1);
    ptx::mbarrier_arrive_expect_tx(&shared.full[s], sizeof(Stage));
    ptx::cp_async_bulk_tensor_2d_load(stage.a, &map_a, step * kTileK, row, &shared.full[s]);     // (128, 128) E4M3
    ptx::cp_async_bulk_tensor_2d_load(stage.b, &map_b, step * kTileK, column, &shared.full[s]);  // (128, 128) E4M3
  }
}

// Computes the accumulators of a consumer. Lane 4g + t of warp w holds columns 8j + 2t and 8j + 2t
// + 1 of row 16w + g in acc[4j] and acc[4j+1], and of row 16w + g + 8 in acc[4j+2] and acc[4j+3].
__device__ void multiply(float (&acc)[64], Shared& shared, int consumer, unsigned steps) {
#pragma unroll 1
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned s = step % kStages;
    const Stage& stage = shared.stages[s];
    ptx::mbarrier_wait_parity(&shared.full[s], step / kStages % 2);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileK; k += 32) {
      const uint64_t a = ptx::descriptor_128B(&stage.a[consumer * kRows][k]);  // (64, 32) E4M3
      const uint64_t b = ptx::descriptor_128B(&stage.b[0][k]);                 // (128, 32) E4M3
      ptx::wgmma_m64n128k32_e4m3(acc, a, b);                                   // (64, 128)
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    if (threadIdx.x % 32u == 0) ptx::mbarrier_arrive(&shared.empty[s]);
  }
}

// Writes the accumulators to shared memory as four boxes of (64, 32) floats, swizzled as the TMA
// store expects: 16-byte chunk p of row r is at chunk p ^ r % 8.
__device__ void stage_output(float (&boxes)[kBoxes][kRows][kBoxN], const float (&acc)[64]) {
  const int warp = threadIdx.x / 32u % 4u, g = threadIdx.x % 32u / 4u, t = threadIdx.x % 4u;
#pragma unroll
  for (int j = 0; j < kTileN / 8; ++j) {
    const int chunk = 2 * (j % 4) + t / 2;             // of the row, before the swizzle
    const int column = 4 * (chunk ^ g) + 2 * (t % 2);  // after the swizzle
    float* at = &boxes[j / 4][16 * warp + g][column];
    *reinterpret_cast<float2*>(at) = make_float2(acc[4 * j], acc[4 * j + 1]);
    *reinterpret_cast<float2*>(at + 8 * kBoxN) = make_float2(acc[4 * j + 2], acc[4 * j + 3]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
matmul(const uint8_t* /* a */,                          // (M, K) E4M3; accessed through map_a
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
  float acc[64] = {};
  multiply(acc, shared, warpgroup, steps);
  stage_output(shared.c[warpgroup], acc);
  ptx::fence_proxy_async();
  ptx::barrier_sync(1 + warpgroup, 128);
  if (threadIdx.x % 128u == 0) {
    for (int i = 0; i < kBoxes; ++i) {
      ptx::cp_async_bulk_tensor_2d_store(&map_c, column + kBoxN * i, row + kRows * warpgroup, shared.c[warpgroup][i]);  // (64, 32)
    }
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<0>();  // shared memory must stay valid until TMA has read it
  }
}
