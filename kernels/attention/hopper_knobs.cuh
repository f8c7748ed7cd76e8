// The knobs that stage7a and stage7b share, as named constants.
#pragma once

#include "../include/knobs.cuh"

namespace knob {

constexpr int kKeyGroups = KEY_GROUPS;   // warpgroups of a block that split the keys among them
constexpr bool kLse = USE_LSE;           // write the log-sum-exp of each row
constexpr bool kBf16Out = USE_BF16_OUT;  // O is BF16 instead of FP16

}  // namespace knob
