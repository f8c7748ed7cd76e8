// The traits of prefill: sequences of different lengths, strided, packed or paged.
#pragma once

#include "attention/query.cuh"
#include "attention/traits.cuh"
#include "loads.cuh"
#include "output.cuh"
#include "problem.cuh"
#include "producer.cuh"
#include "tiles.cuh"

namespace attention::prefill {

struct Traits : FormTraits {
  static constexpr bool kHasSequences = true;
  static constexpr int kElementBytes = 1;          // of Q, K and V
  static constexpr bool kLoadsEmptyTiles = false;  // a tile without keys has no step

  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = TILE_M;
  static constexpr int kBlockN = TILE_N;
  static constexpr int kStages = KV_STAGES;

  // ---- knobs ----
  static constexpr bool kQInShared = USE_Q_IN_SHARED;
  static constexpr bool kSkipMasked = USE_SKIP_MASKED;
  static constexpr int kStaggerCycles = STAGGER_CYCLES;
  static constexpr int kProducerRegisters = PRODUCER_REGISTERS;
  static constexpr int kExp2LinearEighths = EXP2_LINEAR_EIGHTHS;
  static constexpr int kExp2Segments = EXP2_SEGMENTS;
  static constexpr int kTransposeBatch = TRANSPOSE_BATCH;

  // ---- types ----
  using Problem = prefill::Problem;
  using WorkTile = prefill::WorkTile;
  using TileScheduler = prefill::TileScheduler<Traits>;
  using Mask = prefill::Mask<Traits>;
  using Loads = prefill::Loads<Traits>;
  using KvSource = prefill::KvSource<Traits>;
  using Query = std::conditional_t<kQInShared, QueryInShared<Traits>, QueryInRegisters<Traits>>;
  using Descales = HeadDescales;
  using Producer = prefill::Producer<Traits>;
  using Output = prefill::Output<Traits>;
};

}  // namespace attention::prefill
