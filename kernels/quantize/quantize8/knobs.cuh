// The knobs of kernel.toml as constants. No other file reads the macros.
#pragma once

namespace knob {

constexpr int kThreads = THREADS;             // of a block
constexpr int kBlocksPerSM = BLOCKS_PER_SM;   // that registers must have room for
constexpr bool kV = USE_V;                    // V is quantised, which needs sm_89

}  // namespace knob
