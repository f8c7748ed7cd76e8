// The traits of decode: knobs, and the sizes that follow from them.
#pragma once

#include <cstdint>

namespace attention::decode {

// The knobs of kernel.toml. No other file reads the macros.
struct Traits {
  static constexpr int kHeadDim = HEAD_DIM;  // columns of Q, K, V and O
  static constexpr int kRows = ROWS;         // query rows of a K/V head that a block computes at once
  static constexpr int kTileN = TILE_N;      // keys of a tile
  static constexpr int kGroups = CONSUMERS;  // consumer warpgroups
  static constexpr int kStages = KV_STAGES;  // tiles of K and V in the pipeline
  static constexpr int kCacheBytes = CACHE_BITS / 8;  // of an element of K and V
  static constexpr bool kBf16 = USE_BF16;             // K and V in 16 bits are BF16, or else FP16
  // The form of the products: 64 query rows are the rows of wgmma, or 64 keys are
  // (mainloop_rows.cuh, mainloop_keys.cuh).
  static constexpr bool kRowsAsM = USE_ROWS_AS_M;
};

struct Sizes : Traits {
  static constexpr int kGroupThreads = 128;
  static constexpr int kConsumers = kGroupThreads * kGroups;  // threads
  // With rows as M K and V in E4M3 are converted in shared memory, by a warpgroup of its own.
  static constexpr bool kConverts = kRowsAsM && kCacheBytes == 1;
  static constexpr int kConverters = kConverts ? kGroupThreads : 0;  // threads
  static constexpr int kFirstProducer = kConsumers + kConverters;    // thread
  static constexpr int kThreads = kFirstProducer + kGroupThreads;

  // The consumers take turns with the tiles. With rows as M each has 64 rows: with 128 rows each
  // takes all tiles.
  static constexpr int kRowGroups = kRowsAsM ? kRows / 64 : 1;
  static constexpr int kTileGroups = kGroups / kRowGroups;

  // The registers of a launch are equal parts of 65,536, multiples of 8: 168 of each thread with
  // three warpgroups, 128 with four. The producer and the finishers give what the consumers need.
  static constexpr bool kMovesRegisters = kGroups == 2 || kRows > 32;
  static constexpr int kLaunchRegisters = kThreads == 384 ? 168 : 128;
  static constexpr int kConsumerRegisters =
      kConverts        ? 184
      : kGroups == 3   ? kRows < 64 ? 144 : 152
      : kHeadDim < 256 ? kRowsAsM ? 208 : 216
                       : kRowsAsM ? 224 : 200;
  static constexpr int kConverterRegisters = kConverts ? 80 : 0;
  static constexpr int kProducerRegisters = kThreads / kGroupThreads * kLaunchRegisters -
                                            kGroups * kConsumerRegisters - kConverterRegisters;

  // V is converted beside K·Q^T, and K of the next tile beside P·V, where there are registers for
  // both.
  static constexpr bool kConvertsBeside =
      !(kGroups == 3 && kRows == 64) && !(kHeadDim == 256 && kRows >= 32);

  // wgmma has 64 rows: keys of S^T = K·Q^T, columns of O^T = V^T·P^T.
  static constexpr int kBlockM = 64;
  static constexpr int kKeyBlocks = kTileN / kBlockM;
  static constexpr int kColumnBlocks = kHeadDim / kBlockM;
  // A chunk of K or V is converted at once: 32 registers of operand A.
  static constexpr int kColumns = kHeadDim < 128 ? kHeadDim : 128;  // of a chunk
  static constexpr int kChunks = kHeadDim / kColumns;

  // A tile is loaded as boxes of up to 64 keys, so that a page holds whole boxes. A box has rows of
  // at most 128 bytes, the widest swizzle. Shared memory has the boxes of 64 keys together.
  static constexpr int kBoxN = 64;
  static constexpr int kLeastBoxN = 16;
  static constexpr int kRowBytes = kHeadDim * kCacheBytes;
  static constexpr int kBoxBytes = kRowBytes < 128 ? kRowBytes : 128;  // of a row
  static constexpr int kBoxColumns = kBoxBytes / kCacheBytes;
  static constexpr int kBoxesN = kTileN / kBoxN;
  static constexpr int kBoxesD = kRowBytes / kBoxBytes;
  static constexpr int kTileBytes = kTileN * kRowBytes;

  // Tiles that wgmma reads from shared memory, with rows as M: converted ones, or those of TMA.
  static constexpr int kOperandStages = kConverts ? 2 : kStages;

  // Stages that are filled before Q is there. More would delay Q, except that of 8 rows
  // (docs/experiments.md, D45).
  static constexpr int kEarlyStages = kRows == 8 && kHeadDim < 256 ? kStages : 2;

  static_assert(kHeadDim == 64 || kHeadDim == 128 || kHeadDim == 256, "head dims with a swizzle");
  static_assert(kTileN % kBoxN == 0, "whole boxes");
  static_assert(kTileN <= 32 * kLeastBoxN, "a lane of the producer has one box");
  static_assert(kGroups == 2 || kGroups == 3 && !kRowsAsM, "registers");
  static_assert(kRowsAsM || kCacheBytes == 1, "16 bits need no conversion in registers");
  static_assert(!kRowsAsM || kRows == 64 || kRows == 128, "rows of wgmma");
  // A warpgroup that waits for a stage must have had the tile before in it: the parity of a barrier
  // cannot tell a tile from the second next.
  static_assert(kStages % kTileGroups == 0, "each warpgroup has stages of its own");
};

}  // namespace attention::decode
