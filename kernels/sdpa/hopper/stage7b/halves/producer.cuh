// The producer warpgroup of kernels/fused: TMA loads of K and V in 16 bits, and their conversion to
// the K and V^T in E4M3 that the consumers multiply.
//
// Tiles of K and V alternate in a ring of STAGING_TILES slots. The four warps convert a tile
// together. Each finds the largest magnitude of its part, the warps exchange them, and the largest
// gives the scale of the tile.
#pragma once

#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../../wgmma.cuh"
#include "../form.cuh"
#include "../schedule.cuh"
#include "../shared_storage.cuh"
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

constexpr int kProducerBarrier = 8;  // behind those of the consumers

// Issues the loads of all tiles, in their order. One thread. A mark after the last tile ends the loop
// of the converting warps.
struct StagingLoads {
  LoadCursor load;
  bool first = true;  // the next step is the first of its work tile

  // Loads the next tile, which is of V or of K, to a slot.
  template <bool kIsV>
  __device__ __forceinline__ void issue(const Problem& p, const TileScheduler& scheduler,
                                        const SharedStorage& smem, const TensorMap* map, int slot) {
    Staging& staging = *smem.staging;
    if (!load.valid()) {
      staging.mark[slot] = Staging::kEnd;
      ptx::mbarrier_arrive(&staging.full[slot]);
      return;
    }
    staging.mark[slot] = first ? Staging::kFirst : Staging::kNext;
    ptx::mbarrier_arrive_expect_tx(&staging.full[slot], Sizes::kStagedBytes);
    load.source.issue_load(smem.staged + slot * Sizes::kStagedBytes, map, p, load.n_block,
                           &staging.full[slot]);
    if constexpr (kIsV) {
      first = load.n_block == 0;
      load.next(p, scheduler);
    }
  }
};

// A tile as the lanes of the producer read it, in units of eight words. Units that the registers
// cannot hold are read twice: for the largest magnitude, and for the conversion.
template <typename Tile>
struct Converter {
  static constexpr bool kHold = 8 * Tile::kUnits + 48 <= Sizes::kProducerRegisters;
  uint32_t held[kHold ? Tile::kUnits : 1][8];

  __device__ __forceinline__ uint32_t magnitude(const Tile& tile) {
    Magnitude magnitude;
#pragma unroll
    for (int i = 0; i < Tile::kUnits; ++i) {
      uint32_t(&unit)[8] = held[kHold ? i : 0];
      tile.read(unit, i);
#pragma unroll
      for (int word = 0; word < 8; ++word) magnitude.add(unit[word], word);
    }
    return magnitude.of_warp();
  }

  __device__ __forceinline__ void convert(const Tile& tile, uint32_t to, uint32_t scale) {
#pragma unroll
    for (int i = 0; i < Tile::kUnits; ++i) {
      uint32_t(&unit)[8] = held[kHold ? i : 0];
      if constexpr (!kHold) tile.read(unit, i);
      uint32_t codes[4];
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        codes[word] = convert_four(unit[2 * word], unit[2 * word + 1], scale);
      }
      tile.write(to, i, codes);
    }
  }
};

// The thread of the producer. Few registers hold no addresses from tile to tile, so that these are
// computed again.
__device__ __forceinline__ unsigned producer_thread() {
  return (Sizes::kProducerRegisters < 40 ? ptx::opaque(threadIdx.x) : threadIdx.x) % 128;
}

// K: a unit is 16 columns of a key. Eight lanes read eight keys, which the swizzle spreads over all
// banks.
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

// V: a unit is a block of 32 keys by 16 columns of a warp. Transposed, lane 4g+t has of column g keys
// 2t, 2t+1, 8+2t and 9+2t of every 16: four adjacent codes in the key order of P.
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

// The largest magnitude of a tile, from those of the four warps. K and V have buffers of their own:
// a warp writes the next one only after all have read the last one of the same buffer.
__device__ __forceinline__ uint32_t exchange_magnitude(Staging& staging, bool is_v,
                                                       uint32_t of_warp) {
  if (threadIdx.x % 32 == 0) staging.magnitude[is_v][threadIdx.x / 32] = of_warp;
  ptx::barrier_sync(kProducerBarrier, 128);
  const uint4 all = *reinterpret_cast<const uint4*>(staging.magnitude[is_v]);
  return max(max(all.x, all.y), max(all.z, all.w));
}

// The producer's side of the conversion.
struct ConversionLoop {
  const Problem& p;
  const TileScheduler& scheduler;
  const SharedStorage& smem;
  const TensorMap *k_map, *v_map;
  StagingLoads& loads;
  PipelineState<Sizes::kStaging> staged;
  KvState state;
  uint32_t v_magnitude = 0;  // of the steps of the work tile until now

  __device__ __forceinline__ void run() {
    while (convert<KTile, false>()) {
      convert<VTile, true>();
      state.advance();
    }
  }

 private:
  // Loads the next tile to the slot of a tile that all warps have read. With an even number of slots
  // both are of K, or both of V.
  template <bool kIsV>
  __device__ __forceinline__ void issue_next() {
    constexpr bool kNextIsV = Sizes::kStaging % 2 ? !kIsV : kIsV;
    if (threadIdx.x == 0) {
      loads.issue<kNextIsV>(p, scheduler, smem, kNextIsV ? v_map : k_map, staged.stage);
    }
    __syncwarp();
  }

  // Converts the next tile. Returns whether there was one.
  template <typename Tile, bool kIsV>
  __device__ __forceinline__ bool convert() {
    Staging& staging = *smem.staging;
    Barriers& barriers = *smem.barriers;
    ptx::mbarrier_try_wait_parity(&staging.full[staged.stage], staged.phase);
    const int mark = staging.mark[staged.stage];
    if (!kIsV && mark == Staging::kEnd) return false;
    const Tile tile = {ptx::shared_address(smem.staged) + staged.stage * Sizes::kStagedBytes,
                       producer_thread()};
    Converter<Tile> converter;
    const uint32_t magnitude = exchange_magnitude(staging, kIsV, converter.magnitude(tile));
    if constexpr (Converter<Tile>::kHold) issue_next<kIsV>();
    const uint32_t empty_phase = state.phase ^ 1;
    if constexpr (kIsV) {
      ptx::mbarrier_try_wait_parity(&barriers.v_t_empty[state.stage], empty_phase);
      convert_v(converter, tile, magnitude, mark == Staging::kFirst);
    } else {
      ptx::mbarrier_try_wait_parity(&barriers.k_empty[state.stage], empty_phase);
      const Scale scale(magnitude);
      if (threadIdx.x == 0) staging.k_descale[state.stage] = scale.inverse();
      converter.convert(tile, ptx::shared_address(smem.k) + state.stage * Sizes::kTileBytes,
                        scale.pair());
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      ptx::mbarrier_arrive(kIsV ? &barriers.v_t_full[state.stage] : &barriers.k_full[state.stage]);
    }
    if constexpr (!Converter<Tile>::kHold) {
      ptx::barrier_sync(kProducerBarrier, 128);
      issue_next<kIsV>();
    }
    staged.advance();
    return true;
  }

  // V has the largest magnitude of its work tile until now, so that its scale never grows there. O
  // has the scale of the last V: it is multiplied by the ratio of the scales, at most 1.
  __device__ __forceinline__ void convert_v(Converter<VTile>& converter, const VTile& tile,
                                            uint32_t magnitude, bool first) {
    const uint32_t largest = first ? magnitude : max(v_magnitude, magnitude);
    const Scale scale(largest), before(first ? largest : v_magnitude);
    v_magnitude = largest;
    if (threadIdx.x == 0) {
      smem.staging->v_factors[state.stage] = make_float2(scale.over(before), scale.inverse());
    }
    converter.convert(tile, ptx::shared_address(smem.v_t) + state.stage * Sizes::kVtBytes,
                      scale.pair());
  }
};

}  // namespace stage7b
