// One tile of a block, from the first load to the stored output.
#pragma once

#include "../../../include/problem.cuh"
#include "../../../include/ptx.cuh"
#include "../../../include/wgmma.cuh"
#include "epilogue.cuh"
#include "load.cuh"
#include "mainloop.cuh"
#include "shared_storage.cuh"
#include "softmax.cuh"
#include "tile_sizes.cuh"

namespace stage7a {

// kSingleStep is for a tile with one step whose keys all exist. Short problems have no other tiles,
// and spend most of their time on instruction fetch. So their code is straight, without branches
// and without instructions that only other tiles need.
template <bool kSingleStep>
__device__ __forceinline__ void compute_tile(const Problem& problem, Head head,
                                             const WorkTile& tile) {
  const Lane lane;
  unsigned char* memory = shared_memory<Sizes::kSharedBytes>();
  unsigned char* q = memory;
  const Warpgroup warpgroup(memory + Sizes::kQBytes, warpgroup_index());

  // A tile that attends to no key still has one step, in which all keys are masked.
  const int steps = kSingleStep ? 1 : max(1, num_steps(tile));
  const int first_key = warpgroup.index * Sizes::kBlockN;

  // Q and K are requested before the first wait. A long V would delay them, so it follows when Q
  // has arrived.
  QTile q_tile;
  KFragment k;
  q_tile.load(tile, problem.queries);
  k.load<kSingleStep>(tile, lane, first_key, problem.keys);
  if constexpr (Sizes::kEarlyV) {
    issue_v_load<kSingleStep>(warpgroup.v, tile, first_key, problem.keys);
  }
  const Scales scales = load_scales(problem, head);
  q_tile.store(q);
  if constexpr (!Sizes::kEarlyV) {
    issue_v_load<kSingleStep>(warpgroup.v, tile, first_key, problem.keys);
  }
  ptx::fence_proxy_async();
  __syncthreads();

  RowState rows;
  mainloop<kSingleStep>(rows, k, problem, tile, warpgroup, lane, ptx::descriptor_address(q),
                        scales.softmax_scale_log2, first_key, steps);

  const MergeBuffer merge(memory + Sizes::kQBytes);
  if constexpr (Sizes::kWarpgroups > 1) {
    publish_row_max(*warpgroup.stats, rows, lane);
    publish_output(merge, rows.output, warpgroup);
    __syncthreads();
  }
  store_output(merge, rows, tile, scales.descale_v, warpgroup, lane, problem.queries);
}

__device__ __forceinline__ void forward(const Problem& problem) {
  const Head head = block_head(problem);
  if (head.q >= problem.heads) return;
  const WorkTile tile = work_tile<Sizes::kBlockM, Sizes::kHeadDim>(problem, head, blockIdx.x);
  if (num_steps(tile) == 1 && Sizes::kStepKeys <= problem.keys) {
    compute_tile<true>(problem, head, tile);
  } else {
    compute_tile<false>(problem, head, tile);
  }
}

}  // namespace stage7a
