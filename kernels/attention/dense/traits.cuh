// The traits of stage7b: plain tensors, all of E4M3.
#pragma once

#include "../../include/problem.cuh"
#include "../producer.cuh"
#include "../query.cuh"
#include "../traits.cuh"
#include "loads.cuh"
#include "output.cuh"
#include "tiles.cuh"

namespace attention::dense {

struct Traits : FormTraits {
  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = TILE_M;
  static constexpr int kBlockN = TILE_N;
  static constexpr int kStages = KV_STAGES;
  static constexpr int kKeyGroups = KEY_GROUPS;
  static constexpr int kBlocksPerSm = RESIDENT_BLOCKS;

  // ---- knobs ----
  static constexpr bool kQInShared = USE_Q_IN_SHARED;
  static constexpr bool kOverlap = USE_OVERLAP;
  static constexpr bool kSkipMasked = USE_SKIP_MASKED;
  static constexpr int kStaggerCycles = STAGGER_CYCLES;
  static constexpr int kProducerRegisters = PRODUCER_REGISTERS;
  static constexpr int kExp2LinearEighths = EXP2_LINEAR_EIGHTHS;
  static constexpr int kExp2Segments = EXP2_SEGMENTS;
  static constexpr bool kCheckerboard = USE_CHECKERBOARD;
  static constexpr bool kDirectV = USE_DIRECT_V;
  static constexpr int kTransposeBatch = TRANSPOSE_BATCH;

  // ---- outputs ----
  static constexpr bool kLse = USE_LSE;           // write the log-sum-exp of each row
  static constexpr bool kBf16Out = USE_BF16_OUT;  // O is BF16 instead of FP16

  // ---- types ----
  using Problem = ::Problem;
  using WorkTile = ::WorkTile;
  using TileScheduler = dense::TileScheduler<Traits>;
  using Mask = dense::Mask<Traits>;
  using Loads = dense::Loads<Traits>;
  using KvSource = dense::KvSource<Traits>;
  using Query = std::conditional_t<kQInShared, QueryInShared<Traits>, QueryInRegisters<Traits>>;
  using Descales = HeadDescales;
  using Producer = attention::Producer<Traits>;
  using Output = dense::Output<Traits>;
};

}  // namespace attention::dense
