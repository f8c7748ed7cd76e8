// The knobs of stage7a as named constants.
#pragma once

namespace knob {

constexpr int kHeadDim = HEAD_DIM;
constexpr int kTileM = TILE_M;                         // query rows of a block
constexpr int kTileN = TILE_N;                         // keys of a step of one warpgroup
constexpr int kKeyGroups = KEY_GROUPS;                 // warpgroups that split the keys among them
constexpr bool kLse = USE_LSE;                         // write the log-sum-exp of each row
constexpr bool kBf16Out = USE_BF16_OUT;                // O is BF16 instead of FP16
constexpr int kExp2CubicEighths = EXP2_CUBIC_EIGHTHS;  // cubic exp2 polynomial, of every 8
constexpr bool kRelaxedLoads = USE_RELAXED_LOADS;      // Q and K in program order

}  // namespace knob
