// The addresses of Q, K and V of sequences: strided, packed or paged.
#pragma once

#include "../../tma.cuh"
#include "../row_state.cuh"
#include "../tile_sizes.cuh"
#include "problem.cuh"

namespace ptx {

// PTX ISA "prefetch.global.L1".
__device__ __forceinline__ void prefetch_global_l1(const void* global) {
  asm volatile("prefetch.global.L1 [%0];\n" :: "l"(__cvta_generic_to_global(global)));
}

}  // namespace ptx

namespace stage7b {

// Loads a lane's two rows of Q as operand A. Rows beyond the last query read the last one; their
// results are not stored.
__device__ __forceinline__ void load_query_words(uint32_t (&words)[Sizes::kHeadDim / 32][4],
                                                 const Problem& p, const WorkTile& tile) {
  const Lane lane;
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
__device__ __forceinline__ void issue_query_load(unsigned char* shared, const TensorMap* map,
                                                 const Problem& p, const WorkTile& tile, int row,
                                                 uint64_t* full) {
#pragma unroll
  for (int box = 0; box < Sizes::kBoxes; ++box) {
    ptx::cp_async_bulk_tensor_4d(shared + box * 64 * Sizes::kRowBytes, map, box * Sizes::kRowBytes,
                                 tile.first_row + tile.first_query + row, tile.sequence_head,
                                 p.cu_queries != nullptr ? 0 : tile.sequence, full);
  }
}

// Where the keys of a tile are. They are loaded as boxes of 64, so that a page holds whole boxes.
struct KvSource {
  static constexpr int kBoxKeys = 64;
  int kv_head = 0;    // in its sequence
  int sequence = 0;
  int first_key = 0;  // of the tile, in its sequence
  int keys = 0;       // of the sequence, counted from first_key

  __device__ __forceinline__ void enter(const Problem& p, const WorkTile& tile) {
    sequence = tile.sequence;
    kv_head = tile.head.kv - sequence * p.kv_heads;
    first_key = tile.first_key;
    keys = tile.keys;
  }

  // Keys of the n_block that belong to the sequence.
  __device__ __forceinline__ int keys_of(int n_block) const {
    return keys - n_block * Sizes::kBlockN;
  }

  // Requests the entries of the page table ahead of the load.
  __device__ __forceinline__ void seek(const Problem& p, int n_block) const {
    if (p.page_table == nullptr || threadIdx.x != 0) return;
    ptx::prefetch_global_l1(pages(p) + (first_key + n_block * Sizes::kBlockN) / p.page_size);
  }

  // Issues the TMA loads of K or V of an n_block. Boxes behind the last key have no page. They are
  // loaded from out of bounds: TMA writes zeros and reads nothing.
  __device__ __forceinline__ void issue_load(unsigned char* shared, const TensorMap* map,
                                             const Problem& p, int n_block, uint64_t* full) const {
    const bool paged = p.page_table != nullptr, packed = p.cu_keys != nullptr;
    int key = first_key + n_block * Sizes::kBlockN;  // in the page, or in the sequence
    const int* entry = nullptr;
    if (paged) {
      const int number = key / p.page_size;
      entry = pages(p) + number, key -= number * p.page_size;
    } else if (packed) {
      key += p.cu_keys[sequence];
    }
#pragma unroll 1
    for (int i = 0; i < Sizes::kBlockN; i += kBoxKeys) {
      const bool inside = i < keys_of(n_block);
      const int page = paged && inside ? __ldg(entry) : packed ? 0 : sequence;
#pragma unroll
      for (int box = 0; box < Sizes::kBoxes; ++box) {
        ptx::cp_async_bulk_tensor_4d(shared + box * Sizes::kBoxBytes + i * Sizes::kRowBytes, map,
                                     box * Sizes::kRowBytes, inside ? key : kNoLimit, kv_head,
                                     page, full);
      }
      key += kBoxKeys;
      if (paged && key == p.page_size) key = 0, ++entry;
    }
  }

 private:
  __device__ __forceinline__ const int* pages(const Problem& p) const {
    return p.page_table + static_cast<size_t>(sequence) * p.max_pages;
  }
};

}  // namespace stage7b
