// Q, K and V from global memory to halves in shared memory.
#pragma once

#include "../../include/e4m3.cuh"
#include "../../include/ptx.cuh"
#include "shared_storage.cuh"
#include "tile_sizes.cuh"

namespace shared_scores {

__device__ __forceinline__ uint2 decode4(const SharedStorage& smem, uint32_t codes) {
  if constexpr (knob::kKvLut) {
    return e4m3::decode4_lookup(codes, smem.table);
  } else {
    return e4m3::decode4(codes);
  }
}

// 16 codes to 16 halves in a row of q or kv.
__device__ __forceinline__ void decode_chunk(const SharedStorage& smem, uint4 codes, __half* row) {
  const uint2 a = decode4(smem, codes.x), b = decode4(smem, codes.y);
  const uint2 c = decode4(smem, codes.z), d = decode4(smem, codes.w);
  reinterpret_cast<uint4*>(row)[0] = make_uint4(a.x, a.y, b.x, b.y);
  reinterpret_cast<uint4*>(row)[1] = make_uint4(c.x, c.y, d.x, d.y);
}

// Loads and decodes rows [first, first + kTileRows) of a head; rows beyond `rows` are zeros.
template <int kTileRows>
__device__ __forceinline__ void load_direct(const SharedStorage& smem, const uint8_t* head,
                                            int first, int rows, __half* tile) {
  parallel_for<kTileRows * Sizes::kChunks>([&](unsigned i) {
    const int row = i / Sizes::kChunks, chunk = i % Sizes::kChunks;
    uint4 codes = make_uint4(0, 0, 0, 0);
    if (first + row < rows) {
      codes = *reinterpret_cast<const uint4*>(
          head + static_cast<size_t>(first + row) * Sizes::kHeadDim + chunk * 16);
    }
    decode_chunk(smem, codes, tile + row * Sizes::kPitchQ + chunk * 16);
  });
}

// Byte offset of 16-byte chunk `chunk` of a row in a staged tile. The swizzle spreads a column of
// chunks over the banks.
__device__ __forceinline__ int staged_offset(int row, int chunk) {
  const int position = knob::kXorSwizzle ? chunk ^ (row % Sizes::kChunks) : chunk;
  return row * Sizes::kHeadDim + position * 16;
}

// The staged codes of K (which = 0) or V (which = 1) of a step.
__device__ __forceinline__ uint8_t* staged_tile(const SharedStorage& smem, int step, int which) {
  return smem.stages + (step % Sizes::kStages * 2 + which) * Sizes::kTileBytes;
}

// Issues cp.async for K and V of a step; keys beyond the last are zeros.
__device__ __forceinline__ void copy_step_async(const SharedStorage& smem, const uint8_t* k,
                                                const uint8_t* v, int step, int keys) {
  parallel_for<Sizes::kBlockN * Sizes::kChunks>([&](unsigned i) {
    const int row = i / Sizes::kChunks, chunk = i % Sizes::kChunks;
    const int key = step * Sizes::kBlockN + row;
    const size_t from = static_cast<size_t>(key < keys ? key : 0) * Sizes::kHeadDim + chunk * 16;
    const uint32_t bytes = key < keys ? 16 : 0;
    ptx::cp_async_cg_16(staged_tile(smem, step, 0) + staged_offset(row, chunk), k + from, bytes);
    ptx::cp_async_cg_16(staged_tile(smem, step, 1) + staged_offset(row, chunk), v + from, bytes);
  });
}

__device__ __forceinline__ void decode_staged(const SharedStorage& smem, const uint8_t* staged) {
  parallel_for<Sizes::kBlockN * Sizes::kChunks>([&](unsigned i) {
    const int row = i / Sizes::kChunks, chunk = i % Sizes::kChunks;
    const uint4 codes = *reinterpret_cast<const uint4*>(staged + staged_offset(row, chunk));
    decode_chunk(smem, codes, smem.kv + row * Sizes::kPitchQ + chunk * 16);
  });
}

// Decodes K (which = 0) or V (which = 1) of a step into kv.
__device__ __forceinline__ void fill_kv(const SharedStorage& smem, const uint8_t* head, int step,
                                        int which, int keys) {
  if constexpr (knob::kCpAsync) {
    decode_staged(smem, staged_tile(smem, step, which));
  } else {
    load_direct<Sizes::kBlockN>(smem, head, step * Sizes::kBlockN, keys, smem.kv);
  }
}

}  // namespace shared_scores
