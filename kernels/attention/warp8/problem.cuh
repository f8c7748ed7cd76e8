// The problem, and the tile of it that a block computes.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "traits.cuh"

namespace attention::warp8 {

// Strides in bytes; columns are contiguous, and rows start at multiples of 16 bytes.
struct Strides {
  int64_t batch, head, row;
};

struct Problem {
  const uint8_t *q, *k, *v;
  const float *descale_q, *descale_k;  // s8: of groups of rows and of keys; E4M3: of heads
  const float* descale_v;              // s8: of columns; E4M3: of heads
  const float* q_dot_mean;             // what smooth-K takes from all scores of a row; or null
  uint8_t* o;
  float* lse;      // or null
  unsigned heads;  // of a batch entry
  unsigned group;  // query heads of a K/V head
  unsigned all_heads;
  int queries, keys;
  bool causal;
  float softmax_scale;
  Strides q_strides, k_strides, v_strides, o_strides;
  unsigned section;  // heads whose tiles follow each other

  __device__ __forceinline__ int query_groups() const {
    return (queries + kFactorRows - 1) / kFactorRows;
  }
  __device__ __forceinline__ int key_groups() const {
    return (keys + kFactorKeys - 1) / kFactorKeys;
  }
};

// kBlockM rows of a head.
struct Tile {
  const uint8_t *q, *k, *v;  // first row of the head
  const float *descale_q, *descale_k, *descale_v, *q_dot_mean;
  uint8_t* o;
  float* lse;
  int first_query;
  int causal_key_end;  // with a causal mask row r attends to the keys before causal_key_end + r
  int key_end;         // no row attends to later keys
};

// The tile of this block. Heads are divided into sections, whose K and V the L2 cache holds. Of a
// section the last rows of all heads come first: with a causal mask they attend to the most keys.
__device__ __forceinline__ Tile block_tile(const Problem& p) {
  const unsigned tiles = (static_cast<unsigned>(p.queries) + kBlockM - 1) / kBlockM;
  const unsigned per_section = p.section * tiles;
  // Found again at the end of the tile: the mainloop needs the registers.
  const unsigned block = ptx::opaque(blockIdx.x);
  const unsigned section = block / per_section, within = block % per_section;
  const unsigned heads = min(p.section, p.all_heads - section * p.section);
  const unsigned order = within / heads, at = section * p.section + within % heads;
  const unsigned batch = at / p.heads, head = at % p.heads, kv_head = head / p.group;
  const size_t rows_before = static_cast<size_t>(at) * static_cast<unsigned>(p.queries);
  const size_t kv_at = static_cast<size_t>(batch) * (p.heads / p.group) + kv_head;
  Tile t;
  t.q = p.q + batch * p.q_strides.batch + head * p.q_strides.head;
  t.k = p.k + batch * p.k_strides.batch + kv_head * p.k_strides.head;
  t.v = p.v + batch * p.v_strides.batch + kv_head * p.v_strides.head;
  t.o = p.o + batch * p.o_strides.batch + head * p.o_strides.head;
  t.lse = p.lse + rows_before;
  t.q_dot_mean = p.q_dot_mean + rows_before;
  t.descale_q = p.descale_q + at * (kE4M3Qk ? 1 : size_t{kQFactors} * p.query_groups());
  t.descale_k = p.descale_k + kv_at * (kE4M3Qk ? 1 : size_t{kKFactors} * p.key_groups());
  t.descale_v = p.descale_v + kv_at * (kE4M3Qk ? 1 : kHeadDim);
  t.first_query = (tiles - 1 - order) * kBlockM;
  t.causal_key_end = t.first_query + p.keys - p.queries + 1;
  t.key_end = p.causal ? min(p.keys, max(0, t.causal_key_end + kBlockM - 1)) : p.keys;
  return t;
}

}  // namespace attention::warp8
