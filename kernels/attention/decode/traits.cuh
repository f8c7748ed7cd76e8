// The traits of decode: knobs, and the sizes that follow from them.
#pragma once

#include <cstdint>

namespace attention::decode {

// The knobs of kernel.toml. No other file reads the macros.
struct Traits {
  static constexpr int kHeadDim = HEAD_DIM;            // columns of Q, K, V and O
  static constexpr int kTileN = TILE_N;                // keys of a tile
  static constexpr int kStages = KV_STAGES;            // tiles of K and V in the pipeline
  static constexpr int kBlocksPerSm = BLOCKS_PER_SM;   // blocks that share a multiprocessor
  static constexpr bool kQInShared = USE_Q_IN_SHARED;  // Q is read from shared memory in every step
  static constexpr bool kQInHalves = Q_BITS == 16;     // Q is FP16 or BF16, otherwise E4M3
};

struct Sizes : Traits {
  static constexpr int kRows = 16;      // query rows of mma.m16n8k16, some of them padding
  static constexpr int kWarpN = 32;     // keys of a consumer warp in a tile: two k-steps of P·V
  static constexpr int kWarps = kTileN / kWarpN;  // consumer warps
  static constexpr int kConsumers = 32 * kWarps;  // threads
  static constexpr int kThreads = kConsumers + 32;

  // Converted queries go through shared memory. Loaded by 16 bytes, they are in registers as mma
  // wants them; ptxas would copy those of two branches in every step.
  static constexpr bool kQStaged = kQInShared || kQInHalves;

  // A tile is loaded as boxes of 64 keys, so that a page of 64 keys or more holds whole boxes. A
  // box has at most 128 columns, the widest swizzle.
  static constexpr int kBoxN = 64;
  static constexpr int kBoxBytes = kHeadDim < 128 ? kHeadDim : 128;  // of a row
  static constexpr int kBoxesN = kTileN / kBoxN;
  static constexpr int kBoxesD = kHeadDim / kBoxBytes;
  static constexpr int kTileBytes = kTileN * kHeadDim;

  static_assert(kHeadDim == 64 || kHeadDim == 128 || kHeadDim == 256, "head dims with a swizzle");
  static_assert(kQInShared || kHeadDim < 256, "O of 256 columns leaves no registers for Q");
  static_assert(kTileN % kBoxN == 0, "whole boxes");
};

}  // namespace attention::decode
