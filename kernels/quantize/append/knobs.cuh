// The knobs of kernel.toml as constants. No other file reads the macros.
#pragma once

namespace knob {

constexpr int kThreads = THREADS;  // of a block

}  // namespace knob
