// The traits of pingpong: Q, K and V in 16 bits, products in their type, and two consumer
// warpgroups that take turns with the tensor cores.
#pragma once

#include "attention/tile_sizes.cuh"
#include "attention/traits.cuh"
#include "loads.cuh"
#include "output.cuh"
#include "problem.cuh"
#include "softmax.cuh"
#include "tiles.cuh"

namespace attention::pingpong {

struct Traits : FormTraits {
  static constexpr bool kPacksHeads = true;   // a tile may have several heads of a group
  static constexpr bool kHasSoftcap = false;  // scores may be capped
  static constexpr bool kHasBias = false;     // ALiBi slopes, and a tree mask

  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = TILE_M;  // two consumers
  static constexpr int kBlockN = TILE_N;
  static constexpr int kStages = K_STAGES;  // of K
  static constexpr int kVStages = V_STAGES;
  static constexpr int kProducerRegisters = 24;

  // ---- knobs ----
  static constexpr bool kBf16 = USE_BF16;  // Q, K, V, P and O; otherwise FP16
  static constexpr bool kQInShared = USE_Q_IN_SHARED;
  static constexpr bool kSumColumns = USE_SUM_COLUMNS;  // row sums by columns of ones in P·V
  static constexpr bool kPackEarly = USE_PACK_EARLY;    // P is packed before the wait for P·V
  static constexpr int kExp2LinearEighths = EXP2_LINEAR_EIGHTHS;
  static constexpr int kExp2Segments = 2;

  // The growth of the row max, in log2 units, that needs no rescale of O. P is then up to 2^16. In
  // FP16 P, or the sum of eight that are added in 16 bits, is up to 2^15.
  static constexpr float kGrowth = kBf16 ? 8.0f : kSumColumns ? 7.0f : 4.0f;

  // ---- types ----
  using Problem = pingpong::Problem;
  using WorkTile = pingpong::Tile<Traits>;
  using TileScheduler = pingpong::TileScheduler<Traits>;
  using Mask = pingpong::Mask<Traits>;
  using Loads = pingpong::Loads<Traits>;
  using Output = pingpong::Output<Traits>;
};

}  // namespace attention::pingpong
