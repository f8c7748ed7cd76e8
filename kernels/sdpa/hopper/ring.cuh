// Threads and shared memory of the kernel whose rows are queries: Q where it waits there, a ring of tiles of K, V and V turned over, and their barriers.
#pragma once

#include <cstdint>

#include "../common/ring_position.cuh"
#include "knobs.cuh"

namespace attention {

constexpr int kConsumers = knob::kTileM / 64;  // warpgroups
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr int kColumnBlocks = knob::kHeadDim / 16;
constexpr int kKeys = knob::kTileN;
constexpr int kStages = knob::kKvStages;
constexpr int kResident = 1;
constexpr int kProducerRegisters = knob::kProducerRegisters;
constexpr int kConsumerRegisters = (512 - kProducerRegisters) / kConsumers / 8 * 8;  // of the 512 that four warps, one a scheduler, have

constexpr int kRowBytes = knob::kHeadDim < 128 ? knob::kHeadDim : 128;  // of a box: the widest that copies can turn
constexpr int kBoxes = knob::kHeadDim / kRowBytes;
constexpr int kBoxBytes = kKeys * kRowBytes;
constexpr int kTileBytes = kKeys * knob::kHeadDim;

// V^T and the rows of ones, in panels of 128 keys: no row of an operand is longer. The last one may have keys in its first columns only.
constexpr int kPanelKeys = kKeys == 64 ? 64 : 128;
constexpr int kPanels = (kKeys + kPanelKeys - 1) / kPanelKeys;
constexpr int kPanelBytes = (knob::kHeadDim + 8) * kPanelKeys;
constexpr int kTurnedBytes = kPanels * kPanelBytes;

struct Barriers {
  uint64_t k_full[kStages], k_empty[kStages];
  uint64_t v_full[kStages], v_empty[kStages];
  uint64_t turned_full[kStages], turned_empty[kStages];
  uint64_t q_full[kConsumers];
};

// Every operand begins at a multiple of 1024 bytes: copies and products turn the pieces of a row by its address.
constexpr int kQBytes = knob::kQInShared ? knob::kTileM * knob::kHeadDim : 0;
constexpr int kDynamicBytes = kQBytes + kStages * (2 * kTileBytes + kTurnedBytes) + sizeof(Barriers);

struct Ring {
  unsigned char* q;       // (warpgroups, boxes, 64, row bytes)
  unsigned char* k;       // (stages, boxes, keys, row bytes)
  unsigned char* v;       // (stages, boxes, keys, row bytes)
  unsigned char* turned;  // (stages, panels, D + 8, panel keys)
  Barriers* barrier;

  __device__ __forceinline__ explicit Ring(unsigned char* memory)
      : q(memory), k(q + kQBytes), v(k + kStages * kTileBytes), turned(v + kStages * kTileBytes),
        barrier(reinterpret_cast<Barriers*>(turned + kStages * kTurnedBytes)) {}
};

using Place = RingPosition<kStages>;

}  // namespace attention
