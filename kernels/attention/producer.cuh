// The producer warpgroup: TMA loads of K and V, and the transpose of V.
#pragma once

#include "../include/ptx.cuh"
#include "../include/tma.cuh"
#include "../include/wgmma.cuh"
#include "form.cuh"
#include "schedule.cuh"
#include "shared_storage.cuh"

namespace stage7b {

// Blocks of 32 keys that a warp transposes at a time: as many as its registers hold.
__device__ __forceinline__ constexpr int transpose_batch(int blocks) {
  if (Sizes::kProducerRegisters < 40) return 1;
  if (Sizes::kProducerRegisters < 56) return blocks % 2 ? 1 : 2;
  if (blocks < 8) return blocks;
  return Sizes::kConsumers == 1 ? 4 : 2;
}

// 16 columns of V (TILE_N, 16) to 16 rows of V^T (16, TILE_N), by one warp.
__device__ __forceinline__ void transpose_columns(unsigned char* v_t, const unsigned char* v,
                                                  int column_block) {
  constexpr int kKeyBlocks = Sizes::kBlockN / 32, kBatch = transpose_batch(kKeyBlocks);
  const int lane = threadIdx.x % 32, row = 16 * column_block + lane % 16;
  const unsigned char* from =
      v + 16 * column_block / Sizes::kRowBytes * Sizes::kBoxBytes +
      swizzled_offset<Sizes::kRowBytes>(lane, column_block % (Sizes::kRowBytes / 16));
#pragma unroll
  for (int first = 0; first < kKeyBlocks; first += kBatch) {
    // Four matrices of 8 keys by 8 column pairs each; lane 4g+t receives pair g of keys 2t and
    // 2t+1.
    uint32_t pairs[kBatch][4];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      ptx::ldmatrix_x4_trans(pairs[i], from + 32 * (first + i) * Sizes::kRowBytes);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const uint32_t(&pair)[4] = pairs[i];
      const int key = 32 * (first + i);
      unsigned char* to =
          v_t + key / Sizes::kPanelKeys * Sizes::kPanelBytes +
          swizzled_offset<Sizes::kPanelKeys>(row, key % Sizes::kPanelKeys / 16 + lane / 16);
      ptx::stmatrix_x4(
          to, __byte_perm(pair[0], pair[1], 0x6420), __byte_perm(pair[0], pair[1], 0x7531),
          __byte_perm(pair[2], pair[3], 0x6420), __byte_perm(pair[2], pair[3], 0x7531));
    }
  }
}

// The same for all blocks of a stage, with constant offsets from two addresses per lane. Blocks of 32
// keys and of 16 columns lie at constant distances, but for the swizzle: an exclusive or.
struct UnrolledTranspose {
  static constexpr int kChunks = Sizes::kRowBytes / 16;  // 16-byte chunks per row of V
  static constexpr int kKeyBlocks = Sizes::kBlockN / 32;
  static constexpr int kBlocks = Sizes::kHeadDim / 64 * kKeyBlocks;  // of a warp
  static constexpr int kBatch = knob::kTransposeBatch > 0 ? knob::kTransposeBatch : 1;
  static_assert(kBlocks % kBatch == 0);
  uint32_t v, v_t;  // shared addresses of the lane's row in stage 0

  __device__ __forceinline__ UnrolledTranspose(const SharedStorage& smem, unsigned thread) {
    const int lane = thread % 32, warp = thread / 32;
    v = ptx::shared_address(smem.v) + swizzled_offset<Sizes::kRowBytes>(lane, warp);
    v_t = ptx::shared_address(smem.v_t) +
          swizzled_offset<Sizes::kPanelKeys>(16 * warp + lane % 16, lane / 16);
  }

  // Block i of the warp: 32 keys by the 16 columns of column block warp + 4 * (i / kKeyBlocks).
  __device__ __forceinline__ static constexpr int key(int i) { return i % kKeyBlocks * 32; }
  __device__ __forceinline__ static constexpr int chunk(int i) { return i / kKeyBlocks * 4; }

  __device__ __forceinline__ void run(int stage) const {
    const uint32_t from = v + stage * Sizes::kTileBytes, to = v_t + stage * Sizes::kVtBytes;
#pragma unroll
    for (int first = 0; first < kBlocks; first += kBatch) {
      uint32_t pairs[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) load(pairs[i], from, first + i);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) store(pairs[i], to, first + i);
    }
  }

 private:
  __device__ __forceinline__ static void load(uint32_t (&pairs)[4], uint32_t from, int i) {
    const uint32_t swizzled = chunk(i) % kChunks ? from ^ 64 : from;  // four chunks further
    ptx::ldmatrix_x4_trans(
        pairs, swizzled + chunk(i) / kChunks * Sizes::kBoxBytes + key(i) * Sizes::kRowBytes);
  }
  __device__ __forceinline__ static void store(const uint32_t (&pair)[4], uint32_t to, int i) {
    ptx::stmatrix_x4((to ^ key(i) % Sizes::kPanelKeys) +
                         key(i) / Sizes::kPanelKeys * Sizes::kPanelBytes +
                         16 * chunk(i) * Sizes::kPanelKeys,
                     __byte_perm(pair[0], pair[1], 0x6420), __byte_perm(pair[0], pair[1], 0x7531),
                     __byte_perm(pair[2], pair[3], 0x6420), __byte_perm(pair[2], pair[3], 0x7531));
  }
};

// V of one stage to V^T, by the four warps of the producer.
__device__ __forceinline__ void transpose_v(const SharedStorage& smem,
                                            const UnrolledTranspose& unrolled,
                                            const KvState& state, int warp, int lane) {
  const int stage = state.stage;
  ptx::mbarrier_try_wait_parity(&smem.barriers->v_t_empty[stage], state.phase ^ 1);
  ptx::mbarrier_try_wait_parity(&smem.barriers->v_full[stage], state.phase);
  if constexpr (knob::kTransposeBatch > 0) {
    unrolled.run(stage);
  } else {
#pragma unroll 1
    for (int block = 0; block < Sizes::kHeadDim / 16; block += 4) {
      transpose_columns(smem.v_t + stage * Sizes::kVtBytes, smem.v + stage * Sizes::kTileBytes,
                        block + warp);
    }
  }
  ptx::fence_proxy_async();
  __syncwarp();
  if (lane == 0) {
    ptx::mbarrier_arrive(&smem.barriers->v_t_full[stage]);
    ptx::mbarrier_arrive(&smem.barriers->v_empty[stage]);
  }
}

}  // namespace stage7b

#if STAGE7B_OPTIONS
#include "prefill/producer.cuh"
#else

namespace stage7b {

__device__ __forceinline__ void issue_tile_load(unsigned char* shared, const TensorMap* map,
                                                const Problem& p, const LoadCursor& load,
                                                uint64_t* full) {
  ptx::mbarrier_arrive_expect_tx(full, Sizes::kTileBytes);
  load.source.issue_load(shared, map, p, load.n_block, full);
}

// Loads K and V of one n_block as soon as their stage is empty. One thread.
__device__ __forceinline__ void load_kv(const SharedStorage& smem, const Problem& p,
                                        const LoadCursor& load, const TensorMap* k_map,
                                        const TensorMap* v_map) {
  const int stage = load.state.stage;
  const uint32_t empty_phase = load.state.phase ^ 1;
  ptx::mbarrier_try_wait_parity(&smem.barriers->k_empty[stage], empty_phase);
  issue_tile_load(smem.k + stage * Sizes::kTileBytes, k_map, p, load,
                  &smem.barriers->k_full[stage]);
  if constexpr (knob::kDirectV) return;
  ptx::mbarrier_try_wait_parity(&smem.barriers->v_empty[stage], empty_phase);
  issue_tile_load(smem.v + stage * Sizes::kTileBytes, v_map, p, load,
                  &smem.barriers->v_full[stage]);
}

// Loads the first K and V before the block-wide barrier. This thread initialises the barriers of
// these two loads; a consumer thread initialises all others at the same time.
__device__ __forceinline__ void load_first_kv(const SharedStorage& smem, const Problem& p,
                                              const LoadCursor& load, const TensorMap* k_map,
                                              const TensorMap* v_map) {
  ptx::mbarrier_init(&smem.barriers->k_full[0], 1);
  ptx::mbarrier_init(&smem.barriers->v_full[0], 1);
  ptx::fence_mbarrier_init();
  if (!load.valid()) return;
  issue_tile_load(smem.k, k_map, p, load, &smem.barriers->k_full[0]);
  if constexpr (knob::kDirectV) return;
  issue_tile_load(smem.v, v_map, p, load, &smem.barriers->v_full[0]);
}

// V of a step from global memory to V^T, through the registers of the producer: V takes no room in
// shared memory and passes through it once instead of three times. A warp has 64 columns.
//
// Of 16 keys lane 4g+t loads 16 columns of the two that are pair g in the order of P. So register q
// of eight holds columns 16t+2q and 16t+2q+1 of the pair. stmatrix.trans stores it as rows 8q to
// 8q+7 of V^T, where row 8q+2t+e is column 16t+2q+e: a lane of P·V ends with 16 adjacent columns of
// O.
struct DirectV {
  static constexpr int kColumnBlocks = Sizes::kHeadDim / 64;
  static constexpr int kBlocks = Sizes::kBlockN / 16 * kColumnBlocks / 4;  // of 16 keys, per warp
  static_assert(!knob::kDirectV || (kBlocks == 8 && Sizes::kPanelKeys == 128));  // one panel
  static constexpr int kInFlight = 3;  // blocks that the registers of a warp hold
  const uint8_t* v;  // the lane's first key and column in K/V head 0
  uint32_t v_t;      // shared address of the lane's row in stage 0
  int key;           // the lane's first key of a step

  __device__ __forceinline__ DirectV(const Problem& p, const SharedStorage& smem) {
    const int lane = threadIdx.x % 32, g = lane / 4, warp = threadIdx.x / 32;
    const int column_block = warp % kColumnBlocks, panel = warp / kColumnBlocks;
    key = 16 * kBlocks * panel + (g % 2 ? g + 7 : g);
    v = p.v + 64 * column_block + 16 * (lane % 4);
    v_t = ptx::shared_address(smem.v_t) + panel * Sizes::kPanelBytes +
          swizzled_offset<Sizes::kPanelKeys>(64 * column_block + lane, 0);
  }

  // The step at the cursor. Its first blocks are requested before V^T is empty.
  template <bool kInBounds>
  __device__ __forceinline__ void run(const Problem& p, const SharedStorage& smem,
                                      const LoadCursor& load) const {
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

// With USE_DIRECT_V: K and V of one n_block after the other. The caller has issued the first K.
__device__ __forceinline__ void producer_mainloop_direct(const Problem& p,
                                                         const TileScheduler& scheduler,
                                                         const SharedStorage& smem,
                                                         const TensorMap* k_map,
                                                         LoadCursor& load) {
  const DirectV direct(p, smem);
  while (load.valid()) {
    if ((load.n_block + 1) * Sizes::kBlockN <= p.keys) {
      direct.run<true>(p, smem, load);
    } else {
      direct.run<false>(p, smem, load);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&smem.barriers->v_t_full[load.state.stage]);
    load.next(p, scheduler);
    if (threadIdx.x == 0 && load.valid()) load_kv(smem, p, load, k_map, nullptr);
    __syncwarp();
  }
}

// Thread 0 issues the loads, kStages n_blocks ahead of the transpose. The caller has issued the
// load at the cursor.
__device__ __forceinline__ void producer_mainloop(const Problem& p, const TileScheduler& scheduler,
                                                  const SharedStorage& smem, const TensorMap* k_map,
                                                  const TensorMap* v_map, LoadCursor& load) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int pending = 0;  // n_blocks loaded and not yet transposed
  while (load.valid()) {
    ++pending;
    load.next(p, scheduler);
    if (pending == Sizes::kStages) break;
    if (threadIdx.x == 0 && load.valid()) load_kv(smem, p, load, k_map, v_map);
  }
  __syncwarp();
  const UnrolledTranspose unrolled(smem, threadIdx.x);
  for (KvState state; pending > 0; --pending, state.advance()) {
    transpose_v(smem, unrolled, state, warp, lane);
    if (load.valid()) {
      if (threadIdx.x == 0) load_kv(smem, p, load, k_map, v_map);
      load.next(p, scheduler);
      ++pending;
    }
    __syncwarp();
  }
}

// The producer after the block-wide barrier.
__device__ __forceinline__ void run_producer(const Problem& p, const TileScheduler& scheduler,
                                             const SharedStorage& smem, const TensorMap* k_map,
                                             const TensorMap* v_map, LoadCursor& load) {
  if (!kEarlyLoads && threadIdx.x == 0 && load.valid()) load_kv(smem, p, load, k_map, v_map);
  if constexpr (knob::kDirectV) {
    producer_mainloop_direct(p, scheduler, smem, k_map, load);
  } else {
    producer_mainloop(p, scheduler, smem, k_map, v_map, load);
  }
}

}  // namespace stage7b

#endif
