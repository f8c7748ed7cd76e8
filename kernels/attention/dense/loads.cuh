// The addresses of Q, K and V in plain tensors.
#pragma once

#include "../../include/problem.cuh"
#include "../../include/tma.cuh"
#include "../row_state.cuh"
#include "../tile_sizes.cuh"

namespace attention::dense {

template <class Traits>
struct Loads {
  using Sizes = TileSizes<Traits>;

  // Loads a lane's two rows of Q as operand A. Rows beyond the last query read the last one; their
  // results are not stored.
  __device__ __forceinline__ static void load_query_words(
      uint32_t (&words)[Sizes::kHeadDim / 32][4], const Problem<Traits>& p,
      const WorkTile<Traits>& tile) {
    const Lane<Traits> lane;
    const int upper_row = min(tile.first_query + lane.row, p.queries - 1);
    const uint8_t* upper = tile.q + static_cast<size_t>(upper_row) * Sizes::kHeadDim + 4 * lane.t;
    const int lower_row = min(tile.first_query + lane.row + 8, p.queries - 1);
    const uint8_t* lower = tile.q + static_cast<size_t>(lower_row) * Sizes::kHeadDim + 4 * lane.t;
#pragma unroll
    for (int i = 0; i < Sizes::kHeadDim / 32; ++i) {
      words[i][0] = *reinterpret_cast<const uint32_t*>(upper + 32 * i);
      words[i][1] = *reinterpret_cast<const uint32_t*>(lower + 32 * i);
      words[i][2] = *reinterpret_cast<const uint32_t*>(upper + 32 * i + 16);
      words[i][3] = *reinterpret_cast<const uint32_t*>(lower + 32 * i + 16);
    }
  }

  // Issues the TMA loads of 64 rows of Q.
  __device__ __forceinline__ static void issue_query(unsigned char* shared, const TensorMap* map,
                                                     const Problem<Traits>&,
                                                     const WorkTile<Traits>& tile, int row,
                                                     uint64_t* full) {
#pragma unroll
    for (int box = 0; box < Sizes::kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_3d(shared + box * 64 * Sizes::kRowBytes, map,
                                   box * Sizes::kRowBytes, tile.first_query + row, tile.head.q,
                                   full);
    }
  }
};

// Where the keys of a tile are.
template <class Traits>
struct KvSource {
  using Sizes = TileSizes<Traits>;
  int kv_head;

  __device__ __forceinline__ void enter(const Problem<Traits>&, const WorkTile<Traits>& tile) {
    kv_head = tile.head.kv;
  }
  __device__ __forceinline__ void seek(const Problem<Traits>&, int) {}
  __device__ __forceinline__ constexpr int keys_of(int) const { return Sizes::kBlockN; }

  // Issues the TMA loads of K or V of one n_block.
  __device__ __forceinline__ void issue_load(unsigned char* shared, const TensorMap* map,
                                             const Problem<Traits>&, int n_block,
                                             uint64_t* full) const {
#pragma unroll
    for (int box = 0; box < Sizes::kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_3d(shared + box * Sizes::kBoxBytes, map, box * Sizes::kRowBytes,
                                   n_block * Sizes::kBlockN, kv_head, full);
    }
  }
};

}  // namespace attention::dense
