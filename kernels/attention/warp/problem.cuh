// The problem, and the tile of it that a block computes.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "traits.cuh"

namespace attention::warp {

// Strides in elements; columns are contiguous, and rows start at multiples of 16 bytes.
struct Strides {
  int64_t batch, head, row;
};

struct Problem {
  const uint16_t *q, *k, *v;
  uint16_t* o;
  float* lse;      // or null
  unsigned heads;  // of a batch entry
  unsigned group;  // query heads of a K/V head
  unsigned all_heads;
  int queries, keys;
  bool causal;
  float softmax_scale;
  Strides q_strides, k_strides, v_strides, o_strides;
  unsigned section;  // heads whose tiles follow each other
};

// kBlockM rows of a head.
struct Tile {
  const uint16_t *q, *k, *v;  // first row of the head
  uint16_t* o;
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
  Tile t;
  t.q = p.q + batch * p.q_strides.batch + head * p.q_strides.head;
  t.k = p.k + batch * p.k_strides.batch + kv_head * p.k_strides.head;
  t.v = p.v + batch * p.v_strides.batch + kv_head * p.v_strides.head;
  t.o = p.o + batch * p.o_strides.batch + head * p.o_strides.head;
  t.lse = p.lse + static_cast<size_t>(at) * static_cast<unsigned>(p.queries);
  t.first_query = (tiles - 1 - order) * kBlockM;
  t.causal_key_end = t.first_query + p.keys - p.queries + 1;
  t.key_end = p.causal ? min(p.keys, max(0, t.causal_key_end + kBlockM - 1)) : p.keys;
  return t;
}

}  // namespace attention::warp
