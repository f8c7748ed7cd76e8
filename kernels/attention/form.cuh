// The form of the problem: plain tensors, those of kernels/attention/prefill with options, those of
// kernels/attention/native in 16 bits, or those of kernels/attention/mixed with Q in 16 bits. Each form has its work
// tiles and their order, the mask, the loads, and the stores.
#pragma once

#include "knobs.cuh"

#if STAGE7B_OPTIONS
#include "prefill/loads.cuh"
#include "prefill/output.cuh"
#include "prefill/tiles.cuh"
#elif STAGE7B_HALVES
#include "dense/tiles.cuh"
#include "native/box_loads.cuh"
#include "native/output.cuh"
#include "native/problem.cuh"
#elif STAGE7B_MIXED
#include "dense/loads.cuh"
#include "dense/tiles.cuh"
#include "mixed/output.cuh"
#include "mixed/problem.cuh"
#else
#include "dense/loads.cuh"
#include "dense/output.cuh"
#include "dense/tiles.cuh"
#endif

namespace stage7b {

// The steps of a work tile.
__device__ __forceinline__ int num_n_blocks(const WorkTile& tile) {
  return (tile.key_end + Sizes::kBlockN - 1) / Sizes::kBlockN;
}

}  // namespace stage7b
