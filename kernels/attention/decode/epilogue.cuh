// The end of a head in a block: merges the warps, then the blocks that share the head, and stores O
// and the log-sum-exp.
#pragma once

#include "include/output.cuh"
#include "mainloop.cuh"

namespace attention::decode {

constexpr float kLn2 = 0.6931471805599453f;

// Four columns of a row, not normalised, with the row max in log2 units.
struct RowPart {
  float row_max, row_sum;
  float4 o;
};

// O and the softmax of this warp to shared memory.
__device__ __forceinline__ void store_warp(SharedStorage& shared, const RowState& rows, int count) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float row_sum = rows.row_sum[r];
    row_sum += __shfl_xor_sync(~0u, row_sum, 1);
    row_sum += __shfl_xor_sync(~0u, row_sum, 2);
    if (g + 8 * r >= count) continue;  // padding
    if (t == 0) {
      shared.row_max[warp][g + 8 * r] = rows.row_max[r] * rows.scale_log2[r];
      shared.row_sum[warp][g + 8 * r] = row_sum;
    }
#pragma unroll
    for (int n = 0; n < Sizes::kHeadDim / 8; n += 4) {
#pragma unroll
      for (int c = 2 * r; c < 2 * r + 2; c++) {
        const float4 x = {rows.o[n][c], rows.o[n + 1][c], rows.o[n + 2][c], rows.o[n + 3][c]};
        float* to = &shared.o[warp][g + 8 * r][8 * n + 8 * t + 4 * (c % 2)];
        *reinterpret_cast<float4*>(to) = x;
      }
    }
  }
}

// The factor of a part in a sum whose row max is `row_max`. A part without keys has none.
__device__ __forceinline__ float rescale(float part_max, float row_max) {
  return part_max == -INFINITY ? 0 : ptx::ex2_approx_ftz(part_max - row_max);
}

// Merges parts 0 to count-1 in their order, kChunk at a time, whose loads are in flight together.
template <int kChunk, class Load>
__device__ __forceinline__ RowPart merge(int count, Load load) {
  RowPart all = {-INFINITY, 0, {0, 0, 0, 0}};
  for (int first = 0; first < count; first += kChunk) {
    RowPart part[kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
      part[i] = {-INFINITY, 0, {0, 0, 0, 0}};
      if (first + i < count) part[i] = load(first + i);
    }
    const float before = all.row_max;
#pragma unroll
    for (int i = 0; i < kChunk; i++) all.row_max = fmaxf(all.row_max, part[i].row_max);
    const float x = rescale(before, all.row_max);
    all.row_sum *= x;
    all.o = {all.o.x * x, all.o.y * x, all.o.z * x, all.o.w * x};
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
      const float y = rescale(part[i].row_max, all.row_max);
      all.row_sum = fmaf(part[i].row_sum, y, all.row_sum);
      all.o.x = fmaf(part[i].o.x, y, all.o.x);
      all.o.y = fmaf(part[i].o.y, y, all.o.y);
      all.o.z = fmaf(part[i].o.z, y, all.o.z);
      all.o.w = fmaf(part[i].o.w, y, all.o.w);
    }
  }
  return all;
}

// Stores the results of a head.
struct Output {
  const Params& p;
  size_t first_row;  // of the head, in O and the log-sum-exp
  int query_head;    // the first of the K/V head
  float descale_v;

  // Normalises and stores four columns of a row. A sink is one more score of the row, without a
  // value. A row without keys is 0.
  __device__ __forceinline__ void store(int row, int column, const RowPart& part) const {
    float row_max = part.row_max, row_sum = part.row_sum, x = descale_v;
    if (p.sinks != nullptr && row_sum != 0) {
      const float sink = p.sinks[query_head + row / p.queries] * kLog2E;
      const float top = fmaxf(row_max, sink), y = ptx::ex2_approx_ftz(row_max - top);
      row_sum = fmaf(row_sum, y, ptx::ex2_approx_ftz(sink - top + kMaxOffset));
      row_max = top;
      x *= y;
    }
    x = row_sum == 0 ? 0 : x / row_sum;
    const float4& o = part.o;
    const bool bf16 = p.o_bf16 != nullptr;
    const uint2 words = {pack_output(o.x * x, o.y * x, bf16), pack_output(o.z * x, o.w * x, bf16)};
    const size_t at = (first_row + row) * Sizes::kHeadDim + column;
    *reinterpret_cast<uint2*>(bf16 ? reinterpret_cast<uint16_t*>(p.o_bf16) + at
                                   : reinterpret_cast<uint16_t*>(p.o) + at) = words;
    if (p.lse == nullptr || column > 0) return;
    p.lse[first_row + row] =
        row_sum == 0 ? -INFINITY : kLn2 * (row_max - kMaxOffset + ptx::lg2_approx_ftz(row_sum));
  }
};

// The part of a head that a block has stored. A block has at most one that begins its head, and one
// that does not.
__device__ __forceinline__ Part* part_of(const Params& p, int block, bool begins_head) {
  return &p.parts[2 * block + begins_head];
}

// Calls f(row, column) for this thread's share of the rows, four columns at a time. Padding costs
// nothing.
template <class F>
__device__ __forceinline__ void for_each_row(const Params& p, F f) {
  constexpr unsigned kColumns = Sizes::kHeadDim / 4;
  for (unsigned i = threadIdx.x; i < p.rows() * kColumns; i += Sizes::kConsumers) {
    f(i / kColumns, i % kColumns * 4);
  }
}

// Merges the warps of the block. `store` takes the result.
template <class Store>
__device__ __forceinline__ void merge_warps(const Params& p, const SharedStorage& shared,
                                            Store store) {
  constexpr int kChunk = Sizes::kWarps < 4 ? Sizes::kWarps : 4;
  for_each_row(p, [&](int row, int column) {
    store(row, column, merge<kChunk>(Sizes::kWarps, [&](int warp) {
      return RowPart{shared.row_max[warp][row], shared.row_sum[warp][row],
                     *reinterpret_cast<const float4*>(&shared.o[warp][row][column])};
    }));
  });
}

// Merges the parts of blocks first_block to first_block + count - 1, and stores the head.
__device__ __forceinline__ void merge_blocks(const Params& p, const Output& output, int first_block,
                                             int count) {
  for_each_row(p, [&](int row, int column) {
    output.store(row, column, merge<8>(count, [&](int i) {
      const Part* part = part_of(p, first_block + i, i == 0);
      return RowPart{__ldcg(&part->row_max[row]), __ldcg(&part->row_sum[row]),
                     __ldcg(reinterpret_cast<const float4*>(&part->o[row][column]))};
    }));
  });
}

// Ends the tiles of a head. The last block of the head merges the parts in their order,
// so the result does not depend on which block that is. It resets the counter for the next launch.
// Returns whether the block has another head.
__device__ __forceinline__ bool epilogue(const Params& p, SharedStorage& shared,
                                         const RowState& rows,
                                         const Cursor& shared_cursor) {
  // The warps of the head before are merged.
  ptx::barrier_sync(kConsumerBarrier, Sizes::kConsumers);
  store_warp(shared, rows, p.rows());
  const Cursor cursor = shared_cursor;
  const int head = cursor.sequence * p.kv_heads + cursor.head;
  const Output output = {p, static_cast<size_t>(head) * p.rows(), cursor.head * p.group,
                         p.descale_v[head]};
  const bool begins = cursor.at == cursor.head_begin, ends = cursor.end >= cursor.head_end();
  ptx::barrier_sync(kConsumerBarrier, Sizes::kConsumers);
  if (begins && ends) {
    merge_warps(p, shared, [&](int row, int column, const RowPart& part) {
      output.store(row, column, part);
    });
    return cursor.end > cursor.head_end();
  }
  Part* to = part_of(p, blockIdx.x, begins);
  merge_warps(p, shared, [&](int row, int column, const RowPart& part) {
    *reinterpret_cast<float4*>(&to->o[row][column]) = part.o;
    if (column > 0) return;
    to->row_max[row] = part.row_max;
    to->row_sum[row] = part.row_sum;
  });

  const Shares shares(cursor.tiles, cursor.blocks);
  const int first_block = shares.block_of(cursor.head_begin);
  const int count = shares.block_of(cursor.head_end() - 1) - first_block + 1;
  ptx::barrier_sync(kConsumerBarrier, Sizes::kConsumers);
  if (threadIdx.x == 0) {
    unsigned* arrived = &p.arrived[head];
    shared.is_last = ptx::atom_acq_rel_gpu_add(arrived, 1) == static_cast<unsigned>(count - 1);
    if (shared.is_last) *arrived = 0;
  }
  ptx::barrier_sync(kConsumerBarrier, Sizes::kConsumers);
  if (shared.is_last) merge_blocks(p, output, first_block, count);
  return cursor.end > cursor.head_end();
}

}  // namespace attention::decode
