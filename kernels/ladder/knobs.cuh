// The knobs of the mma.sync kernels as named constants.
//
// `attune build` passes each knob of kernel.toml as -DNAME=VALUE. Only this file reads these
// macros, and sdpa.cu where the preprocessor must decide. kernel.toml has the constraints.
#pragma once

namespace knob {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
constexpr bool kChipHasFp8Mma = true;
#else
constexpr bool kChipHasFp8Mma = false;
#endif

constexpr int kHeadDim = HEAD_DIM;
constexpr int kTileM = TILE_M;  // query rows of a block
constexpr int kTileN = TILE_N;  // keys of a step

constexpr int kWarps = NUM_WARPS;     // warps of a block that compute
constexpr int kKeyWarps = KEY_WARPS;  // of these, warps that split the keys
constexpr int kProducerWarps = NUM_PRODUCER_WARPS;

constexpr bool kWmmaQk = USE_WMMA_QK;
constexpr bool kWmmaPv = USE_WMMA_PV;
constexpr bool kCpAsync = USE_CP_ASYNC;
constexpr int kStages = USE_THREE_STAGE_PIPE ? 3 : 2;   // K/V tiles in the cp.async pipeline
constexpr bool kFusedSoftmaxPv = USE_FUSED_SOFTMAX_PV;  // P overwrites its scores
constexpr bool kWarpSpecialization = USE_WARP_SPECIALIZATION;
constexpr bool kPersistent = USE_PERSISTENT_CTA;
constexpr bool kFp8Mma = USE_FP8_MMA && kChipHasFp8Mma;
constexpr bool kXorSwizzle = USE_XOR_SWIZZLE;
constexpr int kExp2CubicEighths = USE_FAST_EXP ? 4 : 0;  // cubic exp2 polynomial, of every 8
constexpr bool kKvLut = USE_KV_LUT;                      // decode E4M3 by table lookup
constexpr bool kDebugPrint = DEBUG_PRINT;

}  // namespace knob
