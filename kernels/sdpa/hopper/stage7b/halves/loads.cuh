// The addresses of K and V behind maps of four dimensions: column, key, K/V head, batch.
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

// Issues the TMA loads of K or V of one n_block in 16 bits, 64 columns a box.
__device__ __forceinline__ void issue_staged_load(unsigned char* shared, const TensorMap* map,
                                                  const Problem& p, unsigned kv_head, int n_block,
                                                  uint64_t* full) {
  const unsigned batch = kv_head / p.kv_heads;
#pragma unroll
  for (int box = 0; box < Sizes::kHeadDim / 64; ++box) {
    ptx::cp_async_bulk_tensor_4d(shared + box * Sizes::kBlockN * 128, map, box * 64,
                                 n_block * Sizes::kBlockN, kv_head - batch * p.kv_heads, batch,
                                 full);
  }
}

}  // namespace stage7b
