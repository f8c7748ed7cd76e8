// The knobs of stage7a as named constants.
#pragma once

#include "../../hopper_knobs.cuh"

namespace knob {

constexpr int kExp2CubicEighths = EXP2_CUBIC_EIGHTHS;  // cubic exp2 polynomial, of every 8
constexpr bool kRelaxedLoads = USE_RELAXED_LOADS;      // Q and K in program order

}  // namespace knob
