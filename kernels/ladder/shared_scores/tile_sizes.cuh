// The tile sizes of the kernel with scores in shared memory, and everything derived from them.
#pragma once

#include "../knobs.cuh"

namespace shared_scores {

struct Sizes {
  // ---- tile of a block ----
  static constexpr int kHeadDim = knob::kHeadDim;
  static constexpr int kBlockM = knob::kTileM;   // query rows
  static constexpr int kBlockN = knob::kTileN;   // keys of a step
  static constexpr int kStages = knob::kStages;  // K/V tiles in the cp.async pipeline

  // ---- threads ----
  static constexpr int kWarps = knob::kWarps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kPersistentBlocks = 0;  // one block per tile

  // ---- a warp's rows and a lane's elements ----
  static constexpr int kRows = kBlockM / kWarps;  // rows that a warp owns
  static constexpr int kScores = kBlockN / 32;    // scores of a row that a lane has
  static constexpr int kColumns = kHeadDim / 32;  // adjacent columns of O that a lane has
  static constexpr int kChunks = kHeadDim / 16;   // 16-byte chunks of a row of codes

  static_assert(kBlockM % 16 == 0 && kBlockN % 32 == 0, "tiles of 16x16 fragments and of warps");
  static_assert(kBlockM % kWarps == 0, "every warp owns the same number of rows");
  static_assert(kHeadDim == 64 || kHeadDim == 128, "a lane has two or four columns of O");

  // ---- row pitches in elements; 16 bytes of padding put eight rows into different banks ----
  static constexpr int kPitchQ = kHeadDim + 8;        // halves, of q and kv
  static constexpr int kPitchScores = kBlockN + 4;    // floats
  static constexpr int kPitchProduct = kHeadDim + 4;  // floats, P·V in the score buffer
  // Halves. A fused P has the pitch of its scores.
  static constexpr int kPitchP = knob::kFusedSoftmaxPv ? 2 * (kBlockN + 4) : kBlockN + 8;

  // ---- shared memory in bytes ----
  static constexpr int kTileBytes = kBlockN * kHeadDim;  // codes of a K or V tile
  static constexpr int kScoreFloats = kBlockM * kPitchScores;
  static constexpr int kProductFloats = knob::kWmmaPv ? kBlockM * kPitchProduct : 0;
  static constexpr int kOffsetKv = kBlockM * kPitchQ * 2;
  static constexpr int kOffsetScores = kOffsetKv + kBlockN * kPitchQ * 2;
  static constexpr int kAfterScores =
      kOffsetScores + 4 * (kScoreFloats > kProductFloats ? kScoreFloats : kProductFloats);
  static constexpr int kOffsetP = knob::kFusedSoftmaxPv ? kOffsetScores : kAfterScores;
  static constexpr int kOffsetStages =
      knob::kFusedSoftmaxPv ? kAfterScores : kOffsetP + kBlockM * kPitchP * 2;
  static constexpr int kOffsetTable =
      kOffsetStages + (knob::kCpAsync ? kStages * 2 * kTileBytes : 0);
  static constexpr int kSharedBytes = kOffsetTable + (knob::kKvLut ? 256 * 2 : 0);
};

}  // namespace shared_scores
