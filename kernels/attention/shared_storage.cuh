// The shared memory of stage7b: Q, the pipeline stages of K, V and V^T, and their barriers.
#pragma once

#include <cstdint>

#include "../include/pipeline_state.cuh"
#include "tile_sizes.cuh"

namespace stage7b {

extern __shared__ __align__(1024) unsigned char memory[];

struct Barriers {
  uint64_t k_full[Sizes::kStages], k_empty[Sizes::kStages];
  uint64_t v_full[Sizes::kStages], v_empty[Sizes::kStages];
  uint64_t v_t_full[Sizes::kStages], v_t_empty[Sizes::kStages];
  uint64_t q_full[Sizes::kQBarriers];
};
static_assert(sizeof(Barriers) == Sizes::kBarrierBytes);

// Every operand starts at a multiple of 1024 bytes: TMA and wgmma derive the swizzle of a row from
// its address.
struct SharedStorage {
  unsigned char* q;    // (consumers, boxes, 64, row bytes)
  unsigned char* k;    // (stages, boxes, TILE_N, row bytes)
  unsigned char* v;    // (stages, boxes, TILE_N, row bytes), none with USE_DIRECT_V
  unsigned char* v_t;  // (stages, panels, D + 8, panel keys)
  float4* merge;       // (2 tiles, consumers, chunks, 128 threads)
  int4* row_keys;      // (consumer warps), with options: the keys that their rows attend to
  Barriers* barriers;
  int* stage_keys;     // (stages), with options: keys of V in a stage
  unsigned char* cursors;  // (2), with options: the LoadCursors of K and of V

  __device__ __forceinline__ explicit SharedStorage(unsigned char* memory)
      : q(memory),
        k(q + Sizes::kQBytes),
        v(k + Sizes::kStages * Sizes::kTileBytes),
        v_t(v + Sizes::kStages * Sizes::kVBytes),
        merge(reinterpret_cast<float4*>(v_t + Sizes::kStages * Sizes::kVtBytes)),
        row_keys(reinterpret_cast<int4*>(v_t + Sizes::kStages * Sizes::kVtBytes +
                                         Sizes::kMergeBytes)),
        barriers(reinterpret_cast<Barriers*>(v_t + Sizes::kStages * Sizes::kVtBytes +
                                             Sizes::kMergeBytes + 16 * Sizes::kRowKeys)),
        stage_keys(reinterpret_cast<int*>(barriers + 1)),
        cursors(reinterpret_cast<unsigned char*>(stage_keys + Sizes::kStages)) {}
};

using KvState = PipelineState<Sizes::kStages>;

}  // namespace stage7b
