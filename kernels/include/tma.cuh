// TMA loads, the mbarriers that count their bytes, and the register counts of warp-specialised
// roles.
#pragma once

#include <cstdint>

#include "ptx.cuh"

// A tensor map that the host encoded: the driver's CUtensorMap.
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

namespace ptx {

// PTX ISA "cp.async.bulk.tensor": the box at (x, y, z) of a three-dimensional tensor to shared
// memory, zeros where it is out of bounds. The barrier counts the bytes. One thread issues it.
__device__ __forceinline__ void cp_async_bulk_tensor_3d(void* shared, const TensorMap* map, int x,
                                                        int y, int z, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];\n"
      :: "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}

// The same of a four-dimensional tensor.
__device__ __forceinline__ void cp_async_bulk_tensor_4d(void* shared, const TensorMap* map, int x,
                                                        int y, int z, int w, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];\n"
      :: "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w),
         "r"(shared_address(barrier))
      : "memory");
}

// PTX ISA "prefetch.tensormap".
__device__ __forceinline__ void prefetch_tensormap(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];\n" :: "l"(map) : "memory");
}

// PTX ISA "mbarrier.arrive.expect_tx": one arrival, and `bytes` more that must land before the
// phase ends.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n"
               :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// PTX ISA "mbarrier.try_wait.parity", repeated until the phase of this parity has ended. The warp
// may sleep while it waits.
__device__ __forceinline__ void mbarrier_try_wait_parity(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again; }\n" :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}

// PTX ISA "fence.mbarrier_init": makes initialised barriers visible to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// PTX ISA "setmaxnreg": releases registers of this warpgroup, or claims more.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" :: "n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" :: "n"(kRegisters));
}

}  // namespace ptx
