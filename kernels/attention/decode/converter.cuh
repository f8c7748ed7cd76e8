// The converter warpgroup of the form with rows as M: E4M3 tiles, as TMA has loaded them, to FP16
// operands of wgmma.
#pragma once

#include "include/wgmma.cuh"
#include "shared_storage.cuh"

namespace attention::decode {

// Chunks of 16 columns of a key. Eight lanes have two keys, of which one has the other half of 128
// columns: their 16-byte accesses are in different banks before and after the conversion.
struct Chunk {
  static constexpr int kWarps = 2;  // that convert K, and V
  static constexpr int kEach = Sizes::kTileBytes / 16 / (32 * kWarps);  // of a thread
  int key, column;

  __device__ __forceinline__ explicit Chunk(int i) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % kWarps, odd = lane / 4 % 2;
    key = lane / 8 * 2 + odd;
    column = lane % 4 * 16;
    if constexpr (Sizes::kHeadDim == 128) {
      key += (warp * (kEach / 2) + i / 2) * 8;
      column += (odd ^ i % 2) * 64;
    } else {
      key += (warp * kEach + i) * 8;
    }
  }

  __device__ __forceinline__ uint4 load(const uint8_t* tile) const {
    return *reinterpret_cast<const uint4*>(tile + swizzled(key, column));
  }

  // As 32 bytes of a panel of 64 columns.
  __device__ __forceinline__ void store(uint8_t* tile, const uint4& codes) const {
    uint8_t* panel = tile + column / 64 * Sizes::kTileN * 128;
    const int first = column % 64 / 8;
    const uint2 a = ptx::cvt_rn_f16x2_e4m3x2(codes.x), b = ptx::cvt_rn_f16x2_e4m3x2(codes.y);
    const uint2 c = ptx::cvt_rn_f16x2_e4m3x2(codes.z), d = ptx::cvt_rn_f16x2_e4m3x2(codes.w);
    *reinterpret_cast<uint4*>(panel + swizzled_offset<128>(key, first)) = {a.x, a.y, b.x, b.y};
    *reinterpret_cast<uint4*>(panel + swizzled_offset<128>(key, first + 1)) = {c.x, c.y, d.x, d.y};
  }
};

// Converts the tiles of the block: two warps those of K, two those of V. So K of later tiles does
// not wait until the consumers are done with V. A template, because other forms have no operands.
template <class Storage>
__device__ __forceinline__ void convert_tiles(Storage& shared) {
  static_assert(Sizes::kHeadDim <= 128, "one box of columns");
  const bool is_v = __shfl_sync(~0u, threadIdx.x / 32 % 4 / Chunk::kWarps, 0);
  auto& to = shared.operands;
  uint64_t* full = is_v ? to.v_full : to.k_full;
  uint64_t* empty = is_v ? to.v_empty : to.k_empty;
  const Cursor& cursor = shared.unit[0].cursor;
  int tiles = cursor.end - cursor.at;
  KvState from = {0};
  RingState<Sizes::kOperandStages> state = {0};
  for (; tiles > 0; tiles--) {
    wait(&shared.full[from.stage], from.phase);
    const int valid = shared.valid[from.stage];
    uint4 codes[Chunk::kEach];
    if (valid > 0) {
      const uint8_t* tile = is_v ? shared.v[from.stage] : shared.k[from.stage];
#pragma unroll
      for (int i = 0; i < Chunk::kEach; i++) {
        codes[i] = Chunk(i).load(tile);
        // Bytes of V behind the last key may be anything, and 0 times NaN is NaN.
        if (Chunk(i).key >= valid) codes[i] = {0, 0, 0, 0};
      }
    }
    arrive(&shared.empty[from.stage]);
    from.advance(1);
    wait(&empty[state.stage], state.phase ^ 1);
    if (valid > 0) {
      uint8_t* tile = is_v ? to.v[state.stage] : to.k[state.stage];
#pragma unroll
      for (int i = 0; i < Chunk::kEach; i++) Chunk(i).store(tile, codes[i]);
      ptx::fence_proxy_async();  // wgmma reads it
    }
    arrive(&full[state.stage]);
    state.advance(1);
  }
}

}  // namespace attention::decode
