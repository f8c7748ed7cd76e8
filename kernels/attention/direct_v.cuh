// With USE_DIRECT_V: V^T from global memory, through the registers of the producer.
#pragma once

#include "../include/ptx.cuh"
#include "../include/wgmma.cuh"
#include "schedule.cuh"
#include "shared_storage.cuh"

namespace attention {

// V of a step from global memory to V^T, through the registers of the producer: V takes no room in
// shared memory and passes through it once instead of three times. A warp has 64 columns.
//
// Of 16 keys lane 4g+t loads 16 columns of the two that are pair g in the order of P. So register q
// of eight holds columns 16t+2q and 16t+2q+1 of the pair. stmatrix.trans stores it as rows 8q to
// 8q+7 of V^T, where row 8q+2t+e is column 16t+2q+e: a lane of P·V ends with 16 adjacent columns of
// O.
template <class Traits>
struct DirectV {
  using Sizes = TileSizes<Traits>;
  static constexpr int kColumnBlocks = Sizes::kHeadDim / 64;
  static constexpr int kBlocks = Sizes::kBlockN / 16 * kColumnBlocks / 4;  // of 16 keys, per warp
  static_assert(!Traits::kDirectV || (kBlocks == 8 && Sizes::kPanelKeys == 128));  // one panel
  static constexpr int kInFlight = 3;  // blocks that the registers of a warp hold
  const uint8_t* v;  // the lane's first key and column in K/V head 0
  uint32_t v_t;      // shared address of the lane's row in stage 0
  int key;           // the lane's first key of a step

  __device__ __forceinline__ DirectV(const Problem<Traits>& p, const SharedStorage<Traits>& smem) {
    const int lane = threadIdx.x % 32, g = lane / 4, warp = threadIdx.x / 32;
    const int column_block = warp % kColumnBlocks, panel = warp / kColumnBlocks;
    key = 16 * kBlocks * panel + (g % 2 ? g + 7 : g);
    v = p.v + 64 * column_block + 16 * (lane % 4);
    v_t = ptx::shared_address(smem.v_t) + panel * Sizes::kPanelBytes +
          swizzled_offset<Sizes::kPanelKeys>(64 * column_block + lane, 0);
  }

  // The step at the cursor. Its first blocks are requested before V^T is empty.
  template <bool kInBounds>
  __device__ __forceinline__ void run(const Problem<Traits>& p, const SharedStorage<Traits>& smem,
                                      const LoadCursor<Traits>& load) const {
    const int first_key = load.n_block * Sizes::kBlockN + key, left = p.keys - first_key;
    const uint8_t* from =
        v + (static_cast<size_t>(static_cast<unsigned>(load.source.kv_head)) *
                 static_cast<unsigned>(p.keys) + static_cast<unsigned>(first_key)) *
                Sizes::kHeadDim;
    const uint32_t to = v_t + load.state.stage * Sizes::kVtBytes;
    uint4 rows[kInFlight][2];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) load_block<kInBounds>(rows[i], from, i, left);
    ptx::mbarrier_try_wait_parity(&smem.barriers->v_t_empty[load.state.stage],
                                  load.state.phase ^ 1);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      store_block(rows[i % kInFlight], to, i);
      if (i + kInFlight < kBlocks) {
        load_block<kInBounds>(rows[i % kInFlight], from, i + kInFlight, left);
      }
    }
  }

 private:
  // Rows beyond the last key are zeros: P is 0 there, but 0 times NaN is not.
  template <bool kInBounds>
  __device__ __forceinline__ static void load_block(uint4 (&rows)[2], const uint8_t* from, int i,
                                                    int left) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      rows[e] = make_uint4(0, 0, 0, 0);
      if (kInBounds || 16 * i + e < left) {
        rows[e] = ptx::ld_global_nc_16(from + (16 * i + e) * Sizes::kHeadDim);
      }
    }
  }
  __device__ __forceinline__ static void store_block(const uint4 (&rows)[2], uint32_t to, int i) {
    const uint32_t a[4] = {rows[0].x, rows[0].y, rows[0].z, rows[0].w};
    const uint32_t b[4] = {rows[1].x, rows[1].y, rows[1].z, rows[1].w};
#pragma unroll
    for (int c = 0; c < 4; c += 2) {
      ptx::stmatrix_x4_trans((to ^ 16 * i) + 16 * c * Sizes::kPanelKeys,
                             __byte_perm(a[c], b[c], 0x5140), __byte_perm(a[c], b[c], 0x7362),
                             __byte_perm(a[c + 1], b[c + 1], 0x5140),
                             __byte_perm(a[c + 1], b[c + 1], 0x7362));
    }
  }
};

}  // namespace attention
