// The shared memory of stage7b: Q, the pipeline stages of K, V and V^T, and their barriers.
#pragma once

#include <cstdint>

#include "../../common/pipeline_state.cuh"
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

// The conversion of K and V from 16 bits, in kernels/fused. Every consumer converts one stage.
struct alignas(16) Staging {
  enum Mark { kNext, kEnd };  // a step, no more steps
  static constexpr int kStages = Sizes::kConsumers;
  uint32_t magnitude[kStages][2][4];  // largest of K and of V, of each warp
  float4 factors[2][kStages];         // of K and of V: the inverse of the scale, and the scale
  uint64_t full[kStages][2];          // barriers of the loads of K and V
  int mark[kStages];
};
static_assert(!knob::kHalves || sizeof(Staging) == Sizes::kStagingBytes);

// Every operand starts at a multiple of 1024 bytes: TMA and wgmma derive the swizzle of a row from
// its address.
struct SharedStorage {
  unsigned char* q;    // (consumers, boxes, 64, row bytes)
  unsigned char* k;    // (stages, boxes, TILE_N, row bytes)
  unsigned char* v;    // (stages, boxes, TILE_N, row bytes), none with USE_DIRECT_V
  unsigned char* staged;  // (slots, boxes, TILE_N, 128) in 16 bits, in kernels/fused
  unsigned char* v_t;  // (stages, panels, D + 8, panel keys)
  float4* merge;       // (2 tiles, consumers, chunks, 128 threads); in kernels/fused the ones
  Staging* staging;    // in kernels/fused
  int4* row_keys;      // (consumer warps), with options: the keys that their rows attend to
  Barriers* barriers;
  int* stage_keys;     // (stages), with options: keys of V in a stage
  unsigned char* cursors;  // (2), with options: the LoadCursors of K and of V

  __device__ __forceinline__ explicit SharedStorage(unsigned char* memory)
      : q(memory),
        k(q + Sizes::kQBytes),
        v(k + Sizes::kStages * Sizes::kTileBytes),
        staged(v + Sizes::kStages * Sizes::kVBytes),
        v_t(staged + Sizes::kStaging * Sizes::kStagedBytes),
        merge(reinterpret_cast<float4*>(v_t + Sizes::kStages * Sizes::kVtBytes)),
        staging(reinterpret_cast<Staging*>(v_t + Sizes::kStages * Sizes::kVtBytes +
                                           Sizes::kMergeBytes + Sizes::kOnesBytes)),
        row_keys(reinterpret_cast<int4*>(v_t + Sizes::kStages * Sizes::kVtBytes +
                                         Sizes::kMergeBytes)),
        barriers(reinterpret_cast<Barriers*>(v_t + Sizes::kStages * Sizes::kVtBytes +
                                             Sizes::kMergeBytes + Sizes::kOnesBytes +
                                             Sizes::kStagingBytes +
                                             16 * Sizes::kRowKeys)),
        stage_keys(reinterpret_cast<int*>(barriers + 1)),
        cursors(reinterpret_cast<unsigned char*>(stage_keys + Sizes::kStages)) {}
};

using KvState = PipelineState<Sizes::kStages>;

}  // namespace stage7b
