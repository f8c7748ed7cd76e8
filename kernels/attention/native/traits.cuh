// The traits of native: Q, K and V in 16 bits, products in their type, no producer warpgroup. The
// work tiles are those of dense.
#pragma once

#include "attention/dense/tiles.cuh"
#include "attention/row_state.cuh"
#include "attention/shared_storage.cuh"
#include "attention/tile_sizes.cuh"
#include "attention/traits.cuh"
#include "problem.cuh"

namespace attention::native {

struct Traits : FormTraits {
  static constexpr bool kHasProducer = false;
  static constexpr bool kPacksHeads = false;  // a tile has one head

  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = TILE_M;  // of a team
  static constexpr int kBlockN = TILE_N;
  static constexpr int kStages = KV_STAGES;
  static constexpr int kTeams = TEAMS;  // groups of consumers with work tiles of their own

  // ---- knobs ----
  static constexpr bool kBf16 = USE_BF16;  // Q, K, V, P and O; otherwise FP16
  static constexpr bool kSkipMasked = USE_SKIP_MASKED;
  static constexpr int kExp2LinearEighths = EXP2_LINEAR_EIGHTHS;
  static constexpr int kExp2Segments = EXP2_SEGMENTS;

  // The growth of the row max, in log2 units, that needs no rescale of O. P is then up to 2^16, in
  // FP16 2^15. Row sums are in FP32, so that they do not overflow.
  static constexpr float kGrowth = kBf16 ? 8.0f : 7.0f;

  // ---- types ----
  using Problem = native::Problem;
  using WorkTile = ::WorkTile;
  using TileScheduler = dense::TileScheduler<Traits>;
};

using Sizes = TileSizes<Traits>;
using KvState = attention::KvState<Traits>;
using TileScheduler = Traits::TileScheduler;
constexpr bool kBf16 = Traits::kBf16;

}  // namespace attention::native
