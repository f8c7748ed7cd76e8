// The traits of pingpong: Q, K and V in BF16, products in BF16, and two consumer warpgroups that
// take turns with the tensor cores.
#pragma once

#include "attention/tile_sizes.cuh"
#include "attention/traits.cuh"
#include "problem.cuh"

namespace attention::pingpong {

struct Traits : FormTraits {
  static constexpr bool kBf16 = true;  // Q, K, V, P and O

  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = 128;  // two consumers
  static constexpr int kBlockN = TILE_N;
  static constexpr int kStages = K_STAGES;  // of K
  static constexpr int kVStages = V_STAGES;
  static constexpr int kProducerRegisters = 24;

  // ---- knobs ----
  static constexpr bool kQInShared = USE_Q_IN_SHARED;
  static constexpr bool kSumColumns = USE_SUM_COLUMNS;  // row sums by columns of ones in P·V
  static constexpr bool kPackEarly = USE_PACK_EARLY;    // P is packed before the wait for P·V
  static constexpr bool kTmaStore = USE_TMA_STORE;      // O by shared memory and TMA
  static constexpr bool kDynamicOrder = TILE_ORDER;     // of causal tiles
  static constexpr int kExp2LinearEighths = EXP2_LINEAR_EIGHTHS;
  static constexpr int kExp2Segments = 2;

  // The growth of the row max, in log2 units, that needs no rescale of O. P is then up to 2^16.
  static constexpr float kGrowth = 8.0f;

  // ---- types ----
  using Problem = pingpong::Problem;
  using WorkTile = ::WorkTile;
};

using Sizes = TileSizes<Traits>;
constexpr bool kBf16 = Traits::kBf16;

}  // namespace attention::pingpong
