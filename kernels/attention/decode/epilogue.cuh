// The end of a unit in a block: merges the warpgroups, then the blocks that share the unit, and
// stores O and the log-sum-exp.
#pragma once

#include "include/output.cuh"
#include "mainloop.cuh"

namespace attention::decode {

constexpr float kLn2 = 0.6931471805599453f;

constexpr RowPart kNoPart = {-INFINITY, 0, {0, 0, 0, 0}};

// Adds some parts to `all`.
template <int kCount>
__device__ __forceinline__ void add_parts(RowPart& all, const RowPart (&part)[kCount]) {
  const float before = all.row_max;
#pragma unroll
  for (int i = 0; i < kCount; i++) all.row_max = fmaxf(all.row_max, part[i].row_max);
  const float x = rescale(before, all.row_max);
  all.row_sum *= x;
  all.o = {all.o.x * x, all.o.y * x, all.o.z * x, all.o.w * x};
#pragma unroll
  for (int i = 0; i < kCount; i++) {
    const float y = rescale(part[i].row_max, all.row_max);
    all.row_sum = fmaf(part[i].row_sum, y, all.row_sum);
    all.o.x = fmaf(part[i].o.x, y, all.o.x);
    all.o.y = fmaf(part[i].o.y, y, all.o.y);
    all.o.z = fmaf(part[i].o.z, y, all.o.z);
    all.o.w = fmaf(part[i].o.w, y, all.o.w);
  }
}

// Merges parts 0 to count-1 of some quads of columns, in their order. The loads of kChunk parts of
// all of them are in flight together.
template <int kChunk, int kQuads, class Load>
__device__ __forceinline__ void merge(RowPart (&all)[kQuads], int count, Load load) {
#pragma unroll
  for (RowPart& quad : all) quad = kNoPart;
  for (int first = 0; first < count; first += kChunk) {
    RowPart part[kQuads][kChunk];
#pragma unroll
    for (int i = 0; i < kChunk; i++) {
#pragma unroll
      for (int quad = 0; quad < kQuads; quad++) {
        part[quad][i] = kNoPart;
        if (first + i < count) part[quad][i] = load(quad, first + i);
      }
    }
#pragma unroll
    for (int quad = 0; quad < kQuads; quad++) add_parts(all[quad], part[quad]);
  }
}

// Quads of columns whose loads a thread has in flight together: the latency of each round counts.
// The finishers have few registers, and another unit to hide it.
template <class Team>
__device__ constexpr int quads_at_once(int parts) {
  if (Team::kThreads != Consumers::kThreads) return 1;
  constexpr int kEach = Sizes::kRows * Sizes::kHeadDim / 4 / Sizes::kConsumers;  // of a thread
  return kEach < 1 ? 1 : kEach < 8 / parts ? kEach : 8 / parts;
}

// Stores the results of a unit.
struct Output {
  const Params& p;
  size_t head_row;  // the first of the K/V head in O and the log-sum-exp
  int query_head;   // the first of the K/V head
  int first_row;    // of the unit in its K/V head
  float descale_v;

  // Normalises and stores four columns of a row. A sink is one more score of the row, without a
  // value. A row without keys is 0.
  __device__ __forceinline__ void store(int of_unit, int column, const RowPart& part) const {
    const int row = first_row + of_unit;
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
    const size_t at = (head_row + row) * Sizes::kHeadDim + column;
    *reinterpret_cast<uint2*>(bf16 ? reinterpret_cast<uint16_t*>(p.o_bf16) + at
                                   : reinterpret_cast<uint16_t*>(p.o) + at) = words;
    if (p.lse == nullptr || column > 0) return;
    p.lse[head_row + row] =
        row_sum == 0 ? -INFINITY : kLn2 * (row_max - kMaxOffset + ptx::lg2_approx_ftz(row_sum));
  }
};

// The part of a unit that a block has stored. A block has at most one that begins its unit, and one
// that does not.
__device__ __forceinline__ Part* part_of(const Params& p, int block, bool begins_unit) {
  return &p.parts[2 * block + begins_unit];
}

constexpr int kColumnQuads = Sizes::kHeadDim / 4;

// Merges the parts of `count` quads of columns, and stores them. Quads behind the last one are loaded
// as the last one.
template <int kChunk, class Team, class Load, class Store>
__device__ __forceinline__ void merge_quads(unsigned count, int parts, Load load, Store store) {
  constexpr int kQuads = quads_at_once<Team>(kChunk);
  for (unsigned first = Team::thread(); first < count; first += kQuads * Team::kThreads) {
    RowPart all[kQuads];
    merge<kChunk>(all, parts, [&](int quad, int part) {
      return load(min(first + quad * Team::kThreads, count - 1), part);
    });
#pragma unroll
    for (int quad = 0; quad < kQuads; quad++) {
      const unsigned i = first + quad * Team::kThreads;
      if (i < count) store(i, all[quad]);
    }
  }
}

// Merges the warpgroups of the block. `store` takes four columns of a row.
template <class Team, class Store>
__device__ __forceinline__ void merge_groups(const SharedStorage& shared, int count, Store store) {
  merge_quads<kResults, Team>(
      count * kColumnQuads, kResults,
      [&](unsigned i, int result) {
        return load_result(shared, result, i / kColumnQuads, i % kColumnQuads * 4);
      },
      [&](unsigned i, const RowPart& part) {
        store(i / kColumnQuads, i % kColumnQuads * 4, part);
      });
}

// Four columns of a row of part i of a unit.
__device__ __forceinline__ RowPart load_part(const Params& p, const Unit& unit, int i, int row,
                                             int column) {
  const Part* part = part_of(p, unit.first_block + i, i == 0);
  return {__ldcg(&part->row_max[row]), __ldcg(&part->row_sum[row]),
          __ldcg(reinterpret_cast<const float4*>(&part->o[row][column]))};
}

// Parts whose loads are in flight together. It is the same for all teams, because the sums of a row
// depend on it. Finishers with few registers have two.
constexpr int kMergeAtOnce =
    Sizes::kMovesRegisters && Sizes::kProducerRegisters < 64 ? 2 : 4;

// Merges the parts of some rows of a unit, and stores them. Few rows leave threads for some of the
// parts each. The order of the sums does not depend on the team.
template <class Team>
__device__ __forceinline__ void merge_rows(const Params& p, SharedStorage& shared,
                                           const Output& output, const Unit& unit,
                                           int first_row, int count) {
  const unsigned quads = count * kColumnQuads;
  const auto store = [&](unsigned i, const RowPart& part) {
    output.store(first_row + i / kColumnQuads, i % kColumnQuads * 4, part);
  };
  unsigned splits = 1;
  if (unit.parts > kMergeAtOnce) splits = min(max(Sizes::kConsumers / quads, 1), unit.parts);
  if (splits == 1) {
    const auto load = [&](unsigned i, int part) {
      return load_part(p, unit, part, first_row + i / kColumnQuads, i % kColumnQuads * 4);
    };
    if (Sizes::kRows >= 32 && unit.parts == 2) {  // that leaves registers for more quads
      merge_quads<2, Team>(quads, 2, load, store);
    } else {
      merge_quads<kMergeAtOnce, Team>(quads, unit.parts, load, store);
    }
    return;
  }
  for (unsigned i = Team::thread(); i < quads * splits; i += Team::kThreads) {
    const unsigned split = i / quads, quad = i - split * quads;
    RowPart all[1];
    merge<kMergeAtOnce>(all, (unit.parts - split + splits - 1) / splits, [&](int, int j) {
      return load_part(p, unit, split + j * splits, first_row + quad / kColumnQuads,
                       quad % kColumnQuads * 4);
    });
    shared.merged.o[i] = all[0].o;
    shared.merged.rows[i] = {all[0].row_max, all[0].row_sum};
  }
  Team::sync();
  merge_quads<kMergeAtOnce, Team>(quads, splits, [&](unsigned i, int j) {
    const float2 row = shared.merged.rows[i + j * quads];
    return RowPart{row.x, row.y, shared.merged.o[i + j * quads]};
  }, store);
}

// The counters of a unit, in one word: blocks that have stored their part, slices of rows that
// blocks have claimed for the merge, and blocks that have left it.
constexpr unsigned kClaim = 1 << 10, kLeave = 1 << 21;
__device__ __forceinline__ unsigned arrivals(unsigned word) { return word % kClaim; }
__device__ __forceinline__ unsigned claims(unsigned word) { return word % kLeave / kClaim; }
__device__ __forceinline__ unsigned leavers(unsigned word) { return word / kLeave; }

// The last block of a unit with more parts than this shares their merge with blocks that are done.
constexpr int kMergeAlone = 8;

// Polls of a block that waits for the last part: 0.1 to 0.2 ms. It may leave: the last block merges
// what nobody has claimed.
constexpr int kPolls = 256;

// The first thread of a team decides for all.
template <class Team, class F>
__device__ __forceinline__ int decide(SharedStorage& shared, F f) {
  Team::sync();
  if (Team::thread() == 0) shared.decision = f();
  __syncwarp();  // the first warp arrives as a whole
  Team::sync();
  return shared.decision;
}

// Merges the parts of a unit in their order, so that the result does not depend on which blocks do
// it. Every block of the unit calls it when its part is stored. The last one to leave resets the
// counters for the next launch.
template <class Team>
__device__ __forceinline__ void merge_unit(const Params& p, SharedStorage& shared,
                                           const Output& output, const Unit& unit,
                                           unsigned* counters) {
  const unsigned all = unit.parts;
  const bool alone = unit.parts <= kMergeAlone;
  const bool complete = decide<Team>(shared, [&] {
    unsigned arrived = arrivals(ptx::atom_acq_rel_gpu_add(counters, 1)) + 1;
    if (alone) {
      if (arrived == all) *counters = 0;
    } else if (unit.is_last) {
      for (int i = 0; i < kPolls && arrived < all; i++) {
        arrived = arrivals(ptx::ld_acquire_gpu(counters));
      }
    }
    return arrived == all;
  });
  if (alone) {
    if (complete) merge_rows<Team>(p, shared, output, unit, 0, unit.rows);
    return;
  }
  const int slice = static_cast<unsigned>(unit.rows + unit.parts - 1) / unit.parts;
  while (complete) {
    const int first_row = slice * decide<Team>(shared, [&] {
      return claims(ptx::atom_acq_rel_gpu_add(counters, kClaim));
    });
    if (first_row >= unit.rows) break;
    merge_rows<Team>(p, shared, output, unit, first_row, min(slice, unit.rows - first_row));
  }
  if (Team::thread() == 0 && leavers(ptx::atom_acq_rel_gpu_add(counters, kLeave)) == all - 1) {
    *counters = 0;
  }
}

// Ends the tiles of a unit whose result is in shared memory. A block that has other units does not
// wait for other blocks.
template <class Team>
__device__ __forceinline__ void finish(const Params& p, SharedStorage& shared,
                                       const Cursor& cursor, const Unit& unit) {
  const int head = cursor.sequence * p.kv_heads + unit.kv_head;
  const Output output = {p, static_cast<size_t>(head) * p.rows(), unit.kv_head * p.group,
                         unit.first_row, factor_of(p.descale_v, head)};
  if (unit.whole) {
    merge_groups<Team>(shared, unit.rows, [&](int row, int column, const RowPart& part) {
      output.store(row, column, part);
    });
    return;
  }
  Part* to = part_of(p, blockIdx.x, unit.begins);
  merge_groups<Team>(shared, unit.rows, [&](int row, int column, const RowPart& part) {
    *reinterpret_cast<float4*>(&to->o[row][column]) = part.o;
    if (column > 0) return;
    to->row_max[row] = part.row_max;
    to->row_sum[row] = part.row_sum;
  });
  merge_unit<Team>(p, shared, output, unit, &p.arrived[cursor.sequence * p.units() + cursor.unit]);
}

}  // namespace attention::decode
