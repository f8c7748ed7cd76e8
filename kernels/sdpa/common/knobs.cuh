// The knobs of a variant as named constants.
//
// Every knob arrives as -DNAME=VALUE from kernel.toml by way of `attune build`; nothing else in the sources reads a macro.
// The static_asserts repeat the constraints of kernel.toml, so that a build by hand cannot break them either.
#pragma once

namespace knob {

constexpr int kHeadDim = HEAD_DIM;
constexpr int kTileM = TILE_M;  // query rows of one block
constexpr int kTileN = TILE_N;  // keys of one step
constexpr int kWarps = NUM_WARPS;

constexpr bool kWmmaQk = USE_WMMA_QK;
constexpr bool kWmmaPv = USE_WMMA_PV;
constexpr bool kCpAsync = USE_CP_ASYNC;
constexpr bool kXorSwizzle = USE_XOR_SWIZZLE;
constexpr bool kKvLut = USE_KV_LUT;
constexpr bool kDebugPrint = DEBUG_PRINT;

static_assert(!kWmmaPv || kWmmaQk, "USE_WMMA_PV needs USE_WMMA_QK");
static_assert(!kXorSwizzle || kCpAsync, "USE_XOR_SWIZZLE places the bytes that cp.async brings");
static_assert(kTileM * kTileN <= 4096, "TILE_M and TILE_N: shared memory");

}  // namespace knob
