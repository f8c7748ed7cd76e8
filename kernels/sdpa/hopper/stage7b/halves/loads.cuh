// TMA loads from 16-bit tensors by maps of four dimensions: column, row, head, batch.
#pragma once

#include "../../tma.cuh"
#include "../tile_sizes.cuh"
#include "problem.cuh"

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

// Where the keys of a tile are.
struct KvSource {
  unsigned kv_head, batch;

  __device__ __forceinline__ void enter(const Problem& p, const WorkTile& tile) {
    batch = tile.head.kv / p.kv_heads, kv_head = tile.head.kv - batch * p.kv_heads;
  }
  __device__ __forceinline__ void seek(const Problem&, int) {}
  __device__ __forceinline__ constexpr int keys_of(int) const { return Sizes::kBlockN; }

  // Issues the loads of K or V of one n_block.
  __device__ __forceinline__ void issue_load(unsigned char* shared, const TensorMap* map,
                                             const Problem&, int n_block, uint64_t* full) const {
    issue_box_loads<Sizes::kBlockN>(shared, map, n_block * Sizes::kBlockN, kv_head, batch, full);
  }
};

}  // namespace stage7b
