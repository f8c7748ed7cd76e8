// The warps that bring K and V, and turn V over.
#pragma once

#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace attention {

__device__ __forceinline__ void copy_tile(unsigned char* to, const TensorMap* map, const Walk& at, uint64_t* full) {
  ptx::mbarrier_arrive_expect_tx(full, kTileBytes);
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) ptx::cp_async_bulk_tensor_3d(to + box * kBoxBytes, map, box * kRowBytes, at.step * kKeys, at.kv_head, full);
}

// Asks for K and V of a step when the places for them are empty. One thread.
__device__ __forceinline__ void bring(const Ring& ring, const Walk& at, const TensorMap* k_map, const TensorMap* v_map) {
  const int stage = at.place.slot;
  ptx::mbarrier_try_wait_parity(&ring.barrier->k_empty[stage], at.place.parity ^ 1);
  copy_tile(ring.k + stage * kTileBytes, k_map, at, &ring.barrier->k_full[stage]);
  ptx::mbarrier_try_wait_parity(&ring.barrier->v_empty[stage], at.place.parity ^ 1);
  copy_tile(ring.v + stage * kTileBytes, v_map, at, &ring.barrier->v_full[stage]);
}

// The first K and V, before the block has met: their barriers are made here, and all others meanwhile by another thread.
__device__ __forceinline__ void bring_first(const Ring& ring, const Walk& at, const TensorMap* k_map, const TensorMap* v_map) {
  ptx::mbarrier_init(&ring.barrier->k_full[0], 1);
  ptx::mbarrier_init(&ring.barrier->v_full[0], 1);
  ptx::fence_mbarrier_init();
  if (!at.more()) return;
  copy_tile(ring.k, k_map, at, &ring.barrier->k_full[0]);
  copy_tile(ring.v, v_map, at, &ring.barrier->v_full[0]);
}

// Of a step's blocks of 32 keys, those that a warp has registers for.
__device__ __forceinline__ constexpr int blocks_at_once(int blocks) {
  if (kProducerRegisters < 40) return 1;
  if (kProducerRegisters < 56) return blocks % 2 ? 1 : 2;
  if (blocks < 8) return blocks;
  return kConsumers == 1 ? 4 : 2;
}

// (kKeys, 16 columns) of V to (16 rows, kKeys) of V^T, by one warp.
__device__ __forceinline__ void turn_columns(unsigned char* turned, const unsigned char* v, int column_block) {
  constexpr int kKeyBlocks = kKeys / 32;
  const int lane = threadIdx.x % 32, row = 16 * column_block + lane % 16;
  const unsigned char* from = v + 16 * column_block / kRowBytes * kBoxBytes + turned_place<kRowBytes>(lane, column_block % (kRowBytes / 16));
  constexpr int kAtOnce = blocks_at_once(kKeyBlocks);
#pragma unroll
  for (int first = 0; first < kKeyBlocks; first += kAtOnce) {
    // Four matrices of 8 keys by 8 pairs of columns each, turned: a lane has pair g of keys 2t and 2t+1 of each.
    uint32_t pairs[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) ptx::ldmatrix_x4_trans(pairs[i], from + 32 * (first + i) * kRowBytes);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const uint32_t(&pair)[4] = pairs[i];
      const int key = 32 * (first + i);
      ptx::stmatrix_x4(turned + key / kPanelKeys * kPanelBytes + turned_place<kPanelKeys>(row, key % kPanelKeys / 16 + lane / 16),
                       __byte_perm(pair[0], pair[1], 0x6420), __byte_perm(pair[0], pair[1], 0x7531),
                       __byte_perm(pair[2], pair[3], 0x6420), __byte_perm(pair[2], pair[3], 0x7531));
    }
  }
}

// One warpgroup. Its first thread asks for the tiles, as far ahead as there are places in the ring; the one that is `ahead` it has asked for.
__device__ __forceinline__ void produce(const Problem& p, const Schedule& schedule, const Ring& ring, const TensorMap* k_map, const TensorMap* v_map, Walk& ahead) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int asked = 0;  // for, and not turned yet
  while (ahead.more()) {
    ++asked;
    ahead.next(p, schedule);
    if (asked == kStages) break;
    if (threadIdx.x == 0 && ahead.more()) bring(ring, ahead, k_map, v_map);
  }
  __syncwarp();
  for (Place place; asked > 0; --asked, place.advance()) {
    const int stage = place.slot;
    ptx::mbarrier_try_wait_parity(&ring.barrier->turned_empty[stage], place.parity ^ 1);
    ptx::mbarrier_try_wait_parity(&ring.barrier->v_full[stage], place.parity);
#pragma unroll 1
    for (int block = 0; block < kColumnBlocks; block += 4) {
      turn_columns(ring.turned + stage * kTurnedBytes, ring.v + stage * kTileBytes, block + warp);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) {
      ptx::mbarrier_arrive(&ring.barrier->turned_full[stage]);
      ptx::mbarrier_arrive(&ring.barrier->v_empty[stage]);
    }
    if (ahead.more()) {
      if (threadIdx.x == 0) bring(ring, ahead, k_map, v_map);
      ahead.next(p, schedule);
      ++asked;
    }
    __syncwarp();
  }
}

}  // namespace attention
