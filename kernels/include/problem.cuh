// An attention problem, the part of it that a block computes, and the shared memory of a block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx.cuh"

// The kernel arguments.
struct Problem {
  const uint8_t* q;        // (B*H, queries, D) E4M3
  const uint8_t* k;        // (B*H/group, keys, D) E4M3
  const uint8_t* v;        // (B*H/group, keys, D) E4M3
  uint16_t* o;             // (B*H, queries, D) FP16, or BF16 with USE_BF16_OUT
  float* lse;              // (B*H, queries) with USE_LSE, else unused
  const float* descale_q;  // (B*H)
  const float* descale_k;  // (B*H/group)
  const float* descale_v;  // (B*H/group)
  unsigned heads;          // B*H
  unsigned group;          // consecutive query heads that share one head of K and V
  int queries, keys;
  bool causal;
  float softmax_scale;
};

// A query head, and the K/V head that it uses.
struct Head {
  unsigned q, kv;
};

// The work of a block at a time: kBlockM query rows of one head.
struct WorkTile {
  const uint8_t* q;  // (queries, D) of the head
  const uint8_t* k;  // (keys, D)
  const uint8_t* v;  // (keys, D)
  uint16_t* o;       // (queries, D)
  float* lse;        // (queries) with USE_LSE
  Head head;
  int first_query;
  int key_end;         // keys that the last row attends to; no row attends to later ones
  int causal_key_end;  // with a causal mask row r attends to the keys before causal_key_end + r
};

// The scale factors of a head.
struct Scales {
  float softmax_scale_log2;  // of the scores, in log2 units: softmax_scale with both descales
  float descale_v;           // of O
};

// In log2 units. A head of zeros may have a descale factor of 0. A masked score is minus infinity,
// and minus infinity times 0 is NaN.
__device__ __forceinline__ float softmax_scale_log2(float softmax_scale) {
  constexpr float kLog2e = 1.4426950408889634f;
  const float scale = softmax_scale * kLog2e;
  return scale == 0.0f ? 1e-30f : scale;
}
__device__ __forceinline__ float softmax_scale_log2(const Problem& p, float descale_q,
                                                    float descale_k) {
  return softmax_scale_log2(descale_q * descale_k * p.softmax_scale);
}

// Kernels load the scales after they issue their operand loads: the first use is after the first
// scores.
__device__ __forceinline__ Scales load_scales(const Problem& p, Head head) {
  return {softmax_scale_log2(p, p.descale_q[head.q], p.descale_k[head.kv]), p.descale_v[head.kv]};
}

template <int kBlockM>
__device__ __forceinline__ unsigned tiles_per_head(const Problem& p) {
  return (static_cast<unsigned>(p.queries) + kBlockM - 1) / kBlockM;
}

__device__ __forceinline__ Head head_at(const Problem& p, unsigned q) {
  return {q, p.group == 1 ? q : q / p.group};
}

// The head of this block, from the grid of launch.cuh. Blocks of the last z may lie beyond the last
// head. The K/V head is blockIdx.z, not a quotient, so that no division precedes the first load.
__device__ __forceinline__ Head block_head(const Problem& p) {
  const unsigned q = blockIdx.z * gridDim.y + blockIdx.y;
  return {q, p.group == 1 ? q : blockIdx.z};
}

// Tile number `order` of a head in launch order. The last rows come first: with a causal mask they
// attend to the most keys, so the longest tiles do not start last.
template <int kBlockM, int kHeadDim>
__device__ __forceinline__ WorkTile work_tile(const Problem& p, Head head, unsigned order) {
  WorkTile t;
  t.head = head;
  t.first_query = (tiles_per_head<kBlockM>(p) - 1 - order) * kBlockM;
  // Lengths are not negative, so each product is one 32-by-32-bit multiplication.
  const size_t queries =
      static_cast<size_t>(head.q) * static_cast<unsigned>(p.queries) * kHeadDim;
  const size_t keys =
      ptx::opaque(static_cast<size_t>(head.kv) * static_cast<unsigned>(p.keys)) * kHeadDim;
  t.q = p.q + queries;
  t.o = p.o + queries;
  t.lse = p.lse + static_cast<size_t>(head.q) * static_cast<unsigned>(p.queries);
  t.k = p.k + keys;
  t.v = p.v + keys;
  // With a causal mask query i attends to the keys up to i + keys - queries (bottom-right aligned).
  t.causal_key_end = t.first_query + p.keys - p.queries + 1;
  t.key_end =
      p.causal ? min(p.keys, max(0, t.causal_key_end + kBlockM - 1)) : p.keys;
  return t;
}

// Up to 48 KB of shared memory are static; more is dynamic and requested at launch.
constexpr int kStaticLimit = 48 * 1024;
constexpr int dynamic_bytes(int bytes) { return bytes > kStaticLimit ? bytes : 0; }

template <int kBytes>
__device__ __forceinline__ unsigned char* shared_memory() {
  if constexpr (kBytes <= kStaticLimit) {
    __shared__ alignas(128) unsigned char memory[kBytes];
    return memory;
  } else {
    extern __shared__ __align__(128) unsigned char dynamic_memory[];
    return dynamic_memory;
  }
}
