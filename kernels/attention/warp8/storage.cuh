// The shared memory of a block: Q, the stages of K and V, and the factors of their keys. Q, K
// and V are in swizzled rows.
#pragma once

#include <cstdint>

#include "include/ptx.cuh"
#include "traits.cuh"

namespace attention::warp8 {

constexpr int kQkRowBytes = kHeadDim;
constexpr int kVRowBytes = kE4M3Pv ? kHeadDim : 2 * kHeadDim;
constexpr int kQBytes = kBlockM * kQkRowBytes;
constexpr int kKBytes = kBlockN * kQkRowBytes;
constexpr int kStageBytes = kKBytes + kBlockN * kVRowBytes;
constexpr int kFactorBytes = 16 * kKeyGroups;  // of a stage

struct Storage {
  uint32_t base;  // address in the shared window

  __device__ __forceinline__ Storage() {
    extern __shared__ __align__(128) unsigned char memory[];
    base = ptx::shared_address(memory);
  }
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t k(int stage) const {
    return base + kQBytes + stage * kStageBytes;
  }
  __device__ __forceinline__ uint32_t v(int stage) const { return k(stage) + kKBytes; }
  // Of K; with E4M3 there are none.
  __device__ __forceinline__ uint32_t factors(int stage) const {
    return base + kQBytes + kStages * kStageBytes + stage * kFactorBytes;
  }
};

}  // namespace attention::warp8
