// C = A B^T in FP16 on Hopper (sm_90a): TMA, mbarriers, wgmma, warp specialisation.
//
//   C[m,n] = sum_k A[m,k] * B[n,k]
//
// A and B have K innermost. M is arbitrary; N and K must be multiples of 8, because TMA requires
// row strides of whole 16 bytes. TMA reads zeros outside a matrix and writes nothing there, so the
// edges need no code.
//
// A block computes a 128 x 256 tile of C with three warpgroups:
//   two consumers  64 rows of the tile each: wgmma on the pipeline stages, accumulators in
//                  registers, then through shared memory to C
//   one producer   one thread issues the TMA loads; the warpgroup gives its registers to the
//                  consumers
//
// A stage of the pipeline holds 64 columns of K: 128 rows of A and 256 of B, each of 128 bytes with
// the 128-byte swizzle. Each stage has two mbarriers:
//   full   the producer arrives once and sets the expected bytes, the loads complete them;
//          the consumers wait
//   empty  each consumer warp arrives once after its products have read the stage;
//          the producer waits
// Step s uses stage s % STAGES for the (s / STAGES)-th time, so the consumers wait for parity
// s / STAGES % 2. The producer waits for the opposite parity: the stage must be empty since its
// previous use.
//
// A consumer keeps the products of one step in flight while it issues those of the next. It
// releases a stage one step after it has used it.
#include "ptx.cuh"

namespace {

constexpr int kTileM = TILE_M, kTileN = TILE_N, kTileK = 64;
constexpr int kConsumers = 2;               // warpgroups
constexpr int kRows = kTileM / kConsumers;  // rows of C per consumer
constexpr int kBoxN = 64;                   // columns of C per store: 128 bytes, the swizzle width
constexpr int kBoxes = kTileN / kBoxN;
static_assert(kRows == 64 && kTileN == 256 && THREADS == 128 * (kConsumers + 1), "wgmma is m64n256k16");

struct Stage {
  __half a[kTileM][kTileK];
  __half b[kTileN][kTileK];
};

struct Shared {
  union {
    Stage stages[STAGES];
    __half c[kConsumers][kBoxes][kRows][kBoxN];  // after the last step
  };
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
};
static_assert(sizeof(Shared) == STAGES * (128 * (TILE_M + TILE_N) + 16), "[launch] shared of kernel.toml");

struct Tile {
  int row, column;  // of C
};

// The tile of a block. Consecutive blocks take GROUP_M tiles down, then the next column, so that
// the blocks that run at a time share rows of A and B in L2.
__device__ Tile tile_of_block(int m, int n) {
  const int rows = (m + kTileM - 1) / kTileM, columns = (n + kTileN - 1) / kTileN;
  const int group = blockIdx.x / (GROUP_M * columns), within = blockIdx.x % (GROUP_M * columns);
  const int height = min(GROUP_M, rows - group * GROUP_M);  // the last group may be lower
  return {kTileM * (group * GROUP_M + within % height), kTileN * (within / height)};
}

// The producer thread issues the loads of each stage as soon as the stage is empty.
__device__ void produce(Shared& shared, const CUtensorMap& map_a, const CUtensorMap& map_b, Tile tile, int steps) {
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    const int s = step % STAGES;
    Stage& stage = shared.stages[s];
    ptx::mbarrier_wait_parity(&shared.empty[s], step / STAGES % 2 ^ 1);
    ptx::mbarrier_arrive_expect_tx(&shared.full[s], sizeof(Stage));
    ptx::cp_async_bulk_tensor_2d_load(stage.a, &map_a, step * kTileK, tile.row, &shared.full[s]);     // (128, 64)
    ptx::cp_async_bulk_tensor_2d_load(stage.b, &map_b, step * kTileK, tile.column, &shared.full[s]);  // (256, 64)
  }
}

// A consumer warp tells the producer that it has read the stage.
__device__ void release(Shared& shared, int stage) {
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[stage]);
}

// Computes the accumulators of a consumer. Lane 4g + t of warp w holds columns 8j + 2t and 8j + 2t
// + 1 of row 16w + g in acc[4j] and acc[4j+1], and of row 16w + g + 8 in acc[4j+2] and acc[4j+3].
__device__ void multiply(float (&acc)[128], Shared& shared, int consumer, int steps) {
#pragma unroll 1
  for (int step = 0; step < steps; step++) {
    const int s = step % STAGES;
    const Stage& stage = shared.stages[s];
    ptx::mbarrier_wait_parity(&shared.full[s], step / STAGES % 2);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileK; k += 16) {
      const uint64_t a = ptx::descriptor_128B(&stage.a[consumer * kRows][k]);  // (64, 16)
      const uint64_t b = ptx::descriptor_128B(&stage.b[0][k]);                 // (256, 16)
      ptx::wgmma_m64n256k16_f16(acc, a, b);                                    // (64, 256)
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>();
    if (step > 0) release(shared, (step - 1) % STAGES);
  }
  ptx::wgmma_wait_group<0>();
}

// Writes the accumulators to shared memory as boxes of (64, 64) halves, swizzled as the TMA store
// expects: 16-byte chunk p of row r is at chunk p ^ r % 8.
__device__ void stage_output(__half (&boxes)[kBoxes][kRows][kBoxN], const float (&acc)[128]) {
  const int warp = threadIdx.x / 32 % 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < kTileN / 8; j++) {
    __half* at = &boxes[j / 8][16 * warp + g][8 * (j % 8 ^ g) + 2 * t];
    *reinterpret_cast<__half2*>(at) = __floats2half2_rn(acc[4 * j], acc[4 * j + 1]);
    *reinterpret_cast<__half2*>(at + 8 * kBoxN) = __floats2half2_rn(acc[4 * j + 2], acc[4 * j + 3]);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1)
gemm(const __half* /* a */,                       // (M, K); accessed through map_a
     const __half* /* b */,                       // (N, K)
     __half* /* c */,                             // (M, N)
     const __grid_constant__ CUtensorMap map_a,   // box (128, 64), 128-byte swizzle
     const __grid_constant__ CUtensorMap map_b,   // box (256, 64), 128-byte swizzle
     const __grid_constant__ CUtensorMap map_c,   // box (64, 64), 128-byte swizzle
     int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Tile tile = tile_of_block(m, n);
  const int steps = (k + kTileK - 1) / kTileK;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      ptx::mbarrier_init(&shared.full[s], 1);
      ptx::mbarrier_init(&shared.empty[s], 4 * kConsumers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();

  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == kConsumers) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == 128 * kConsumers) produce(shared, map_a, map_b, tile, steps);
    return;
  }
  ptx::setmaxnreg_inc<232>();
  float acc[128] = {};
  multiply(acc, shared, warpgroup, steps);

  ptx::barrier_sync(1, 128 * kConsumers);  // both consumers have read the last stage: c overwrites it
  stage_output(shared.c[warpgroup], acc);
  ptx::fence_proxy_async();
  ptx::barrier_sync(2 + warpgroup, 128);
  if (threadIdx.x % 128 == 0) {
    for (int i = 0; i < kBoxes; i++) {
      ptx::cp_async_bulk_tensor_2d_store(&map_c, tile.column + kBoxN * i, tile.row + kRows * warpgroup,
                                         shared.c[warpgroup][i]);  // (64, 64)
    }
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read<0>();  // shared memory must stay valid until TMA has read it
  }
}
