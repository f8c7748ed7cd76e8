// The shared memory of a block: Q, the pipeline stages of K, V and V^T, and their barriers.
#pragma once

#include <cstdint>

#include "../include/pipeline_state.cuh"
#include "tile_sizes.cuh"

namespace attention {

extern __shared__ __align__(1024) unsigned char memory[];

template <class Traits>
struct Barriers {
  using Sizes = TileSizes<Traits>;
  uint64_t k_full[Sizes::kStages], k_empty[Sizes::kStages];
  uint64_t v_full[Sizes::kStages], v_empty[Sizes::kStages];
  uint64_t v_t_full[Sizes::kStages], v_t_empty[Sizes::kStages];
  uint64_t q_full[Sizes::kQBarriers];
};

// Every operand starts at a multiple of 1024 bytes: TMA and wgmma derive the swizzle of a row from
// its address.
template <class Traits>
struct SharedStorage {
  using Sizes = TileSizes<Traits>;
  static_assert(sizeof(Barriers<Traits>) == Sizes::kBarrierBytes);
  unsigned char* q;    // (consumers, boxes, 64, row bytes)
  unsigned char* k;    // (stages, boxes, TILE_N, row bytes)
  unsigned char* v;    // (stages, boxes, TILE_N, row bytes), none with USE_DIRECT_V
  unsigned char* v_t;  // (stages, panels, D + 8, panel keys)
  float4* merge;       // (2 tiles, consumers, chunks, 128 threads)
  int4* row_keys;      // (consumer warps), with sequences: the keys that their rows attend to
  Barriers<Traits>* barriers;
  int* stage_keys;     // (stages), with sequences: keys of V in a stage
  unsigned char* cursors;  // (2), with sequences: the LoadCursors of K and of V

  __device__ __forceinline__ explicit SharedStorage(unsigned char* memory)
      : q(memory),
        k(q + Sizes::kQBytes),
        v(k + Sizes::kStages * Sizes::kTileBytes),
        v_t(v + Sizes::kStages * Sizes::kVBytes),
        merge(reinterpret_cast<float4*>(v_t + Sizes::kStages * Sizes::kVtBytes)),
        row_keys(reinterpret_cast<int4*>(v_t + Sizes::kStages * Sizes::kVtBytes +
                                         Sizes::kMergeBytes)),
        barriers(reinterpret_cast<Barriers<Traits>*>(v_t + Sizes::kStages * Sizes::kVtBytes +
                                                     Sizes::kMergeBytes + 16 * Sizes::kRowKeys)),
        stage_keys(reinterpret_cast<int*>(barriers + 1)),
        cursors(reinterpret_cast<unsigned char*>(stage_keys + Sizes::kStages)) {}
};

template <class Traits>
using KvState = PipelineState<TileSizes<Traits>::kStages>;

}  // namespace attention
