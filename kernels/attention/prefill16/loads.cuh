// The addresses of Q, K and V of sequences: strided, packed or paged.
#pragma once

#include "attention/pingpong/storage.cuh"
#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "tiles.cuh"

namespace attention::prefill16 {

template <class Traits>
struct Loads {
  using Sizes = pingpong::OperandSizes<Traits>;
  using Tile = prefill16::Tile<Traits>;

  // Issues the loads of a step's rows of K or V.
  __device__ __forceinline__ static void issue_step(const Problem& p, const Tile& tile, int n_block,
                                                    unsigned char* shared, const TensorMap* map,
                                                    uint64_t* full) {
    tile.source.issue_load(shared, map, p, n_block, full);
  }

  // Issues the loads of a consumer's rows. Rows beyond the last query are zeros, or those of another
  // sequence; their results are not stored.
  __device__ __forceinline__ static void issue_query(const Problem& p, const Tile& tile,
                                                     int consumer, const TensorMap* map,
                                                     uint64_t* full) {
#pragma unroll
    for (int box = 0; box < Sizes::kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_4d(pingpong::Storage<Traits>::q(consumer) + 64 * box * 128, map,
                                   box * 64, tile.first_row + tile.first_query + 64 * consumer,
                                   tile.head, p.cu_queries != nullptr ? 0 : tile.sequence, full);
    }
  }
};

}  // namespace attention::prefill16
