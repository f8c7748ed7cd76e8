// The knobs of stage7a as named constants.
#pragma once

#include "../knobs.cuh"

namespace knob {

constexpr int kExp2CubicEighths = EXP2_CUBIC_EIGHTHS;  // cubic exp2 polynomial, of every 8
constexpr bool kRelaxedLoads = USE_RELAXED_LOADS;      // Q and K in program order
constexpr bool kLateV = USE_LATE_V;                    // V behind the proxy fence of Q

}  // namespace knob
