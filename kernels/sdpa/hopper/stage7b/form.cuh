// The form of the problem: plain tensors, those of kernels/prefill with options, those of
// kernels/native in 16 bits, or those of kernels/mixed with Q in 16 bits. Each form has its work
// tiles and their order, the mask, the loads, and the stores.
#pragma once

#include "knobs.cuh"

#if STAGE7B_OPTIONS
#include "options/loads.cuh"
#include "options/output.cuh"
#include "options/tiles.cuh"
#elif STAGE7B_HALVES
#include "halves/loads.cuh"
#include "halves/output.cuh"
#include "halves/problem.cuh"
#include "plain/tiles.cuh"
#elif STAGE7B_MIXED
#include "mixed/problem.cuh"
#include "mixed/output.cuh"
#include "plain/loads.cuh"
#include "plain/tiles.cuh"
#else
#include "plain/loads.cuh"
#include "plain/output.cuh"
#include "plain/tiles.cuh"
#endif

namespace stage7b {

// The steps of a work tile.
__device__ __forceinline__ int num_n_blocks(const WorkTile& tile) {
  return (tile.key_end + Sizes::kBlockN - 1) / Sizes::kBlockN;
}

}  // namespace stage7b
