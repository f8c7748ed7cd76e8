// The knobs that every kernel here has, as named constants.
//
// A knob arrives as -DNAME=VALUE from kernel.toml by way of `attune build`; nothing reads such a macro but this file, the one of this name beside the
// kernels, and the one line in their .cu that picks between them. kernel.toml has the constraints.
#pragma once

namespace knob {

constexpr int kHeadDim = HEAD_DIM;
constexpr int kTileM = TILE_M;  // query rows of one block
constexpr int kTileN = TILE_N;  // keys of one step

}  // namespace knob
