// The traits of mixed: Q in 16 bits, which the consumers convert; K and V in E4M3.
#pragma once

#include "attention/dense/loads.cuh"
#include "attention/dense/tiles.cuh"
#include "attention/producer.cuh"
#include "attention/traits.cuh"
#include "output.cuh"
#include "problem.cuh"
#include "query.cuh"

namespace attention::mixed {

struct Traits : FormTraits {
  static constexpr bool kConvertsQuery = true;

  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = TILE_M;
  static constexpr int kBlockN = TILE_N;
  static constexpr int kStages = KV_STAGES;

  // ---- knobs ----
  static constexpr int kStaggerCycles = STAGGER_CYCLES;
  static constexpr int kExp2LinearEighths = EXP2_LINEAR_EIGHTHS;
  static constexpr int kExp2Segments = EXP2_SEGMENTS;

  // ---- types ----
  using Problem = mixed::Problem;
  using WorkTile = ::WorkTile;
  using TileScheduler = dense::TileScheduler<Traits>;
  using Mask = dense::Mask<Traits>;
  using KvSource = dense::KvSource<Traits>;
  using Query = mixed::Query<Traits>;
  using Descales = KvDescales;
  using Producer = attention::Producer<Traits>;
  using Output = mixed::Output<Traits>;
};

}  // namespace attention::mixed
