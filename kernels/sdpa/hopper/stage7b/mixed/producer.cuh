// The producer warpgroup of kernels/mixed: it converts Q to E4M3 besides its work on K and V. The
// conversion is ahead of the consumers, as the rest of the pipeline is, so no consumer waits for Q.
#pragma once

#include "../../../common/pipeline_state.cuh"
#include "../../../common/ptx.cuh"
#include "../../tma.cuh"
#include "../../wgmma.cuh"
#include "../halves/convert.cuh"
#include "../producer.cuh"
#include "problem.cuh"

namespace stage7b {

// 16 rows of Q by one warp, as 16-byte chunks of eight columns. They share a scale. Chunks that the
// registers cannot hold are loaded twice: for the largest magnitude, and for the conversion.
struct QueryRows {
  static constexpr int kLanes = Sizes::kHeadDim / 8;  // of a row
  static constexpr int kRows = 32 / kLanes;           // of a load
  static constexpr int kLoads = 16 / kRows;
  static constexpr int kBatch = 4;  // loads at a time
  static constexpr bool kHold = kBatch == kLoads;
  uint4 held[kBatch];
  const uint16_t* columns;  // the lane's columns of the head
  int64_t row_stride;
  int row, last_row;  // the lane's first row, and the last of the head
  int lane;

  __device__ __forceinline__ QueryRows(const Problem& p, const WorkTile& tile, int first_row,
                                       int lane)
      : columns(p.q_of(tile.head) + lane % kLanes * 8),
        row_stride(p.q_strides.row),
        row(tile.first_query + first_row + lane / kLanes),
        last_row(p.queries - 1),
        lane(lane) {}

  // The scale of the rows.
  template <bool kIsBf16>
  __device__ __forceinline__ Scale<kIsBf16> scale() {
    Magnitude<kIsBf16> magnitude;
#pragma unroll 1
    for (int first = 0; first < kLoads; first += kBatch) {
      uint4(&chunks)[kBatch] = held;
      load(chunks, first);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        magnitude.add(chunks[i].x, 0), magnitude.add(chunks[i].y, 1);
        magnitude.add(chunks[i].z, 2), magnitude.add(chunks[i].w, 3);
      }
    }
    return Scale<kIsBf16>(magnitude.of_warp());
  }

  // Stores the codes as rows of a swizzled operand.
  template <bool kIsBf16>
  __device__ __forceinline__ void store(unsigned char* rows, uint32_t scale) {
    const int chunk = lane % kLanes;
#pragma unroll 1
    for (int first = 0; first < kLoads; first += kBatch) {
      uint4(&chunks)[kBatch] = held;
      if constexpr (!kHold) load(chunks, first);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        unsigned char* to =
            rows + swizzled_offset<Sizes::kRowBytes>((first + i) * kRows + lane / kLanes,
                                                     chunk / 2) + chunk % 2 * 8;
        *reinterpret_cast<uint2*>(to) =
            make_uint2(convert_four<kIsBf16>(chunks[i].x, chunks[i].y, scale),
                       convert_four<kIsBf16>(chunks[i].z, chunks[i].w, scale));
      }
    }
  }

 private:
  // Rows beyond the last query read the last one; their results are not stored.
  __device__ __forceinline__ void load(uint4 (&chunks)[kBatch], int first) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      chunks[i] = ptx::ld_global_nc_16(
          columns + row_stride * min(row + (first + i) * kRows, last_row));
    }
  }
};

// Converts Q of 64 rows to their slot.
template <bool kIsBf16>
__device__ __forceinline__ void convert_rows(const SharedStorage& smem, QueryRows& rows,
                                             int warp, int slot, uint32_t phase) {
  const Scale<kIsBf16> scale = rows.scale<kIsBf16>();
  ptx::mbarrier_try_wait_parity(&smem.query_slots->empty[slot], phase ^ 1);
  if (rows.lane == 0) smem.query_slots->descale[slot][warp] = scale.inverse();
  rows.store<kIsBf16>(smem.q + slot * Sizes::kQSlotBytes + 16 * warp * Sizes::kRowBytes,
                      scale.pair());
}

// Converts Q of a tile, 64 rows for each consumer. The position in the ring follows from the round:
// between two tiles no register holds it.
__device__ __forceinline__ void convert_query_tile(const Problem& p, const WorkTile& tile,
                                                   const SharedStorage& smem, unsigned round) {
  const unsigned thread = ptx::opaque(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32;
#pragma unroll 1
  for (int consumer = 0; consumer < Sizes::kConsumers; ++consumer) {
    const unsigned at = round * Sizes::kConsumers + consumer;
    const int slot = at % Sizes::kQSlots;
    const uint32_t phase = at / Sizes::kQSlots % 2;
    QueryRows rows(p, tile, 64 * consumer + 16 * warp, lane);
    if (p.q_bf16) {
      convert_rows<true>(smem, rows, warp, slot, phase);
    } else {
      convert_rows<false>(smem, rows, warp, slot, phase);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&smem.query_slots->full[slot]);
  }
}

// producer_mainloop with Q. Thread 0 issues the loads of K and V, kStages n_blocks ahead of the
// transpose. Q of a tile is converted before the transpose of its first V: all V of the tiles
// before are transposed then, so that their consumers can reach the end and release Q.
__device__ __forceinline__ void producer_mainloop_mixed(const Problem& p,
                                                        const TileScheduler& scheduler,
                                                        const SharedStorage& smem,
                                                        const TensorMap* k_map,
                                                        const TensorMap* v_map, LoadCursor& load) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  LoadCursor step = load;  // of the transpose
  int pending = 0;         // n_blocks loaded and not yet transposed
  while (load.valid()) {
    ++pending;
    load.next(p, scheduler);
    if (pending == Sizes::kStages) break;
    if (threadIdx.x == 0 && load.valid()) load_kv(smem, p, load, k_map, v_map);
  }
  __syncwarp();
  const UnrolledTranspose unrolled(smem, threadIdx.x);
  for (bool first = true; pending > 0; --pending) {
    if (first) convert_query_tile(p, scheduler.tile(p, step.at), smem, step.at.round);
    transpose_v(smem, unrolled, step.state, warp, lane);
    if (load.valid()) {
      if (threadIdx.x == 0) load_kv(smem, p, load, k_map, v_map);
      load.next(p, scheduler);
      ++pending;
    }
    __syncwarp();
    first = !step.next_in_tile(p);
    if (first) step.next_tile(p, scheduler);
  }
}

// producer_mainloop_direct with Q.
__device__ __forceinline__ void producer_mainloop_mixed_direct(const Problem& p,
                                                               const TileScheduler& scheduler,
                                                               const SharedStorage& smem,
                                                               const TensorMap* k_map,
                                                               LoadCursor& load) {
  const DirectV direct(p, smem);
  bool first = true;
  while (load.valid()) {
    if (first) convert_query_tile(p, scheduler.tile(p, load.at), smem, load.at.round);
    if ((load.n_block + 1) * Sizes::kBlockN <= p.keys) {
      direct.run<true>(p, smem, load);
    } else {
      direct.run<false>(p, smem, load);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&smem.barriers->v_t_full[load.state.stage]);
    first = !load.next_in_tile(p);
    if (first) load.next_tile(p, scheduler);
    if (threadIdx.x == 0 && load.valid()) load_kv(smem, p, load, k_map, nullptr);
    __syncwarp();
  }
}

}  // namespace stage7b
