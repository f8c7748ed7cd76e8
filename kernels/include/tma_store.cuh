// TMA stores, and the groups in which a thread waits for them.
#pragma once

#include "ptx.cuh"
#include "tma.cuh"

namespace ptx {

// PTX ISA "cp.async.bulk.tensor": from shared memory to the box at (x, y, z, w) of a
// four-dimensional tensor. What is out of bounds is not written. One thread issues it.
__device__ __forceinline__ void cp_async_bulk_tensor_4d_store(const TensorMap* map, int x, int y,
                                                              int z, int w, const void* shared) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n"
      :: "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(shared)) : "memory");
}

// PTX ISA "cp.async.bulk.commit_group".
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

// PTX ISA "cp.async.bulk.wait_group.read": waits until all stores of this thread have read shared
// memory.
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
}

}  // namespace ptx
