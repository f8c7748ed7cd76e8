// The converter warpgroup of the form with rows as M: E4M3 tiles, as TMA has loaded them, to FP16
// operands of wgmma.
#pragma once

#include "include/wgmma.cuh"
#include "shared_storage.cuh"

namespace attention::decode {

// Chunks of 16 columns of a key. Eight lanes have two keys, of which one has the other half of 128
// columns: their 16-byte accesses are in different banks before and after the conversion.
struct Chunk {
  static constexpr int kEach = Sizes::kTileBytes / 16 / Sizes::kGroupThreads;  // of a thread
  int key, column;

  __device__ __forceinline__ explicit Chunk(int i) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, odd = lane / 4 % 2;
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

__device__ __forceinline__ void store_chunks(uint8_t* tile, const uint4 (&codes)[Chunk::kEach]) {
#pragma unroll
  for (int i = 0; i < Chunk::kEach; i++) Chunk(i).store(tile, codes[i]);
  ptx::fence_proxy_async();  // wgmma reads them
}

// Converts the tiles of the block. K and V of a tile have barriers of their own: the consumers are
// done with K long before V. A template, because other forms have no operands.
template <class Storage>
__device__ __forceinline__ void convert_tiles(Storage& shared) {
  static_assert(Sizes::kHeadDim <= 128, "one box of columns");
  auto& to = shared.operands;
  const Cursor& cursor = shared.unit[0].cursor;
  int tiles = cursor.end - cursor.at;
  KvState from = {0};
  RingState<Sizes::kOperandStages> state = {0};
  for (; tiles > 0; tiles--) {
    ptx::mbarrier_try_wait_parity(&shared.full[from.stage], from.phase);
    const int valid = shared.valid[from.stage];
    uint4 k[Chunk::kEach], v[Chunk::kEach];
    if (valid > 0) {
#pragma unroll
      for (int i = 0; i < Chunk::kEach; i++) k[i] = Chunk(i).load(shared.k[from.stage]);
#pragma unroll
      for (int i = 0; i < Chunk::kEach; i++) {
        v[i] = Chunk(i).load(shared.v[from.stage]);
        // Bytes of V behind the last key may be anything, and 0 times NaN is NaN.
        if (Chunk(i).key >= valid) v[i] = {0, 0, 0, 0};
      }
    }
    arrive(&shared.empty[from.stage]);
    from.advance(1);
    ptx::mbarrier_try_wait_parity(&to.k_empty[state.stage], state.phase ^ 1);
    if (valid > 0) store_chunks(to.k[state.stage], k);
    arrive(&to.k_full[state.stage]);
    ptx::mbarrier_try_wait_parity(&to.v_empty[state.stage], state.phase ^ 1);
    if (valid > 0) store_chunks(to.v[state.stage], v);
    arrive(&to.v_full[state.stage]);
    state.advance(1);
  }
}

}  // namespace attention::decode
