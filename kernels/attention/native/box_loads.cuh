// TMA loads from 16-bit tensors by maps of four dimensions: column, row, head, batch.
#pragma once

#include <cstdint>

#include "../tile_sizes.cuh"
#include "../../include/tma.cuh"

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
