// The arguments, and how the heads of Q, K and V are divided among warps.
//
// A row takes kRowLanes lanes of 8 neighbouring columns each, so that a lane has the same columns
// in all rows. A unit is 16 rows of a head and one warp: 4 groups of Q, a group of K, or 16
// successive rows of V.
#pragma once

#include <cstdint>

#include "knobs.cuh"
#include "quantize/chunk.cuh"

constexpr int kWarps = knob::kThreads / 32;
constexpr int kUnitRows = 16;

// Q, K or V.
struct Tensor {
  const uint16_t* x;  // FP16 or BF16
  uint8_t* y;         // (batch, heads, rows, dim)
  float* descale;
  Strides strides;    // of x
  int heads, rows;    // heads of one batch entry
  int all_heads, dim;

  __device__ const uint16_t* head(int index) const {
    const int batch = index / heads;
    return x + batch * strides.batch + (index - batch * heads) * strides.head;
  }
  __device__ uint8_t* output(int index) const { return y + size_t(index) * rows * dim; }
};

struct Problem {
  Tensor q, k, v;
  float* mean_k;      // (batch, kv_heads, dim)
  float* q_dot_mean;  // (batch, heads, q_rows), or null
  int dim;
  bool bf16;    // x is BF16, else FP16
  bool smooth;  // the means of K are subtracted

  // The K head of a Q head.
  __device__ int kv_head(int head) const {
    const int batch = head / q.heads;
    return batch * k.heads + (head - batch * q.heads) / (q.heads / k.heads);
  }
};

// The columns of a lane, for rows of kRowLanes lanes.
template <int kRowLanes>
struct Lane {
  static constexpr int kLanes = kRowLanes;
  static constexpr int kRows = 32 / kRowLanes;       // of a warp at a time
  static constexpr int kPasses = kUnitRows / kRows;  // over a unit
  int row, column;
  bool inside;  // of the columns

  __device__ explicit Lane(int dim)
      : row(threadIdx.x % 32 / kRowLanes),
        column(threadIdx.x % kRowLanes * kChunkElements),
        inside(column < dim) {}
};
