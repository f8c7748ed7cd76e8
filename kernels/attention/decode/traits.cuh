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
};

struct Sizes : Traits {
  static constexpr int kGroupThreads = 128;
  static constexpr int kConsumers = kGroupThreads * kGroups;  // threads
  static constexpr int kThreads = kConsumers + kGroupThreads;

  // The registers of a launch are equal parts of 65,536, multiples of 8: 168 of each thread with two
  // consumers, 128 with three. The producer and the finishers give what the consumers need.
  static constexpr bool kMovesRegisters = kGroups == 2 || kRows > 32;
  static constexpr int kLaunchRegisters = kGroups == 2 ? 168 : 128;
  static constexpr int kConsumerRegisters =
      kGroups == 3 ? kRows < 64 ? 144 : 152 : kHeadDim == 256 ? 200 : 216;
  static constexpr int kProducerRegisters =
      (kGroups + 1) * kLaunchRegisters - kGroups * kConsumerRegisters;

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

  // A tile is loaded as boxes of up to 64 keys, so that a page holds whole boxes. A box has at most
  // 128 columns, the widest swizzle. Shared memory has the boxes of 64 keys together.
  static constexpr int kBoxN = 64;
  static constexpr int kLeastBoxN = 16;
  static constexpr int kBoxBytes = kColumns;  // of a row
  static constexpr int kBoxesD = kHeadDim / kBoxBytes;
  static constexpr int kTileBytes = kTileN * kHeadDim;

  // Stages that are filled before Q is there. More would delay Q, except that of 8 rows
  // (docs/experiments.md, D45).
  static constexpr int kEarlyStages = kRows == 8 && kHeadDim < 256 ? kStages : 2;

  static_assert(kHeadDim == 64 || kHeadDim == 128 || kHeadDim == 256, "head dims with a swizzle");
  static_assert(kTileN % kBoxN == 0, "whole boxes");
  static_assert(kTileN <= 32 * kLeastBoxN, "a lane of the producer has one box");
  static_assert(kGroups == 2 || kGroups == 3, "registers");
  // A warpgroup that waits for a stage must have had the tile before in it: the parity of a barrier
  // cannot tell a tile from the second next.
  static_assert(kStages % kGroups == 0, "each warpgroup has stages of its own");
};

}  // namespace attention::decode
