// Threads and shared memory of the kernel whose rows are queries: Q where it waits there, a ring of tiles of K, V and V turned over, and their barriers.
#pragma once

#include <cstdint>

#include "../common/ring_position.cuh"
#include "knobs.cuh"

namespace attention {

constexpr bool kSharesKeys = knob::kKeyGroups > 1;  // the warpgroups that compute have the same 64 rows; else each has its own
constexpr int kConsumers = kSharesKeys ? knob::kKeyGroups : knob::kTileM / 64;  // warpgroups
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr int kColumnBlocks = knob::kHeadDim / 16;
constexpr int kKeys = knob::kTileN;
constexpr int kStages = knob::kKvStages;
constexpr int kResident = 1;
constexpr int kProducerRegisters = knob::kProducerRegisters;
constexpr int kRegisters = 65536 / kThreads / 8 * 8 * (kConsumers + 1);  // that a block begins with, of one thread a warpgroup
constexpr int kConsumerRegisters = (kRegisters - kProducerRegisters) / kConsumers / 8 * 8;

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
// What warpgroups with the same rows tell each other: of each lane half of its columns of O, and the bases and sums of its two rows.
constexpr int kGivenPieces = knob::kHeadDim / 16 + 1;  // of 16 bytes
constexpr int kGivenBytes = kSharesKeys ? 2 * kConsumers * kGivenPieces * 128 * 16 : 0;
constexpr int kDynamicBytes = kQBytes + kStages * (2 * kTileBytes + kTurnedBytes) + kGivenBytes + sizeof(Barriers);

struct Ring {
  unsigned char* q;       // (warpgroups, boxes, 64, row bytes)
  unsigned char* k;       // (stages, boxes, keys, row bytes)
  unsigned char* v;       // (stages, boxes, keys, row bytes)
  unsigned char* turned;  // (stages, panels, D + 8, panel keys)
  float4* given;          // (2 tiles, warpgroups, pieces, 128 threads)
  Barriers* barrier;

  __device__ __forceinline__ explicit Ring(unsigned char* memory)
      : q(memory), k(q + kQBytes), v(k + kStages * kTileBytes), turned(v + kStages * kTileBytes),
        given(reinterpret_cast<float4*>(turned + kStages * kTurnedBytes)), barrier(reinterpret_cast<Barriers*>(turned + kStages * kTurnedBytes + kGivenBytes)) {}
};

using Place = RingPosition<kStages>;

}  // namespace attention
