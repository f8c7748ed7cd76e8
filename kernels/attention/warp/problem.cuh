// The problem, and the tile of it that a block computes.
#pragma once

#include <cstdint>

#include "attention/tile_index.cuh"
#include "include/ptx.cuh"
#include "traits.cuh"

namespace attention::warp {

// Strides in elements; columns are contiguous, and rows start at multiples of 16 bytes.
struct Strides {
  int64_t batch, head, row;

  __device__ __forceinline__ int64_t offset(unsigned b, unsigned h, int i) const {
    return batch * b + head * h + row * i;
  }
};

struct Problem {
  const uint16_t *q, *k, *v;  // K and V may be E4M3
  uint16_t* o;
  float* lse;      // or null
  unsigned heads;  // of a batch entry
  unsigned group;  // query heads of a K/V head
  unsigned all_heads;
  int queries, keys;  // of sequences of different lengths the most
  bool causal;
  float softmax_scale;
  Strides q_strides, k_strides, v_strides, o_strides, lse_strides;
  unsigned section;   // heads whose tiles follow each other
  unsigned splits;    // blocks of a tile, which divide its keys
  float* parts;       // of all blocks, with splits
  unsigned* arrived;  // blocks of each tile that have stored their part

  // ---- with options ----
  const float* sinks;     // (heads), or null
  const int* cu_queries;  // (batch + 1), or null
  const int* cu_keys;     // (batch + 1), or null
  const int* lengths;     // (batch), or null
  const int* page_table;  // (batch, max_pages), or null
  int max_pages, page_size;
  int total_queries;              // rows of packed Q and O
  int total_keys;                 // rows of packed K and V, or of all pages
  int window_left, window_right;  // keys before and behind its own that a row attends to, or -1
  float softcap;                  // of the scores; 0: none
  int columns, o_columns;         // of Q and K, and of V and O: multiples of 8 up to HEAD_DIM
  const float* alibi_slopes;      // (batch, heads), or null
  int64_t alibi_stride_batch;     // in elements, 0 if all sequences share the slopes
  const uint64_t* tree_mask;      // (batch, queries), of packed queries one for each row, or null
  const float* descale_k;         // (batch, kv_heads), or null
  const float* descale_v;         // (batch, kv_heads), or null
};

// kBlockM rows of a head, or of the query heads of a K/V head: with packed heads row r is query
// r % queries of the head r / queries of the group.
struct Tile {
  const uint16_t *q, *k, *v;  // first row of the head
  int64_t o, lse;             // offsets of the first row in O and in the log-sum-exp
  unsigned index, split;  // of the tile, and of the block among those of the tile
  int first_query;        // or first row
  int causal_key_end;     // with a causal mask row r attends to the keys before causal_key_end + r
  int key_end;            // no row attends to later keys
  int first_step, end_step;  // of the block

  // ---- with options: packed heads have bounds for query r % queries, others for row r ----
  unsigned sequence;
  unsigned head;         // the first query head, in its sequence
  int queries, keys;     // of the sequence
  int rows;              // of the head, or of all packed heads; 0: there is no such tile
  int key_begin;         // no row attends to earlier keys
  int window_begin;      // row r attends to the keys from window_begin + r on
  unsigned page_reciprocal;
  float score_scale;     // of the scores
};

// ---- sequences ----

// Larger than any distance of two keys, and small enough to be added to a key.
constexpr int kNoLimit = 1 << 30;

__device__ __forceinline__ int limit(int window) {
  return static_cast<int>(min(static_cast<unsigned>(window), static_cast<unsigned>(kNoLimit)));
}

// Rows [first, first + count) of a sequence among packed rows. Whatever the offsets are, nothing is
// outside of [0, total).
struct Packed {
  int first, count;

  __device__ __forceinline__ Packed(const int* offsets, unsigned sequence, int total) {
    first = max(0, min(offsets[sequence], total));
    count = max(first, min(offsets[sequence + 1], total)) - first;
  }
};

// What of a tile depends on its sequence. `order` counts the tiles of a head from the last one.
__device__ __forceinline__ void enter_sequence(Tile& t, const Problem& p, unsigned sequence,
                                               unsigned order) {
  t.sequence = sequence;
  t.queries = p.queries, t.keys = p.keys;
  if (p.cu_queries != nullptr) {
    const Packed packed(p.cu_queries, sequence, p.total_queries);
    t.queries = min(t.queries, packed.count);
    t.q += p.q_strides.row * packed.first, t.o += p.o_strides.row * packed.first;
    t.lse += packed.first;
  }
  if (p.cu_keys != nullptr) {
    const Packed packed(p.cu_keys, sequence, p.total_keys);
    t.keys = min(t.keys, packed.count);
    const int64_t first = packed.first;
    t.k += (p.k_strides.row * first) >> kE4m3, t.v += (p.v_strides.row * first) >> kE4m3;
  }
  if (p.lengths != nullptr) t.keys = max(0, min(t.keys, p.lengths[sequence]));
  const int rows = t.queries * static_cast<int>(kPacksHeads ? p.group : 1);
  const int tiles = static_cast<int>(static_cast<unsigned>(rows + kBlockM - 1) / kBlockM);
  t.rows = static_cast<int>(order) < tiles ? rows : 0;
  t.first_query = (tiles - 1 - static_cast<int>(order)) * kBlockM;
}

// The keys that rows attend to. With packed heads a tile may have all queries.
__device__ __forceinline__ void find_keys(Tile& t, const Problem& p) {
  const int left = limit(p.window_left), right = p.causal ? 0 : limit(p.window_right);
  const int own = t.keys - t.queries + (kPacksHeads ? 0 : t.first_query);  // key of row 0
  const int rows = kPacksHeads ? t.queries : kBlockM;
  t.window_begin = own - left;
  t.causal_key_end = own + right + 1;
  t.key_begin = max(0, t.window_begin);
  t.key_end = max(t.key_begin, min(t.keys, t.causal_key_end + rows - 1));
}

// The steps of this block.
__device__ __forceinline__ void divide_steps(Tile& t, const Problem& p) {
  const unsigned first = kHasOptions ? t.key_begin / kBlockN : 0;
  const unsigned end = (t.key_end + kBlockN - 1) / kBlockN;
  const unsigned steps = !kHasOptions || t.key_end > t.key_begin ? end - first : 0;
  t.first_step = first, t.end_step = first + steps;
  if (p.splits > 1) {
    t.first_step = first + steps * t.split / p.splits;
    t.end_step = first + steps * (t.split + 1) / p.splits;
  }
}

// ---- tiles ----

// The tile of this block. Heads are divided into sections, whose K and V the L2 cache holds. Of a
// section the last rows of all heads come first: with a causal mask they attend to the most keys.
__device__ __forceinline__ Tile block_tile(const Problem& p) {
  const unsigned each = kPacksHeads ? p.group : 1;  // query heads of a tile
  const unsigned rows = ptx::opaque(static_cast<unsigned>(p.queries)) * each;
  const unsigned tiles = (rows + kBlockM - 1) / kBlockM;
  const unsigned per_section = p.section * tiles;
  Tile t;
  // Found again at the end of the tile: the mainloop needs the registers.
  t.index = ptx::opaque(blockIdx.x), t.split = 0;
  if (p.splits > 1) {
    const unsigned block = t.index;
    t.index = block / p.splits, t.split = block - t.index * p.splits;
  }
  const unsigned section = t.index / per_section, within = t.index % per_section;
  const unsigned heads = min(p.section, p.all_heads / each - section * p.section);
  const unsigned order = within / heads, at = (section * p.section + within % heads) * each;
  const unsigned batch = at / p.heads, head = at % p.heads, kv_head = head / p.group;
  const unsigned entry = kHasOptions && p.cu_queries != nullptr ? 0 : batch;
  t.q = p.q + p.q_strides.offset(entry, head, 0);
  t.o = p.o_strides.offset(entry, head, 0);
  t.lse = p.lse_strides.offset(entry, head, 0);
  if constexpr (kHasOptions) {
    const unsigned kv_entry = p.cu_keys != nullptr || p.page_table != nullptr ? 0 : batch;
    t.k = p.k + (p.k_strides.offset(kv_entry, kv_head, 0) >> kE4m3);
    t.v = p.v + (p.v_strides.offset(kv_entry, kv_head, 0) >> kE4m3);
    t.head = head;
    t.page_reciprocal = p.page_table == nullptr ? 0 : Divisor(p.page_size).reciprocal;
    t.score_scale = p.softmax_scale;
    if (p.descale_k != nullptr) t.score_scale *= p.descale_k[at / p.group];
    enter_sequence(t, p, batch, order);
    find_keys(t, p);
  } else {
    t.k = p.k + p.k_strides.offset(batch, kv_head, 0);
    t.v = p.v + p.v_strides.offset(batch, kv_head, 0);
    t.first_query = (tiles - 1 - order) * kBlockM;
    t.causal_key_end = t.first_query + p.keys - p.queries + 1;
    t.key_end = p.causal ? min(p.keys, max(0, t.causal_key_end + kBlockM - 1)) : p.keys;
  }
  divide_steps(t, p);
  return t;
}

// The query head and the query of a row of a tile.
struct RowPlace {
  unsigned head;  // behind the first of the tile
  int query;

  __device__ __forceinline__ RowPlace(const Tile& tile, int row) {
    const unsigned at = tile.first_query + row;
    head = kPacksHeads ? at / static_cast<unsigned>(tile.queries) : 0;
    query = static_cast<int>(at - head * tile.queries);
  }
};

// Whether a row of a tile exists.
__device__ __forceinline__ bool has_row(const Problem& p, const Tile& tile, int row) {
  return tile.first_query + row < (kHasOptions ? tile.rows : p.queries);
}

}  // namespace attention::warp
