// The problem: sequences of different lengths, with strides, windows and sinks.
#pragma once

#include <cstdint>

#include "include/problem.cuh"

namespace attention::prefill {

// Strides in elements; columns are contiguous.
struct Strides {
  int64_t batch, head, row;

  __device__ __forceinline__ int64_t offset(int b, unsigned h, int i) const {
    return batch * b + head * h + row * i;
  }
};

// Of ::Problem, `queries` and `keys` are the most of a sequence, and o is FP16 or BF16. k, v and
// heads are not used.
struct Problem : ::Problem {
  bool bf16;                 // O is BF16
  const float* sinks;        // (heads of a sequence), or null
  const int* cu_queries;     // (batch + 1), or null
  const int* cu_keys;        // (batch + 1), or null
  const int* lengths;        // (batch), or null
  const int* page_table;     // (batch, max_pages), or null
  unsigned batch, kv_heads;  // sequences, and K/V heads of each
  int max_pages, page_size;
  int total_queries;              // rows of packed Q and O
  int window_left, window_right;  // keys before and behind its own that a row attends to, or -1
  Strides q_strides, o_strides, lse_strides;
};

// Larger than any distance of two keys, and small enough to be added to a key.
constexpr int kNoLimit = 1 << 30;

// A work tile of one sequence. key_end and causal_key_end of ::WorkTile, and the keys here, are
// counted from first_key: n_block 0 starts there. Row r attends to the keys from window_begin + r
// on, before causal_key_end + r, and before `keys`.
struct WorkTile : ::WorkTile {
  int sequence;
  unsigned sequence_head;  // query head in its sequence
  int first_row;           // of the sequence, in packed Q and O; else 0
  int queries;             // of the sequence
  int first_key;           // in the sequence, a multiple of 64
  int keys;                // end of the sequence
  int window_begin;
};

// The first row of a sequence in packed Q and O. Whatever the offsets are, it is one that they have,
// or their end: nothing is read or written outside.
__device__ __forceinline__ int first_row_of(const Problem& p, int sequence) {
  return max(0, min(p.cu_queries[sequence], p.total_queries));
}

__device__ __forceinline__ int queries_of(const Problem& p, int sequence) {
  if (p.cu_queries == nullptr) return p.queries;
  return max(0, first_row_of(p, sequence + 1) - first_row_of(p, sequence));
}

// At most p.keys, so that no offset or length makes a loop long. Tensor maps bound what is read.
__device__ __forceinline__ int keys_of(const Problem& p, int sequence) {
  int keys = p.keys;
  if (p.cu_keys != nullptr) keys = min(keys, p.cu_keys[sequence + 1] - p.cu_keys[sequence]);
  if (p.lengths != nullptr) keys = min(keys, p.lengths[sequence]);
  return max(0, keys);
}

template <int kBlockM>
__device__ __forceinline__ int tiles_of(int queries) {
  return static_cast<int>(static_cast<unsigned>(queries + kBlockM - 1) / kBlockM);
}

// The keys on a side of a row. -1, no limit, is the largest unsigned number. It is derived at each
// use: the main loop has no registers for it.
__device__ __forceinline__ int limit(int window) {
  return min(ptx::opaque(static_cast<unsigned>(window)), static_cast<unsigned>(kNoLimit));
}

// The keys that some row of a tile attends to. Row 0 of the tile is at key `own` of its sequence.
template <int kBlockM>
__device__ __forceinline__ void find_keys(WorkTile& t, const Problem& p, int own, int keys) {
  const int left = limit(p.window_left), right = p.causal ? 0 : limit(p.window_right);
  const int begin = max(0, own - left);
  const int end = min(keys, own + right + kBlockM);
  t.first_key = begin & ~63;
  t.key_end = end > begin ? end - t.first_key : 0;
  t.keys = keys - t.first_key;
  t.causal_key_end = own + right + 1 - t.first_key;
  t.window_begin = own - left - t.first_key;
}

// Tile number `order` of a head, the last rows first, if the sequence has as many tiles.
template <int kBlockM>
__device__ __forceinline__ WorkTile work_tile(const Problem& p, Head head, int sequence,
                                              unsigned sequence_head, unsigned order) {
  WorkTile t;
  t.head = head;
  t.sequence = sequence;
  t.sequence_head = sequence_head;
  t.first_row = p.cu_queries != nullptr ? first_row_of(p, sequence) : 0;
  t.queries = queries_of(p, sequence);
  t.first_query = (tiles_of<kBlockM>(t.queries) - 1 - static_cast<int>(order)) * kBlockM;
  t.q = p.q + p.q_strides.offset(sequence, sequence_head, t.first_row);
  t.o = p.o + p.o_strides.offset(sequence, sequence_head, t.first_row);
  t.lse = p.lse + p.lse_strides.offset(sequence, sequence_head, t.first_row);
  const int keys = keys_of(p, sequence);
  find_keys<kBlockM>(t, p, t.first_query + keys - t.queries, keys);
  return t;
}

}  // namespace attention::prefill
