// TMA loads from 16-bit tensors by maps of four dimensions: column, row, head, batch.
#pragma once

#include "../../tma.cuh"
#include "../tile_sizes.cuh"
#include "problem.cuh"

namespace ptx {

// PTX ISA "cp.async.bulk.tensor": the box at (x, y, z, w) of a four-dimensional tensor to shared
// memory, zeros where it is out of bounds. The barrier counts the bytes. One thread issues it.
__device__ __forceinline__ void cp_async_bulk_tensor_4d(void* shared, const TensorMap* map, int x,
                                                        int y, int z, int w, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];\n"
      :: "r"(shared_address(shared)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(w),
         "r"(shared_address(barrier))
      : "memory");
}

}  // namespace ptx

namespace stage7b {

// Issues the loads of kRows rows, 64 columns a box.
template <int kRows>
__device__ __forceinline__ void issue_box_loads(unsigned char* shared, const TensorMap* map,
                                                int row, unsigned head, unsigned batch,
                                                uint64_t* full) {
#pragma unroll
  for (int box = 0; box < Sizes::kHeadDim / 64; ++box) {
    ptx::cp_async_bulk_tensor_4d(shared + box * kRows * 128, map, box * 64, row, head, batch, full);
  }
}

}  // namespace stage7b
