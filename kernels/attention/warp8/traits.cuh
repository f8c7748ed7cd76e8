// The traits of the kernel: tile, knobs, and the sizes that follow from them.
#pragma once

namespace attention::warp8 {

struct Traits {
  // ---- tile ----
  static constexpr int kHeadDim = HEAD_DIM;
  static constexpr int kBlockM = TILE_M;     // query rows of a block
  static constexpr int kBlockN = TILE_N;     // keys of a step
  static constexpr int kWarps = WARPS;       // each has TILE_M / WARPS rows
  static constexpr int kStages = KV_STAGES;  // steps of K and V in shared memory

  // ---- knobs ----
  static constexpr bool kE4M3Qk = USE_E4M3_QK;  // Q and K are E4M3, otherwise s8
  static constexpr bool kE4M3Pv = USE_E4M3_PV;  // P and V are E4M3, otherwise of 16 bits
  static constexpr bool kBf16 = USE_BF16;       // O, and P and V of 16 bits; otherwise FP16
  static constexpr bool kQInRegisters = USE_Q_IN_REGISTERS;
  static constexpr int kBlocksPerSm = RESIDENT_BLOCKS;  // of a multiprocessor

  // The growth of the row max, in log2 units, that needs no rescale of O. P is then up to 2^16, in
  // FP16 2^15. Row sums are in FP32, so that they do not overflow. In E4M3 it is none: the largest
  // P is then a power of two, which is not rounded.
  static constexpr float kGrowth = kE4M3Pv ? 0.0f : kBf16 ? 8.0f : 7.0f;
};

constexpr int kHeadDim = Traits::kHeadDim, kBlockM = Traits::kBlockM, kBlockN = Traits::kBlockN;
constexpr int kStages = Traits::kStages;
constexpr bool kE4M3Qk = Traits::kE4M3Qk, kE4M3Pv = Traits::kE4M3Pv, kBf16 = Traits::kBf16;
constexpr int kThreads = 32 * Traits::kWarps;
constexpr int kBlocksPerSm = Traits::kBlocksPerSm;

// ---- a warp: products of 16 rows and 8 columns, of a depth of 32 bytes ----
constexpr int kWarpRows = kBlockM / Traits::kWarps;
constexpr int kRowTiles = kWarpRows / 16;
constexpr int kDepthSteps = kHeadDim / 32;             // products of Q·K^T in a row
constexpr int kDepthKeys = kE4M3Pv ? 32 : 16;          // keys of a product of P·V
constexpr int kKeySteps = kBlockN / kDepthKeys;        // products of P·V in a row
constexpr int kScores = kBlockN / 2;                   // of a lane and a row tile: two rows
constexpr int kOutputs = kHeadDim / 2;                 // the same of O
static_assert(kRowTiles * 16 * Traits::kWarps == kBlockM);

// ---- factors: of Q for 4 rows and of K for 16 keys, so that a lane has one of each ----
constexpr int kFactorRows = 32, kQFactors = 8;  // rows of the same r % 8 share a factor
constexpr int kFactorKeys = 64, kKFactors = 4;  // keys of the same k % 8 / 2 share a factor
constexpr int kKeyGroups = kBlockN < kFactorKeys ? 1 : kBlockN / kFactorKeys;  // of a step

// s8: the sums of Q·K^T start with this integer. The bits of the sum are then those of the float
// kScoreOrigin + score: |score| is at most 127^2 * 256, less than 2^22.
constexpr int kScoreOriginBits = 0x4B400000;
constexpr float kScoreOrigin = kE4M3Qk ? 0.0f : 12582912.0f;  // 1.5 * 2^23

}  // namespace attention::warp8
