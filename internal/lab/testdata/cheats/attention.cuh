// Honest attention by the plainest means, and what the cheats of this folder share. A block is a
// warp and computes one query row; a lane has two of its 64 columns. A cheat is a source with a
// function `cheat`, which the entry function calls in every block.
#pragma once

#include <stdint.h>

constexpr int kHeadDim = HEAD_DIM;

extern "C" __device__ const unsigned attune_launch[] = {32, 1, 0};

struct Problem {
  const uint8_t *q, *k, *v;
  uint32_t* o;  // pairs of FP16
  const float *descale_q, *descale_k, *descale_v;
  unsigned heads, group;
  int queries, keys, causal;
  float softmax_scale;
};

__device__ void cheat(const Problem& p);

extern "C" __global__ void cheats(const uint8_t* q, const uint8_t* k, const uint8_t* v, uint32_t* o, const float* descale_q,
                                  const float* descale_k, const float* descale_v, unsigned heads, unsigned group, int queries, int keys,
                                  int causal, float softmax_scale) {
  cheat({q, k, v, o, descale_q, descale_k, descale_v, heads, group, queries, keys, causal, softmax_scale});
}

// Position of this block: its query row and head, its number, and the number of all blocks.
__device__ inline int row() { return blockIdx.x; }
__device__ inline unsigned head() { return blockIdx.z * gridDim.y + blockIdx.y; }
__device__ inline unsigned block() { return head() * gridDim.x + blockIdx.x; }
__device__ inline unsigned blocks() { return gridDim.x * gridDim.y * gridDim.z; }
__device__ inline unsigned lane() { return threadIdx.x; }

// E4M3 has the exponent and the leading mantissa bits of an FP32 that is smaller by 2^120.
__device__ inline float decode(unsigned code) {
  const float magnitude = __uint_as_float((code & 0x7f) << 20) * 0x1p120f;
  return code & 0x80 ? -magnitude : magnitude;
}

__device__ inline float2 decode2(const uint8_t* codes) { return {decode(codes[0]), decode(codes[1])}; }

__device__ inline float sum_of_warp(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Keys that a query row attends to.
__device__ inline int visible(const Problem& p, int row) {
  return p.causal ? min(p.keys, row + 1 + p.keys - p.queries) : p.keys;
}

// The lane's part of a row of O over the keys from `from` to `to`. `round` changes each weight.
template <typename Round>
__device__ inline float2 attend(const Problem& p, unsigned head, int row, int from, int to, Round round) {
  const unsigned kv_head = head / p.group;
  const float2 q = decode2(p.q + ((size_t)head * p.queries + row) * kHeadDim + 2 * lane());
  const size_t first = (size_t)kv_head * p.keys * kHeadDim + 2 * lane();
  const float scale = p.descale_q[head] * p.descale_k[kv_head] * p.softmax_scale;
  float row_max = -INFINITY, sum = 0;
  float2 o = {0, 0};
  for (int key = from; key < to; ++key) {
    const float2 k = decode2(p.k + first + (size_t)key * kHeadDim), v = decode2(p.v + first + (size_t)key * kHeadDim);
    const float score = sum_of_warp(q.x * k.x + q.y * k.y) * scale;
    const float new_max = fmaxf(row_max, score), rescale = expf(row_max - new_max), weight = round(expf(score - new_max));
    o = {o.x * rescale + weight * v.x, o.y * rescale + weight * v.y};
    sum = sum * rescale + weight;
    row_max = new_max;
  }
  const float factor = sum > 0 ? p.descale_v[kv_head] / sum : 0.0f;
  return {o.x * factor, o.y * factor};
}

__device__ inline float2 attend(const Problem& p, unsigned head, int row) {
  return attend(p, head, row, 0, visible(p, row), [](float weight) { return weight; });
}

__device__ inline uint32_t pack(float2 x) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x.y), "f"(x.x));
  return pair;
}

// The lane's pair of columns in a row of O.
__device__ inline uint32_t* output(const Problem& p, unsigned head, int row) {
  return p.o + ((size_t)head * p.queries + row) * (kHeadDim / 2) + lane();
}

__device__ inline void store(const Problem& p, float2 x) { *output(p, head(), row()) = pack(x); }

// What a kernel without a cheat does.
__device__ inline void compute(const Problem& p) { store(p, attend(p, head(), row())); }

// The number of this launch, counted from 0 in a variable of the module.
__device__ inline unsigned launch_number(unsigned* counter) {
  unsigned ticket = lane() == 0 ? atomicAdd(counter, 1u) : 0;
  return __shfl_sync(~0u, ticket, 0) / blocks();
}

// A checksum of Q, K and V. Every block computes it for itself, much faster than attention.
__device__ inline uint32_t checksum(const Problem& p) {
  const size_t q = (size_t)p.heads * p.queries * kHeadDim / 4, kv = (size_t)(p.heads / p.group) * p.keys * kHeadDim / 4;
  uint32_t sum = 0;
  auto add = [&](const uint8_t* codes, size_t words) {
    const uint32_t* all = reinterpret_cast<const uint32_t*>(codes);
    for (size_t i = lane(); i < words; i += 32) sum = sum * 31 + all[i];
  };
  add(p.q, q);
  add(p.k, kv);
  add(p.v, kv);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

constexpr int kMaxBlocks = 1 << 16;  // of a launch, for variables with an element for each
