// A tile of K or V in 16 bits in shared memory, converted by the four warps of a warpgroup to the K
// or V^T in E4M3 that wgmma multiplies.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../wgmma.cuh"
#include "../tile_sizes.cuh"
#include "convert.cuh"

namespace ptx {

// PTX ISA "ld.shared" and "st.shared" of 16 bytes.
__device__ __forceinline__ void ld_shared_16(uint32_t* d, uint32_t address) {
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void st_shared_16(uint32_t address, const uint32_t (&d)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};\n"
               :: "r"(address), "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3]) : "memory");
}

}  // namespace ptx

namespace stage7b {

// The thread in its warpgroup. Registers hold no addresses from tile to tile, so that these are
// computed again.
__device__ __forceinline__ unsigned converting_thread() { return ptx::opaque(threadIdx.x) % 128; }

// K: a unit of a lane, eight words, is 16 columns of a key. Eight lanes read eight keys, which the
// swizzle spreads over all banks.
struct KTile {
  static constexpr int kUnits = Sizes::kBlockN * Sizes::kHeadDim / 16 / 128;
  uint32_t from;  // shared address
  unsigned thread;

  __device__ __forceinline__ void read(uint32_t (&unit)[8], int i) const {
    const unsigned at = thread + 128 * i;
    const int row = at % Sizes::kBlockN, chunk = at / Sizes::kBlockN;
    const uint32_t box = from + chunk / 4 * Sizes::kBlockN * 128;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      ptx::ld_shared_16(&unit[4 * e], box + swizzled_offset<128>(row, chunk % 4 * 2 + e));
    }
  }
  __device__ __forceinline__ void write(uint32_t to, int i, const uint32_t (&codes)[4]) const {
    const unsigned at = thread + 128 * i;
    const int row = at % Sizes::kBlockN, chunk = at / Sizes::kBlockN;
    constexpr int kChunks = Sizes::kRowBytes / 16;
    ptx::st_shared_16(to + chunk / kChunks * Sizes::kBoxBytes +
                          swizzled_offset<Sizes::kRowBytes>(row, chunk % kChunks),
                      codes);
  }
};

// V: a unit is a block of 32 keys by 16 columns of a warp. Transposed, lane 4g+t has of column g
// keys 2t, 2t+1, 8+2t and 9+2t of every 16: four adjacent codes in the key order of P.
struct VTile {
  static constexpr int kKeyBlocks = Sizes::kBlockN / 32;
  static constexpr int kUnits = kKeyBlocks * Sizes::kHeadDim / 16 / 4;
  uint32_t from;  // shared address
  unsigned thread;

  __device__ __forceinline__ void read(uint32_t (&unit)[8], int i) const {
    const int lane = thread % 32, block = thread / 32 + 4 * i;
    const int key = 32 * (block % kKeyBlocks) + lane, columns = block / kKeyBlocks;
    const uint32_t box = from + columns / 4 * Sizes::kBlockN * 128;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      uint32_t matrices[4];
      ptx::ldmatrix_x4_trans(matrices, box + swizzled_offset<128>(key, columns % 4 * 2 + e));
#pragma unroll
      for (int word = 0; word < 4; ++word) unit[4 * e + word] = matrices[word];
    }
  }
  __device__ __forceinline__ void write(uint32_t to, int i, const uint32_t (&codes)[4]) const {
    const int lane = thread % 32, block = thread / 32 + 4 * i;
    const int key = 32 * (block % kKeyBlocks), columns = block / kKeyBlocks;
    const int row = 16 * columns + lane / 16 * 8 + lane % 8;
    ptx::stmatrix_x4(to + key / Sizes::kPanelKeys * Sizes::kPanelBytes +
                         swizzled_offset<Sizes::kPanelKeys>(
                             row, key % Sizes::kPanelKeys / 16 + lane / 8 % 2),
                     codes[0], codes[1], codes[2], codes[3]);
  }
};

// Converts a tile. Returns the largest magnitude of the warp's part.
template <typename Tile>
__device__ __forceinline__ uint32_t convert_tile(const Tile& tile, uint32_t to, uint32_t scale) {
  Magnitude magnitude;
  uint32_t units[Tile::kUnits][8];
#pragma unroll
  for (int i = 0; i < Tile::kUnits; ++i) tile.read(units[i], i);
#pragma unroll
  for (int i = 0; i < Tile::kUnits; ++i) {
    uint32_t codes[4];
#pragma unroll
    for (int word = 0; word < 8; ++word) magnitude.add(units[i][word], word);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      codes[word] = convert_four(units[i][2 * word], units[i][2 * word + 1], scale);
    }
    tile.write(to, i, codes);
  }
  return magnitude.of_warp();
}

}  // namespace stage7b
