// The tile sizes of the kernel with scores in registers, and everything derived from them.
#pragma once

#include "../knobs.cuh"

namespace register_scores {

struct Sizes {
  // ---- tile of a block ----
  static constexpr int kHeadDim = knob::kHeadDim;
  static constexpr int kBlockM = knob::kTileM;   // query rows
  static constexpr int kBlockN = knob::kTileN;   // keys of one key group in a step
  static constexpr int kStages = knob::kStages;  // steps of K and V in the pipeline

  // ---- warps ----
  // KEY_WARPS neighbouring warps have the same rows and split the keys: each is one key group, with
  // every KEY_WARPS-th run of TILE_N keys. Producer warps, if any, come after the others.
  static constexpr int kWarps = knob::kWarps;  // that compute
  static constexpr int kKeyWarps = knob::kKeyWarps;
  static constexpr int kRowWarps = kWarps / kKeyWarps;
  static constexpr int kProducerWarps = knob::kWarpSpecialization ? knob::kProducerWarps : 0;
  static constexpr int kConsumerThreads = 32 * kWarps;
  static constexpr int kThreads = kConsumerThreads + 32 * kProducerWarps;
  static constexpr int kPersistentBlocks = knob::kPersistent ? 1 : 0;  // per multiprocessor
  static constexpr int kStepKeys = kKeyWarps * kBlockN;  // keys of the block in a step

  // ---- fragments of a warp ----
  static constexpr int kRowTiles = kBlockM / kRowWarps / 16;  // of 16 rows
  static constexpr int kScoreTiles = kBlockN / 8;  // fragments of S in a row tile
  static constexpr int kKeyBlocks = kBlockN / 16;  // of 16 keys: one operand A of P·V
  static constexpr int kOutTiles = kHeadDim / 8;   // fragments of O in a row tile
  static constexpr int kWordsK = kHeadDim / 16;    // words of a row of Q or K that a lane has
  static constexpr int kWordsV = kHeadDim / 32;    // words of a row of V that a lane has
  static constexpr int kChunks = kHeadDim / 16;    // 16-byte chunks of a row

  static_assert(kBlockM == kRowTiles * kRowWarps * 16 && (kRowTiles == 1 || kRowTiles == 2),
                "a warp has 16 or 32 rows");

  // ---- shared memory in bytes ----
  // The pipeline, and in its place the merge buffer; the decode table; barriers; the tile ticket.
  static constexpr int kTileBytes = kStepKeys * kHeadDim;  // codes of K, or of V, of a step
  static constexpr int kPipelineBytes = knob::kCpAsync ? kStages * 2 * kTileBytes : 0;
  static constexpr int kPartialBytes = kRowTiles * 16 * kHeadDim * 2;  // O of one warp in halves
  static constexpr int kMergeBytes =
      kKeyWarps > 1 ? kWarps * (kPartialBytes + kRowTiles * 16 * 8) : 0;
  static constexpr int kOffsetTable =
      kPipelineBytes > kMergeBytes ? kPipelineBytes : kMergeBytes;
  static constexpr int kOffsetBarriers = kOffsetTable + (knob::kKvLut ? 512 : 0);
  static constexpr int kOffsetTicket =
      kOffsetBarriers + (knob::kWarpSpecialization ? 2 * kStages * 8 : 0);
  static constexpr int kSharedBytes = kOffsetTicket + 16;
};

}  // namespace register_scores
