// One attention problem, and what every kernel for it begins with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "knobs.cuh"
#include "ptx.cuh"

// What the kernel is launched with.
struct Problem {
  const uint8_t* q;        // (B*H, queries, D) E4M3
  const uint8_t* k;        // (B*H/group, keys, D) E4M3
  const uint8_t* v;        // (B*H/group, keys, D) E4M3
  uint16_t* o;             // (B*H, queries, D) FP16, or BF16 of a kernel that writes that
  float* lse;              // (B*H, queries), of a kernel that writes it
  const float* descale_q;  // (B*H)
  const float* descale_k;  // (B*H/group)
  const float* descale_v;  // (B*H/group)
  unsigned heads;          // B*H
  unsigned group;          // neighbouring heads that share one head of K and V
  int queries, keys;
  bool causal;
  float softmax_scale;
};

// A head of Q, and the head of K and V that it uses.
struct Head {
  unsigned q, kv;
};

// The part of a problem that one block computes at a time: TILE_M query rows of one head.
struct Tile {
  const uint8_t* q;  // (queries, D) of the head
  const uint8_t* k;  // (keys, D)
  const uint8_t* v;  // (keys, D)
  uint16_t* o;       // (queries, D)
  float* lse;        // (queries), of a kernel that writes it
  Head head;
  int first_query;
  int seen;          // keys that its last query sees
  int visible;       // keys that its first query sees if the mask is causal
};

// The factors of a head. They are loaded by themselves, so that a kernel can ask for its operands first: nothing needs them before the first scores.
struct Factors {
  float scores_log2;  // of the scores, for exp2
  float out;          // of O
};

__device__ __forceinline__ float scores_log2_of(const Problem& p, float descale_q, float descale_k) {
  constexpr float kLog2e = 1.4426950408889634f;
  const float scores = descale_q * descale_k * p.softmax_scale * kLog2e;
  // A head of zeros may have a factor of 0, and minus infinity, which masks a score, times 0 would be NaN.
  return scores == 0.0f ? 1e-30f : scores;
}

__device__ __forceinline__ Factors factors_of(const Problem& p, Head head) {
  return {scores_log2_of(p, p.descale_q[head.q], p.descale_k[head.kv]), p.descale_v[head.kv]};
}

__device__ __forceinline__ unsigned tiles_a_head(const Problem& p) {
  return (static_cast<unsigned>(p.queries) + knob::kTileM - 1) / knob::kTileM;
}

__device__ __forceinline__ Head head_of(const Problem& p, unsigned q) { return {q, p.group == 1 ? q : q / p.group}; }

// The head of a block whose own dimensions are y and z: one alone would not have room for more than 65535 of them. Blocks of the last z may have none.
// Where heads share K and V, the grid has those that share one in y, and the heads of K and V in z: a division would stand before the first load.
__device__ __forceinline__ Head head_of_block(const Problem& p) {
  const unsigned q = blockIdx.z * gridDim.y + blockIdx.y;
  return {q, p.group == 1 ? q : blockIdx.z};
}

// The tile at place `turn` of a head's. The last rows come first: with a causal mask they see the most keys, and no block begins with them late.
__device__ __forceinline__ Tile tile_of(const Problem& p, Head head, unsigned turn) {
  Tile t;
  t.head = head;
  t.first_query = (tiles_a_head(p) - 1 - turn) * knob::kTileM;
  // Lengths are not negative: one product of 32 bits by 32 each.
  const size_t queries = static_cast<size_t>(head.q) * static_cast<unsigned>(p.queries) * knob::kHeadDim;
  const size_t keys = ptx::opaque(static_cast<size_t>(head.kv) * static_cast<unsigned>(p.keys)) * knob::kHeadDim;
  t.q = p.q + queries;
  t.o = p.o + queries;
  t.lse = p.lse + static_cast<size_t>(head.q) * static_cast<unsigned>(p.queries);
  t.k = p.k + keys;
  t.v = p.v + keys;
  // With a causal mask query i sees the keys up to i + keys - queries; the last query of the tile sees the most.
  t.visible = t.first_query + p.keys - p.queries + 1;
  t.seen = p.causal ? min(p.keys, max(0, t.visible + knob::kTileM - 1)) : p.keys;
  return t;
}

// The compiler places up to 48 KB of shared memory; more is asked for at launch.
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
