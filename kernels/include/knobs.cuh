// The knobs that every kernel here has, as named constants.
//
// `attune build` passes each knob of kernel.toml as -DNAME=VALUE. Only the files named knobs.cuh
// read these macros, and the .cu files where the preprocessor must decide: an include, or the
// list of kernel parameters. kernel.toml has the constraints.
#pragma once

namespace knob {

constexpr int kHeadDim = HEAD_DIM;
constexpr int kTileM = TILE_M;  // query rows of a block
constexpr int kTileN = TILE_N;  // keys of a step

}  // namespace knob
