// The tile sizes that follow from the traits of a form: threads, registers, shared memory.
#pragma once

#include "traits.cuh"

namespace attention {

template <class Traits>
struct TileSizes {
  // ---- tile of a block ----
  static constexpr int kHeadDim = Traits::kHeadDim;
  static constexpr int kBlockM = Traits::kBlockM;  // query rows
  static constexpr int kBlockN = Traits::kBlockN;  // keys of a step
  static constexpr int kStages = Traits::kStages;  // K/V tiles in the pipeline

  // ---- warpgroups: the producer, then the consumers with 64 query rows each ----
  // Without a producer the consumers issue the loads.
  // With split keys all consumers have the same 64 rows and alternate over the steps.
  static constexpr bool kSplitKeys = Traits::kKeyGroups > 1;
  static constexpr int kConsumers = kSplitKeys ? Traits::kKeyGroups : kBlockM / 64;
  static constexpr int kFirstConsumer = Traits::kHasProducer ? 128 : 0;  // its first thread
  static constexpr int kThreads = kFirstConsumer + 128 * kConsumers;
  static constexpr int kBlocksPerSm = Traits::kBlocksPerSm;  // the kernel is persistent

  // ---- registers per thread ----
  static constexpr int kLaunchRegisters = 65536 / kBlocksPerSm / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = Traits::kProducerRegisters;
  static constexpr int kConsumerRegisters =
      (kLaunchRegisters * (kConsumers + 1) - kProducerRegisters) / kConsumers / 8 * 8;

  // ---- fragments of a consumer lane ----
  static constexpr int kScores = kBlockN / 2;  // of S, two rows
  static constexpr int kPartColumns = 64;      // columns of O per product of P·V
  static constexpr int kParts = kHeadDim / kPartColumns;

  // ---- Q, K and V in shared memory ----
  // TMA boxes with rows of at most 128 bytes, the widest swizzle.
  static constexpr int kRowBytes = kHeadDim < 128 ? kHeadDim : 128;
  static constexpr int kBoxes = kHeadDim / kRowBytes;
  static constexpr int kBoxBytes = kBlockN * kRowBytes;
  static constexpr int kTileBytes = kBlockN * kHeadDim;  // of K, or of V
  static constexpr int kVBytes = Traits::kDirectV ? 0 : kTileBytes;  // of V before the transpose
  static constexpr int kQBytes =  // in 16 bits, or E4M3
      (2 * Traits::kConvertsQuery + Traits::kQInShared) * kBlockM * kHeadDim;

  // ---- V^T in shared memory: D rows, then 8 rows of ones ----
  // Panels of at most 128 keys: a swizzled wgmma operand has rows of at most 128 bytes. With
  // TILE_N=192 half of the last panel is unused.
  static constexpr int kPanelKeys = kBlockN == 64 ? 64 : 128;
  static constexpr int kPanels = (kBlockN + kPanelKeys - 1) / kPanelKeys;
  static constexpr int kPanelBytes = (kHeadDim + 8) * kPanelKeys;
  static constexpr int kVtBytes = kPanels * kPanelBytes;

  // ---- merge of split keys ----
  // Each lane passes half of its columns of O, two row maxes and two row sums.
  static constexpr int kMergeChunks = kHeadDim / 16 + 1;  // of 16 bytes per lane
  static constexpr int kMergeBytes = kSplitKeys ? 2 * kConsumers * kMergeChunks * 128 * 16 : 0;

  static constexpr int kQBarriers = Traits::kConvertsQuery ? 4 * kConsumers : kConsumers;
  static constexpr int kBarrierBytes = 8 * (6 * kStages + kQBarriers);

  // ---- with sequences ----
  static constexpr int kRowKeys = Traits::kHasSequences ? 4 * kConsumers : 0;  // of 16 bytes
  static constexpr int kCursorBytes = 72;
  static constexpr int kSequenceBytes =
      Traits::kHasSequences ? 16 * kRowKeys + 4 * kStages + kCursorBytes : 0;

  static constexpr int kSharedBytes =
      kQBytes + kStages * (kTileBytes + kVBytes + kVtBytes) + kMergeBytes + kBarrierBytes +
      kSequenceBytes;

  // Whether Q and the first K and V are loaded before the block-wide barrier. Three consumers have
  // too few registers for Q until setmaxnreg. Two consumers with Q in shared memory have a wide O,
  // for which the compiler finds registers only without code before it.
  static constexpr bool kEarlyLoads = Traits::kQInShared ? kConsumers != 2 : kConsumers < 3;
};

// The scores of a step in a consumer lane: two rows.
template <class Traits>
using Scores = float[TileSizes<Traits>::kScores];

// The steps of a work tile.
template <class Traits>
__device__ __forceinline__ int num_n_blocks(const WorkTile<Traits>& tile) {
  using Sizes = TileSizes<Traits>;
  return (tile.key_end + Sizes::kBlockN - 1) / Sizes::kBlockN;
}

}  // namespace attention
