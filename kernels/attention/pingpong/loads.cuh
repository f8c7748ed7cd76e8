// The addresses of Q, K and V in plain tensors.
#pragma once

#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "storage.cuh"
#include "tiles.cuh"

namespace attention::pingpong {

template <class Traits>
struct Loads {
  using Sizes = OperandSizes<Traits>;
  using Tile = pingpong::Tile<Traits>;
  static constexpr int kBoxes = Sizes::kBoxes;

  // Issues the loads of a step's rows of K or V.
  __device__ __forceinline__ static void issue_step(const Problem&, const Tile& tile, int n_block,
                                                    unsigned char* shared, const TensorMap* map,
                                                    uint64_t* full) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_4d(shared + box * Sizes::kBoxBytes, map, box * 64,
                                   n_block * Sizes::kBlockN, tile.kv_head, tile.batch, full);
    }
  }

  // Issues the loads of a consumer's rows: head_rows of each head. Rows beyond the last query are
  // zeros; their results are not stored.
  __device__ __forceinline__ static void issue_query(const Problem& p, const Tile& tile,
                                                     int consumer, const TensorMap* map,
                                                     uint64_t* full) {
    unsigned head = tile.head;
#pragma unroll 1  // a producer thread has few registers
    for (int row = 0; row < 64; row += p.head_rows, ++head) {
#pragma unroll kBoxes <= 2 ? 2 : 1
      for (int box = 0; box < kBoxes; ++box) {
        ptx::cp_async_bulk_tensor_4d(Storage<Traits>::q(consumer) + (64 * box + row) * 128, map,
                                     box * 64, tile.first_query + p.head_rows * consumer, head,
                                     tile.batch, full);
      }
    }
  }
};

}  // namespace attention::pingpong
