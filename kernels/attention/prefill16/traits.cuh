// The traits of prefill16: pingpong on sequences of different lengths, strided, packed or paged.
#pragma once

#include "attention/traits.cuh"
#include "loads.cuh"
#include "mask.cuh"
#include "output.cuh"
#include "problem.cuh"
#include "tiles.cuh"

namespace attention::prefill16 {

struct Traits : FormTraits {
  static constexpr bool kHasSequences = true;
  static constexpr int kElementBytes = 2;         // of Q, K and V
  static constexpr bool kLoadsEmptyTiles = true;  // a tile without keys has a step
  static constexpr bool kPacksHeads = false;
  static constexpr bool kHasSoftcap = true;
  static constexpr bool kHasBias = true;

  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = TILE_M;  // two consumers
  static constexpr int kBlockN = TILE_N;
  static constexpr int kStages = K_STAGES;  // of K
  static constexpr int kVStages = V_STAGES;
  static constexpr int kProducerRegisters = PRODUCER_REGISTERS;

  // ---- knobs ----
  static constexpr bool kBf16 = USE_BF16;  // Q, K, V, P and O; otherwise FP16
  static constexpr bool kQInShared = USE_Q_IN_SHARED;
  static constexpr bool kSumColumns = USE_SUM_COLUMNS;  // row sums by columns of ones in P·V
  static constexpr bool kPackEarly = USE_PACK_EARLY;    // P is packed before the wait for P·V
  static constexpr int kExp2LinearEighths = 0;          // all exponentials are exact
  static constexpr int kExp2Segments = 1;

  // As that of pingpong.
  static constexpr float kGrowth = kBf16 ? 8.0f : kSumColumns ? 7.0f : 4.0f;

  // ---- types ----
  using Problem = prefill16::Problem;
  using WorkTile = prefill16::Tile<Traits>;
  using TileScheduler = prefill16::TileScheduler<Traits>;
  using Mask = prefill16::Mask<Traits>;
  using Loads = prefill16::Loads<Traits>;
  using Output = prefill16::Output<Traits>;
};

}  // namespace attention::prefill16
