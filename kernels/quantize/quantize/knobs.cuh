// The knobs of kernel.toml as constants. No other file reads the macros.
#pragma once

namespace knob {

constexpr int kThreads = THREADS;               // of a block
constexpr int kChunks = CHUNKS;                 // 16-byte chunks that a thread has of a tile
constexpr int kRegisterTiles = REGISTER_TILES;  // tiles that a block keeps in registers
constexpr int kSharedTiles = SHARED_TILES;      // tiles that a block keeps in shared memory
constexpr int kBlocksPerSM = BLOCKS > 132 ? BLOCKS / 132 : 1;  // that registers must have room for

}  // namespace knob
