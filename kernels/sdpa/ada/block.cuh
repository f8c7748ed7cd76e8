// A block of the kernel with scores in registers: who its threads are, and what its shared memory is for.
//
// Of the NUM_WARPS warps that compute, KEY_WARPS neighbours have the same rows, and each of them another key group: every KEY_WARPS-th run of TILE_N
// keys. Producer warps, if there are any, come after them.
#pragma once

#include <cstdint>

#include "knobs.cuh"

namespace attention {

using namespace knob;

constexpr int kRowWarps = kWarps / kKeyWarps;
constexpr int kRowTiles = kTileM / kRowWarps / 16;  // of 16 rows, that a warp has
constexpr int kStepKeys = kKeyWarps * kTileN;       // keys that the block takes in one step
constexpr int kProducers = kWarpSpecialization ? kProducerWarps : 0;
constexpr int kConsumerThreads = 32 * kWarps;
constexpr int kThreads = kConsumerThreads + 32 * kProducers;
constexpr int kResident = kPersistent ? kBlocks : 0;  // blocks of a multiprocessor that take tile after tile

static_assert(kTileM == kRowTiles * kRowWarps * 16 && (kRowTiles == 1 || kRowTiles == 2), "a warp has 16 or 32 rows");

// Who a thread is.
struct Place {
  int warp, key_group, row_warp;
  int lane, g, t;
};

__device__ __forceinline__ Place place() {
  Place p;
  p.warp = threadIdx.x / 32u;
  p.key_group = p.warp % kKeyWarps;
  p.row_warp = p.warp / kKeyWarps;
  p.lane = threadIdx.x % 32u;
  p.g = p.lane / 4;
  p.t = p.lane % 4;
  return p;
}

// Shared memory: the ring, later the merge in its place; the table of codes; the barriers of the ring; the ticket of the work queue.
constexpr int kTileBytes = kStepKeys * kHeadDim;  // codes of K, or of V, of one step
constexpr int kRingBytes = kCpAsync ? kSlots * 2 * kTileBytes : 0;
constexpr int kPartialBytes = kRowTiles * 16 * kHeadDim * 2;  // O of one warp in halves
constexpr int kMergeBytes = kKeyWarps > 1 ? kWarps * (kPartialBytes + kRowTiles * 16 * 8) : 0;
constexpr int kOffsetTable = kRingBytes > kMergeBytes ? kRingBytes : kMergeBytes;
constexpr int kOffsetBarriers = kOffsetTable + (kKvLut ? 512 : 0);
constexpr int kOffsetTicket = kOffsetBarriers + (kWarpSpecialization ? 2 * kSlots * 8 : 0);
constexpr int kSharedBytes = kOffsetTicket + 16;

struct Shared {
  uint8_t* ring;     // (slots, K and V, keys of a step, D) codes
  uint4* partials;   // (warps, row tiles, halves of one, pieces, lanes) of 8 halves of O, in the ring's place
  float2* stats;     // (warps, rows): maximum and sum
  uint16_t* table;   // (256)
  uint64_t* full;    // (slots)
  uint64_t* empty;   // (slots)
  unsigned* ticket;
};

__device__ __forceinline__ Shared shared_layout(unsigned char* memory) {
  uint64_t* barriers = reinterpret_cast<uint64_t*>(memory + kOffsetBarriers);
  return {memory,
          reinterpret_cast<uint4*>(memory),
          reinterpret_cast<float2*>(memory + kWarps * kPartialBytes),
          reinterpret_cast<uint16_t*>(memory + kOffsetTable),
          barriers,
          barriers + kSlots,
          reinterpret_cast<unsigned*>(memory + kOffsetTicket)};
}

}  // namespace attention
