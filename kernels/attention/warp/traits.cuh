// The traits of the kernel: tile, knobs, and the sizes that follow from them.
#pragma once

namespace attention::warp {

struct Traits {
  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = TILE_M;    // query rows of a block
  static constexpr int kBlockN = TILE_N;    // keys of a step
  static constexpr int kWarps = WARPS;
  static constexpr int kStages = KV_STAGES;  // steps of K and V in shared memory
  static constexpr int kKeyWarps = KEY_WARPS;  // warps that divide the keys of a step

  // ---- knobs ----
  static constexpr bool kBf16 = USE_BF16;               // Q, K, V, P and O; otherwise FP16
  static constexpr bool kQInRegisters = USE_Q_IN_REGISTERS;
  static constexpr int kBlocksPerSm = RESIDENT_BLOCKS;  // of a multiprocessor
  static constexpr bool kSplits = USE_SPLITS;           // blocks may divide the keys of a tile
  static constexpr bool kHasOptions = USE_OPTIONS;      // sequences, pages, windows, other scores
  static constexpr bool kPacksHeads = USE_PACKED_HEADS;  // rows of all query heads of a K/V head
  static constexpr bool kE4m3 = CACHE_BITS == 8;        // K and V, converted in registers

  // E4M3 becomes FP16, which sm_89 has an instruction for, so that Q and P are FP16 as well.
  static constexpr bool kBf16Products = kBf16 && !kE4m3;

  // The growth of the row max, in log2 units, that needs no rescale of O. P is then up to 2^16, in
  // FP16 2^15. Row sums are in FP32, so that they do not overflow.
  static constexpr float kGrowth = kBf16Products ? 8.0f : 7.0f;
};

constexpr int kHeadDim = Traits::kHeadDim, kBlockM = Traits::kBlockM, kBlockN = Traits::kBlockN;
constexpr int kStages = Traits::kStages;
constexpr bool kBf16 = Traits::kBf16, kBf16Products = Traits::kBf16Products;
constexpr bool kHasOptions = Traits::kHasOptions, kPacksHeads = Traits::kPacksHeads;
constexpr bool kSplits = Traits::kSplits, kE4m3 = Traits::kE4m3;
constexpr int kThreads = 32 * Traits::kWarps;
constexpr int kBlocksPerSm = Traits::kBlocksPerSm;
static_assert(!kPacksHeads && !kE4m3 || kHasOptions);

// ---- teams: the warps that have the same keys of a step ----
constexpr int kTeams = Traits::kKeyWarps;
constexpr int kTeamWarps = Traits::kWarps / kTeams;  // they divide the query rows
constexpr int kTeamThreads = 32 * kTeamWarps;
constexpr int kTeamKeys = kBlockN / kTeams;

// ---- a warp: products of 16 rows, 8 columns and a depth of 16 ----
constexpr int kWarpRows = kBlockM / kTeamWarps;
constexpr int kRowTiles = kWarpRows / 16;
constexpr int kDepthSteps = kHeadDim / 16;  // products of Q·K^T in a row
constexpr int kKeySteps = kTeamKeys / 16;   // products of P·V in a row
constexpr int kScores = kTeamKeys / 2;      // of a lane and a row tile: two rows
constexpr int kOutputs = kHeadDim / 2;      // the same of O
static_assert(kRowTiles * 16 * kTeamWarps == kBlockM);

}  // namespace attention::warp
