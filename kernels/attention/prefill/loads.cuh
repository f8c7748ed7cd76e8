// The addresses of Q, K and V of sequences: strided, packed or paged.
#pragma once

#include "attention/row_state.cuh"
#include "attention/tile_sizes.cuh"
#include "include/ptx.cuh"
#include "include/tma.cuh"
#include "problem.cuh"

namespace attention::prefill {

template <class Traits>
struct Loads {
  using Sizes = TileSizes<Traits>;

  // Loads a lane's two rows of Q as operand A. Rows beyond the last query read the last one; their
  // results are not stored.
  __device__ __forceinline__ static void load_query_words(
      uint32_t (&words)[Sizes::kHeadDim / 32][4], const Problem& p, const WorkTile& tile) {
    const Lane<Traits> lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(tile.first_query + lane.row + 8 * half, tile.queries - 1);
      const uint8_t* from = tile.q + p.q_strides.row * row + 4 * lane.t;
#pragma unroll
      for (int i = 0; i < Sizes::kHeadDim / 16; ++i) {
        words[i / 2][i % 2 * 2 + half] = *reinterpret_cast<const uint32_t*>(from + 16 * i);
      }
    }
  }

  // Issues the TMA loads of 64 rows of Q.
  __device__ __forceinline__ static void issue_query(unsigned char* shared, const TensorMap* map,
                                                     const Problem& p, const WorkTile& tile,
                                                     int row, uint64_t* full) {
#pragma unroll
    for (int box = 0; box < Sizes::kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_4d(shared + box * 64 * Sizes::kRowBytes, map,
                                   box * Sizes::kRowBytes, tile.first_row + tile.first_query + row,
                                   tile.sequence_head,
                                   p.cu_queries != nullptr ? 0 : tile.sequence, full);
    }
  }
};

// Where the keys of a tile are. A page holds whole boxes of 16, 32 or 64 keys; other keys are loaded
// in boxes of a whole step. Sizes has the boxes.
template <class Traits, class Sizes = TileSizes<Traits>>
struct KvSource {
  static constexpr int kMaxPageBox = 64;  // keys
  static constexpr int kRowColumns = Sizes::kRowBytes / Traits::kElementBytes;
  int kv_head = 0;    // in its sequence
  int outer = 0;      // the map's last coordinate; the sequence if it is paged
  int first_key = 0;  // of the tile, in the sequence or among all packed keys
  int keys = 0;       // of the sequence, counted from first_key

  __device__ __forceinline__ void enter(const Problem& p, const WorkTile& tile) {
    const bool packed = p.cu_keys != nullptr;
    kv_head = tile.head.kv - tile.sequence * p.kv_heads;
    outer = packed ? 0 : tile.sequence;
    first_key = tile.first_key + (packed ? p.cu_keys[tile.sequence] : 0);
    keys = tile.keys;
  }

  // Keys of the n_block that belong to the sequence.
  __device__ __forceinline__ int keys_of(int n_block) const {
    return keys - n_block * Sizes::kBlockN;
  }

  // Requests the first entries of the page table of a tile ahead of the load.
  __device__ __forceinline__ void seek(const Problem& p, int n_block) const {
    if (p.page_table == nullptr) return;
    ptx::prefetch_global_l1(pages(p) + (first_key + n_block * Sizes::kBlockN) / p.page_size);
  }

  // Issues the TMA loads of K or V of an n_block. Of keys that are not paged a box may end behind
  // the sequence: those scores are masked, and those rows of V become 0.
  __device__ __forceinline__ void issue_load(unsigned char* shared, const TensorMap* map,
                                             const Problem& p, int n_block, uint64_t* full) const {
    if (p.page_table != nullptr) {
      issue_page_loads(shared, map, p, n_block, full);
    } else {
      issue_box(shared, map, first_key + n_block * Sizes::kBlockN, outer, full);
    }
  }

 private:
  // All columns of a box of keys.
  __device__ __forceinline__ void issue_box(unsigned char* shared, const TensorMap* map, int key,
                                            int last, uint64_t* full) const {
#pragma unroll
    for (int box = 0; box < Sizes::kBoxes; ++box) {
      ptx::cp_async_bulk_tensor_4d(shared + box * Sizes::kBoxBytes, map, box * kRowColumns, key,
                                   kv_head, last, full);
    }
  }

  // Boxes behind the last key have no page. They are loaded from out of bounds: TMA writes zeros
  // and reads nothing. The next entry is read before a box is issued.
  __device__ __forceinline__ void issue_page_loads(unsigned char* shared, const TensorMap* map,
                                                   const Problem& p, int n_block,
                                                   uint64_t* full) const {
    const int first = first_key + n_block * Sizes::kBlockN;
    const int left = min(keys_of(n_block), Sizes::kBlockN);
    const int box_keys = min(p.page_size & -p.page_size, kMaxPageBox);
    const int number = static_cast<unsigned>(first) / static_cast<unsigned>(p.page_size);
    const int* entry = pages(p) + number;
    int key = first - number * p.page_size;  // in its page
    int page = 0;
    if (!Traits::kLoadsEmptyTiles || left > 0) page = __ldg(entry);
    if (n_block > 0) seek(p, n_block - 1);
#pragma unroll 1
    for (int i = 0; i < Sizes::kBlockN; i += box_keys) {
      const bool last = key + box_keys == p.page_size;
      int next_page = page;
      if (last && i + box_keys < left) next_page = __ldg(++entry);
      issue_box(shared + i * Sizes::kRowBytes, map, i < left ? key : kNoLimit, page, full);
      key = last ? 0 : key + box_keys;
      page = next_page;
    }
  }

  __device__ __forceinline__ const int* pages(const Problem& p) const {
    return p.page_table + static_cast<size_t>(outer) * p.max_pages;
  }
};

}  // namespace attention::prefill
