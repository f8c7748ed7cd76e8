// Copies q to o, each code as a number: through tensor maps, in clusters of two blocks of which each writes what the other has read.
#include "include/launch.cuh"

#include <cuda_fp16.h>

constexpr int kRows = 16, kColumns = 64;

ATTUNE_LAUNCH(64, kRows, 0, BLOCKS, 2);
ATTUNE_TENSOR_MAPS({0, kRows, kColumns, 64}, {3, kRows, 2 * kColumns, 128});

struct alignas(64) TensorMap {
  char bytes[128];
};

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

// Fetches a box of codes.
__device__ void load(const void* to, const TensorMap& from, int row, int head, unsigned barrier, unsigned parity) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kRows * kColumns) : "memory");
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                   shared_address(to)),
               "l"(&from), "r"(0), "r"(row), "r"(head), "r"(barrier)
               : "memory");
  asm volatile(
      "{\n\t"
      ".reg .pred done;\n\t"
      "WAIT:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra WAIT;\n\t"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Writes a box of halves, and waits until it is written.
__device__ void store(const TensorMap& to, const void* from, int row, int head) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&to), "r"(0), "r"(row), "r"(head),
               "r"(shared_address(from))
               : "memory");
  asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
}

// The code at a place of the other block's box, which has the 64-byte swizzle.
__device__ unsigned read_other(const unsigned char* codes, unsigned other, int at) {
  unsigned address, code;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(codes + (at ^ (at >> 7 & 3) << 4))), "r"(other));
  asm volatile("ld.shared::cluster.u8 %0, [%1];" : "=r"(code) : "r"(address) : "memory");
  return code;
}

extern "C" __global__ void __launch_bounds__(64)
    mapped(const unsigned char* q, const unsigned char* k, const unsigned char* v, __half* o, const float* descale_q, const float* descale_k,
           const float* descale_v, unsigned heads, unsigned group, int queries, int keys, int causal, float softmax_scale,
           const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap o_map) {
  __shared__ alignas(1024) __half halves[kRows * kColumns];
  __shared__ alignas(1024) unsigned char codes[kRows * kColumns];
  __shared__ unsigned long long full;
  const unsigned barrier = shared_address(&full), other = (blockIdx.x & 1) ^ 1;
  const bool one = threadIdx.x == 0;
  if (one) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(barrier) : "memory");
  __syncthreads();

  const int tiles = (queries + kRows - 1) / kRows, all = BLOCKS > 0 ? tiles * heads : gridDim.x * gridDim.y;
  unsigned parity = 0;
  // A pair of blocks stays together, also where only one of them has a tile.
  for (int first = BLOCKS > 0 ? blockIdx.x & ~1 : 0; first < all; first += gridDim.x, parity ^= 1) {
    const int mine = first + (blockIdx.x & 1), theirs = first + other;
    const int row = BLOCKS > 0 ? mine % tiles * kRows : blockIdx.x * kRows, head = BLOCKS > 0 ? mine / tiles : blockIdx.y;
    const int other_row = BLOCKS > 0 ? theirs % tiles * kRows : (blockIdx.x ^ 1) * kRows;
    const int other_head = BLOCKS > 0 ? theirs / tiles : blockIdx.y;
    if (one) load(codes, q_map, row, head, barrier, parity);
    __syncthreads();
    cluster_barrier();
    for (int i = threadIdx.x; i < kRows * kColumns; i += 64) {
      const int at = 2 * i;
      halves[(at ^ (at >> 7 & 7) << 4) / 2] = __uint2half_rn(read_other(codes, other, i));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    cluster_barrier();
    if (one) store(o_map, halves, other_row, other_head);
    if (BLOCKS == 0) break;
    cluster_barrier();
  }
}
