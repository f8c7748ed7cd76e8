// Tensor copies, the barriers that count them, and the registers of warps with different roles.
#pragma once

#include <cstdint>

#include "../common/ptx.cuh"

// What the host encodes of a tensor: CUtensorMap of the driver.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

namespace ptx {

// PTX ISA "cp.async.bulk.tensor": the box at (x, y, z) of a tensor of three dimensions into shared memory; zeros where it reaches over the edge. The bytes are
// counted by the barrier. One thread asks for it.
__device__ __forceinline__ void cp_async_bulk_tensor_3d(void* shared, const TensorMap* map, int x, int y, int z, uint64_t* barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];\n"
               :: "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
               : "memory");
}

// PTX ISA "prefetch.tensormap".
__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];\n" :: "l"(map) : "memory");
}

// PTX ISA "mbarrier.arrive.expect_tx": one of the arrivals, and so many bytes more to come before the phase can end.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// PTX ISA "mbarrier.try_wait.parity", again and again until the phase of this parity has ended; the warp sleeps meanwhile.
__device__ __forceinline__ void mbarrier_try_wait_parity(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }\n" :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}

// PTX ISA "fence.mbarrier_init": the barriers are there for tensor copies.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory"); }

// PTX ISA "setmaxnreg": gives registers of this warpgroup back, or takes some.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" :: "n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" :: "n"(kRegisters));
}

}  // namespace ptx
