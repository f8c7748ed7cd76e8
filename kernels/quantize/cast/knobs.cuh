// The knobs of kernel.toml as constants. No other file reads the macros.
#pragma once

namespace knob {

constexpr int kThreads = THREADS;  // of a block
constexpr int kChunks = CHUNKS;    // 16-byte chunks that a thread has of a tile

}  // namespace knob
