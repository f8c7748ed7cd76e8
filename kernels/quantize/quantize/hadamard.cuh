// The Hadamard transform of rows in registers.
#pragma once

#include "quantize/chunk.cuh"

// A row times the Hadamard matrix of `dim` columns, a power of two, over sqrt(dim). Neighbouring
// lanes hold 8 elements each. All lanes of the warp take part. Butterflies go from neighbouring
// columns to distant ones; the reference has the same order, so the results have the same bits.
__device__ inline Floats hadamard(Floats x, int dim) {
#pragma unroll
  for (int distance = 1; distance < kChunkElements; distance *= 2) {
#pragma unroll
    for (int i = 0; i < kChunkElements; i++) {
      if (i & distance) continue;
      const float a = x.v[i], b = x.v[i + distance];
      x.v[i] = __fadd_rn(a, b);
      x.v[i + distance] = __fsub_rn(a, b);
    }
  }
#pragma unroll 1
  for (int lanes = 1; lanes < dim / kChunkElements; lanes *= 2) {
    const bool upper = threadIdx.x & lanes;
#pragma unroll
    for (int i = 0; i < kChunkElements; i++) {
      const float other = __shfl_xor_sync(~0u, x.v[i], lanes);
      x.v[i] = __fadd_rn(other, upper ? -x.v[i] : x.v[i]);
    }
  }
  const float factor = __frcp_rn(__fsqrt_rn(dim));
#pragma unroll
  for (int i = 0; i < kChunkElements; i++) x.v[i] = __fmul_rn(x.v[i], factor);
  return x;
}
