// The knobs of the kernels for mma.sync as named constants.
#pragma once

#include "../common/knobs.cuh"

namespace knob {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
constexpr bool kChipHasFp8Mma = true;
#else
constexpr bool kChipHasFp8Mma = false;
#endif

constexpr int kWarps = NUM_WARPS;
constexpr int kKeyWarps = KEY_WARPS;  // of which so many share out the keys

constexpr int kBlocks = BLOCKS_PER_SM;  // on a multiprocessor, for which the compiler leaves registers

constexpr bool kWmmaQk = USE_WMMA_QK;
constexpr bool kWmmaPv = USE_WMMA_PV;
constexpr bool kCpAsync = USE_CP_ASYNC;
constexpr bool kFusedSoftmaxPv = USE_FUSED_SOFTMAX_PV;
constexpr bool kWarpSpecialization = USE_WARP_SPECIALIZATION;
constexpr bool kPersistent = USE_PERSISTENT_CTA;
constexpr bool kFp8Mma = USE_FP8_MMA && kChipHasFp8Mma;
constexpr bool kXorSwizzle = USE_XOR_SWIZZLE;
constexpr int kPolynomialEighths = USE_FAST_EXP ? 4 : 0;  // of the exponentials
constexpr bool kKvLut = USE_KV_LUT;
constexpr bool kDebugPrint = DEBUG_PRINT;

constexpr int kSlots = USE_THREE_STAGE_PIPE ? 3 : 2;  // tiles of K and V in the ring that cp.async fills
constexpr int kProducerWarps = NUM_PRODUCER_WARPS;
constexpr int kPromoteKeys = PROMOTE_KEYS;

}  // namespace knob
