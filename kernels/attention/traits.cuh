// The traits of a form of the kernel: its tile, its knobs, and the types that differ from form to
// form. Every template of this folder takes them as `Traits`.
//
// A form derives its traits from FormTraits in its own traits.cuh. Of its files only this one reads
// the knobs of kernel.toml (-DNAME=VALUE), and the .cu file where it lists parameters. decode, which
// has none of these templates, has its own Traits.
//
// Every form adds:
//   kHeadDim
//   kBlockM, kBlockN         tile: query rows of a block, keys of a step
//   kStages                  K/V tiles in the pipeline
//   kExp2LinearEighths       linear exp2 approximation, of every 8
//   kExp2Segments            its linear segments per octave
//   Problem, WorkTile        the arguments, and the part of them that a block computes at a time
//
// A form of forward<Traits> (kernel.cuh) adds too:
//   TileScheduler            the order of the work tiles
//   Mask                     which keys a row attends to
//   KvSource                 addresses of K and V
//   Query, Descales          Q as operand A, and the descale factors
//   Loads                    addresses of Q, for QueryInRegisters and QueryInShared (query.cuh)
//   Producer                 the producer warpgroup
//   Output                   the stores of O and of the log-sum-exp
//
// A form with softmax16.cuh adds kBf16 and kGrowth, the growth of the row max without a rescale.
#pragma once

namespace attention {

// What most forms have.
struct FormTraits {
  // ---- what the form is ----
  static constexpr bool kHasProducer = true;     // a producer warpgroup issues the loads
  static constexpr bool kConvertsQuery = false;  // Q in 16 bits, to E4M3 by the consumers
  static constexpr bool kHasSequences = false;   // sequences of different lengths: prefill

  // ---- knobs that only some forms vary ----
  static constexpr int kBlocksPerSm = 1;         // persistent blocks of a multiprocessor
  static constexpr int kKeyGroups = 1;           // consumers that split the keys among them
  static constexpr bool kQInShared = false;      // Q in shared memory instead of registers
  static constexpr bool kOverlap = false;        // P·V overlaps the next softmax step
  static constexpr bool kSkipMasked = false;     // consumers skip steps that are all masked
  static constexpr int kStaggerCycles = 0;       // start delay between consumer warpgroups
  static constexpr int kProducerRegisters = 56;  // per producer thread
  static constexpr bool kCheckerboard = false;   // linear exp2 alternates by row and key
  static constexpr bool kDirectV = false;        // V^T from global memory by registers
  static constexpr int kTransposeBatch = 0;      // blocks of V transposed at a time
};

template <class Traits>
using Problem = typename Traits::Problem;
template <class Traits>
using WorkTile = typename Traits::WorkTile;
template <class Traits>
using TileScheduler = typename Traits::TileScheduler;
template <class Traits>
using Mask = typename Traits::Mask;
template <class Traits>
using KvSource = typename Traits::KvSource;
template <class Traits>
using Query = typename Traits::Query;
template <class Traits>
using Descales = typename Traits::Descales;

}  // namespace attention
