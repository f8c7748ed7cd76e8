// The main loop of a consumer warpgroup over its tiles of a unit, with keys as M: S^T = K·Q^T,
// P^T = exp2(S^T), and O^T += V^T·P^T. Keys, and columns of O, are the rows of wgmma, so that query
// rows are padded to a multiple of 8 only. K and V are converted to FP16 on their way to the
// registers of operand A.
#pragma once

#include "include/wgmma.cuh"
#include "include/wgmma_m64k16_narrow.cuh"
#include "query.cuh"
#include "row_part.cuh"

namespace attention::decode {

constexpr uint32_t kLargestP = 0x7800;  // 2^15 in FP16: larger P asks for a new reference

// The places of a thread in wgmma and in shared memory. Lane 4g+t of warp w has rows 16w+g and
// 16w+g+8 of a product, and columns 8j+2t and 8j+2t+1.
struct Lane {
  int group, warp, g, t;
  uint32_t k;  // of the row of ldmatrix in a tile of K, for columns 0 to 31
  uint32_t v;  // the same in a tile of V, for keys 0 to 31

  __device__ __forceinline__ int first_tile() const { return group; }
  // Whether it tells the finishers that its result is there.
  __device__ __forceinline__ bool has_result() const { return true; }

  __device__ __forceinline__ Lane() {
    const int lane = threadIdx.x % 32, row = lane % 8, odd = lane / 8 % 2, high = lane / 16;
    group = threadIdx.x / Sizes::kGroupThreads;
    warp = threadIdx.x / 32 % 4;
    g = lane / 4, t = lane % 4;
    k = swizzled(16 * warp + 8 * odd + row, 16 * high);
    v = swizzled(16 * high + 8 * odd + row, 16 * warp);
  }
};

// The accumulators of a warpgroup. Row 16w+g of a block of O^T is column 16w+2g of O, and row
// 16w+g+8 the next one, because ldmatrix brings pairs of columns.
struct RowState {
  float o[Sizes::kColumnBlocks][Sizes::kRows / 2];
  float row_sum[Sizes::kRows / 4];  // of this lane's keys, rows 8j+2t and 8j+2t+1

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int block = 0; block < Sizes::kColumnBlocks; block++) {
#pragma unroll
      for (int i = 0; i < Sizes::kRows / 2; i++) o[block][i] = 0;
    }
#pragma unroll
    for (int j = 0; j < Sizes::kRows / 4; j++) row_sum[j] = 0;
  }

  __device__ __forceinline__ void fence() {
#pragma unroll
    for (int block = 0; block < Sizes::kColumnBlocks; block++) ptx::fence_registers(o[block]);
  }
};

// Operand B, rows of Q or P: 16 of the summed dimension from `step` on.
__device__ __forceinline__ uint64_t operand_b(uint32_t address, int step) {
  return ptx::wgmma_descriptor(address + step * 2 * Sizes::kRows, 16 * Sizes::kRows, 128);
}

// K of 64 keys and one chunk of columns as operand A. The four columns of a word go to the places
// of the contraction where Q has them.
struct KeyOperand {
  static constexpr int kSteps = Sizes::kColumns / 16;
  uint32_t a[kSteps][4];

  __device__ __forceinline__ void load(uint32_t tile, const Lane& lane, int block, int chunk) {
#pragma unroll
    for (int i = 0; i < kSteps; i += 2) {
      uint32_t words[4];
      ptx::ldmatrix_x4(words, (tile + lane.k ^ 16 * i) + box_offset(block, chunk));
#pragma unroll
      for (int j = 0; j < 4; j++) {
        a[i + j / 2][j % 2] = ptx::cvt_rn_f16x2_e4m3x2_low(words[j]);
        a[i + j / 2][j % 2 + 2] = ptx::cvt_rn_f16x2_e4m3x2_high(words[j]);
      }
    }
  }
};

// V^T of one chunk of columns as operand A.
struct ValueOperand {
  static constexpr int kBlocks = Sizes::kColumns / Sizes::kBlockM, kSteps = Sizes::kTileN / 16;
  uint32_t a[kBlocks][kSteps][4];

  __device__ __forceinline__ void load(uint32_t tile, const Lane& lane, int chunk) {
#pragma unroll
    for (int block = 0; block < kBlocks; block++) {
#pragma unroll
      for (int i = 0; i < kSteps; i += 2) {
        uint32_t words[4];
        ptx::ldmatrix_x4_trans(words, (tile + lane.v ^ 64 * block) + box_offset(i / 4, chunk) +
                                          i % 4 * 16 * Sizes::kBoxBytes);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          // Two columns of two keys become two keys of two columns.
          const uint32_t pairs = __byte_perm(words[j], 0, 0x3120);
          a[block][i + j / 2][2 * (j % 2)] = ptx::cvt_rn_f16x2_e4m3x2_low(pairs);
          a[block][i + j / 2][2 * (j % 2) + 1] = ptx::cvt_rn_f16x2_e4m3x2_high(pairs);
        }
      }
    }
  }
};

using Scores = float[Sizes::kKeyBlocks][Sizes::kRows / 2];

// S^T = K·Q^T of one chunk of columns.
__device__ __forceinline__ void multiply_keys(Scores& s,
                                              const KeyOperand (&keys)[Sizes::kKeyBlocks],
                                              uint32_t q, int chunk) {
#pragma unroll
  for (int block = 0; block < Sizes::kKeyBlocks; block++) {
#pragma unroll
    for (int i = 0; i < KeyOperand::kSteps; i++) {
      const int step = chunk * KeyOperand::kSteps + i;
      ptx::wgmma_m64k16_f16(s[block], keys[block].a[i], operand_b(q, step), step > 0);
    }
  }
}

// O^T += V^T·P^T of one chunk of columns.
__device__ __forceinline__ void multiply_values(RowState& rows, const ValueOperand& values,
                                                uint32_t p, int chunk) {
#pragma unroll
  for (int block = 0; block < ValueOperand::kBlocks; block++) {
#pragma unroll
    for (int i = 0; i < ValueOperand::kSteps; i++) {
      ptx::wgmma_m64k16_f16(rows.o[chunk * ValueOperand::kBlocks + block], values.a[block][i],
                            operand_b(p, i), true);
    }
  }
}

// Masks the keys that a row does not see.
__device__ __forceinline__ void mask(Scores& s, const Params& p, const Lane& lane, int first_row,
                                     int keys_end, int tile_key) {
#pragma unroll
  for (int j = 0; j < Sizes::kRows / 4; j++) {
    const int query = (first_row + j / 2 * 8 + 2 * lane.t + j % 2) % p.queries;
    const int begin = p.window_begin(keys_end, query), end = p.causal_end(keys_end, query);
#pragma unroll
    for (int block = 0; block < Sizes::kKeyBlocks; block++) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int key = tile_key + Sizes::kBlockM * block + 16 * lane.warp + lane.g + 8 * i;
        if (key < begin || key >= end) s[block][j / 2 * 4 + 2 * i + j % 2] = -INFINITY;
      }
    }
  }
}

// Bytes of V behind the last key may be anything, and 0 times NaN is NaN.
__device__ __forceinline__ void clear_values(uint8_t* tile, const Lane& lane, int valid) {
  constexpr int kPieces = Sizes::kHeadDim / 16;
  const int first = valid * kPieces + threadIdx.x % Sizes::kGroupThreads;
  for (int i = first; i < Sizes::kTileN * kPieces; i += Sizes::kGroupThreads) {
    const int row = i / kPieces, byte = i % kPieces * 16;
    const uint32_t at = box_offset(row / Sizes::kBoxN, byte / Sizes::kBoxBytes) +
                        row % Sizes::kBoxN * Sizes::kBoxBytes + byte % Sizes::kBoxBytes;
    *reinterpret_cast<uint4*>(tile + at) = {0, 0, 0, 0};
  }
  ptx::fence_proxy_async();  // TMA writes the stage next
  ptx::barrier_sync(kGroupBarrier + lane.group, Sizes::kGroupThreads);
}

// P^T to shared memory, as operand B of V^T·P^T, and its sums over this lane's keys. Returns whether
// some P of this lane is too large.
__device__ __forceinline__ bool exponentials(const Scores& s, float (&sums)[Sizes::kRows / 4],
                                             const GroupStorage& group, const Lane& lane,
                                             uint32_t p) {
  const int of_warp = threadIdx.x % 32;
  __half2 top = __float2half2_rn(0);
#pragma unroll
  for (int j = 0; j < Sizes::kRows / 4; j++) sums[j] = 0;
#pragma unroll
  for (int block = 0; block < Sizes::kKeyBlocks; block++) {
    // The core matrices of 16 keys of this warp: 8 keys of all rows, and the next 8.
    const uint32_t to = p + 16 * Sizes::kRows * (8 * block + 2 * lane.warp);
    uint32_t words[Sizes::kRows / 8][2];
#pragma unroll
    for (int j = 0; j < Sizes::kRows / 8; j++) {
      const float4 f = *reinterpret_cast<const float4*>(&group.factors[8 * j + 2 * lane.t]);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const float x = ptx::ex2_approx_ftz(fmaf(s[block][4 * j + 2 * i], f.x, f.y));
        const float y = ptx::ex2_approx_ftz(fmaf(s[block][4 * j + 2 * i + 1], f.z, f.w));
        sums[2 * j] += x;
        sums[2 * j + 1] += y;
        const __half2 pair = __floats2half2_rn(x, y);
        top = __hmax2(top, pair);
        words[j][i] = reinterpret_cast<const uint32_t&>(pair);
      }
    }
    if constexpr (Sizes::kRows == 8) {
      ptx::stmatrix_x2_trans(to + of_warp % 16 * 16, words[0][0], words[0][1]);
    } else {
      const uint32_t row = of_warp % 8 * 16 + of_warp / 8 % 2 * 16 * Sizes::kRows +
                           of_warp / 16 * 128;
#pragma unroll
      for (int j = 0; j < Sizes::kRows / 8; j += 2) {
        ptx::stmatrix_x4_trans(to + row + 128 * j, words[j][0], words[j][1], words[j + 1][0],
                               words[j + 1][1]);
      }
    }
  }
  const uint32_t both = reinterpret_cast<const uint32_t&>(top);
  return (both & 0xFFFF) > kLargestP || both >> 16 > kLargestP;
}

// Raises the references of the rows to their largest score so far, and rescales O and the sums. It
// happens at the first tile of a unit, and then rarely.
__device__ __forceinline__ void raise_reference(const Scores& s, RowState& rows,
                                                GroupStorage& group, const Lane& lane) {
  const int barrier = kGroupBarrier + lane.group;
#pragma unroll
  for (int j = 0; j < Sizes::kRows / 4; j++) {
    float top = -INFINITY;
#pragma unroll
    for (int block = 0; block < Sizes::kKeyBlocks; block++) {
      const int at = j / 2 * 4 + j % 2;
      top = fmaxf(top, fmaxf(s[block][at], s[block][at + 2]));
    }
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
      top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
    }
    if (lane.g == 0) group.warp_max[lane.warp][j / 2 * 8 + 2 * lane.t + j % 2] = top;
  }
  ptx::barrier_sync(barrier, Sizes::kGroupThreads);
  float raised[Sizes::kRows / 4];
#pragma unroll
  for (int j = 0; j < Sizes::kRows / 4; j++) {
    const int row = j / 2 * 8 + 2 * lane.t + j % 2;
    const float before = group.reference[row], scale = group.factors[row].x;
    float top = before;
#pragma unroll
    for (int i = 0; i < 4; i++) top = fmaxf(top, group.warp_max[i][row]);
    raised[j] = top;
    const float rescale = before == -INFINITY ? 0 : ptx::ex2_approx_ftz((before - top) * scale);
    rows.row_sum[j] *= rescale;
#pragma unroll
    for (int block = 0; block < Sizes::kColumnBlocks; block++) {
      rows.o[block][j / 2 * 4 + j % 2] *= rescale;
      rows.o[block][j / 2 * 4 + 2 + j % 2] *= rescale;
    }
  }
  ptx::barrier_sync(barrier, Sizes::kGroupThreads);
  if (lane.warp == 0 && lane.g == 0) {
#pragma unroll
    for (int j = 0; j < Sizes::kRows / 4; j++) {
      const int row = j / 2 * 8 + 2 * lane.t + j % 2;
      group.reference[row] = raised[j];
      group.factors[row].y =
          raised[j] == -INFINITY ? kUnset : kMaxOffset - raised[j] * group.factors[row].x;
    }
  }
  ptx::barrier_sync(barrier, Sizes::kGroupThreads);
}

// S^T becomes P^T in shared memory. The barrier tells all warps whether the references hold.
__device__ __forceinline__ void softmax(const Scores& s, RowState& rows, GroupStorage& group,
                                        const Lane& lane, uint32_t p, bool is_first) {
  float sums[Sizes::kRows / 4];
#pragma unroll 1
  for (bool raise = is_first;; raise = true) {
    if (raise) raise_reference(s, rows, group, lane);
    const bool large = exponentials(s, sums, group, lane, p);
    ptx::fence_proxy_async();
    if (!ptx::barrier_red_or(kGroupBarrier + lane.group, Sizes::kGroupThreads, large && !raise)) {
      break;
    }
  }
#pragma unroll
  for (int j = 0; j < Sizes::kRows / 4; j++) rows.row_sum[j] += sums[j];
}

// The tiles of a unit that this warpgroup has: of those of the block `next` and every kGroups-th
// behind it.
class MainLoop {
 public:
  using State = KvState;

  __device__ __forceinline__ MainLoop(const Params& p, SharedStorage& shared, const Lane& lane,
                                      int index)
      : p_(p), shared_(shared), group_(shared.group[lane.group]), lane_(lane),
        unit_(shared.unit[index % 2]), end_(unit_.cursor.keys.end),
        first_row_(unit_.facts.first_row) {}

  // `next` becomes the first tile of the next unit.
  __device__ __forceinline__ void run(RowState& rows, KvState& state, int& next) {
    const int tiles = unit_.cursor.tiles_of_unit();
    rows.clear();
    clear_references();
    if (next < tiles && end_ == 0) {  // the only tile of a unit without keys
      ptx::mbarrier_try_wait_parity(&shared_.full[state.stage], state.phase);
      arrive(&shared_.empty[state.stage]);
      state.advance(Sizes::kGroups);
      next += Sizes::kGroups;
    } else if (next < tiles) {
      Scores s;
      Keys keys;
      bool is_first = true;
      int tile_key = unit_.cursor.first_key() + next * Sizes::kTileN;
      load_keys(keys, state);
      start_scores(s, keys);
      for (int buffer = 0;; buffer ^= 1) {
        Values values;
        if constexpr (Sizes::kConvertsBeside) load_values(values, state, tile_key);
        finish_scores(s, tile_key);
        softmax(s, rows, group_, lane_, ptx::shared_address(group_.p[buffer]), is_first);
        is_first = false;
        if constexpr (!Sizes::kConvertsBeside) load_values(values, state, tile_key);
        start_outputs(rows, values, state, buffer);
        state.advance(Sizes::kGroups);
        next += Sizes::kGroups;
        if (next >= tiles) break;
        tile_key += Sizes::kGroups * Sizes::kTileN;
        if constexpr (Sizes::kConvertsBeside) load_keys(keys, state);
        ptx::wgmma_wait_group<0>();
        rows.fence();
        if constexpr (!Sizes::kConvertsBeside) load_keys(keys, state);
        start_scores(s, keys);
      }
      ptx::wgmma_wait_group<0>();
      rows.fence();
    }
    next -= tiles;
  }

 private:
  using Keys = KeyOperand[Sizes::kChunks][Sizes::kKeyBlocks];
  using Values = ValueOperand[Sizes::kChunks];

  __device__ __forceinline__ void clear_references() {
    const int row = threadIdx.x % Sizes::kGroupThreads;
    if (row < Sizes::kRows) {
      group_.factors[row] = {unit_.scale[row], kUnset};
      group_.reference[row] = -INFINITY;
    }
    ptx::barrier_sync(kGroupBarrier + lane_.group, Sizes::kGroupThreads);
  }

  __device__ __forceinline__ void load_keys(Keys& keys, const KvState& state) {
    ptx::mbarrier_try_wait_parity(&shared_.full[state.stage], state.phase);
    const uint32_t tile = ptx::shared_address(shared_.k[state.stage]);
#pragma unroll
    for (int chunk = 0; chunk < Sizes::kChunks; chunk++) {
#pragma unroll
      for (int block = 0; block < Sizes::kKeyBlocks; block++) {
        keys[chunk][block].load(tile, lane_, block, chunk);
      }
    }
  }

  __device__ __forceinline__ void start_scores(Scores& s, const Keys& keys) {
    const uint32_t q = ptx::descriptor_address(unit_.q);
#pragma unroll
    for (int block = 0; block < Sizes::kKeyBlocks; block++) ptx::discard_registers(s[block]);
    ptx::wgmma_fence();
#pragma unroll
    for (int chunk = 0; chunk < Sizes::kChunks; chunk++) multiply_keys(s, keys[chunk], q, chunk);
    ptx::wgmma_commit_group();
  }

  __device__ __forceinline__ void load_values(Values& values, const KvState& state, int tile_key) {
    if (tile_key + Sizes::kTileN > end_) {
      clear_values(shared_.v[state.stage], lane_, end_ - tile_key);
    }
    const uint32_t tile = ptx::shared_address(shared_.v[state.stage]);
#pragma unroll
    for (int chunk = 0; chunk < Sizes::kChunks; chunk++) values[chunk].load(tile, lane_, chunk);
    arrive(&shared_.empty[state.stage]);
  }

  __device__ __forceinline__ void finish_scores(Scores& s, int tile_key) {
    ptx::wgmma_wait_group<0>();
#pragma unroll
    for (int block = 0; block < Sizes::kKeyBlocks; block++) ptx::fence_registers(s[block]);
    const bool whole = tile_key >= p_.window_begin(end_, p_.queries - 1) &&
                       tile_key + Sizes::kTileN <= p_.causal_end(end_, 0);
    if (!whole) mask(s, p_, lane_, first_row_, end_, tile_key);
  }

  __device__ __forceinline__ void start_outputs(RowState& rows, const Values& values,
                                                const KvState& state, int buffer) {
    const uint32_t weights = ptx::descriptor_address(group_.p[buffer]);
    rows.fence();
    ptx::wgmma_fence();
#pragma unroll
    for (int chunk = 0; chunk < Sizes::kChunks; chunk++) {
      multiply_values(rows, values[chunk], weights, chunk);
    }
    ptx::wgmma_commit_group();
  }

  const Params& p_;
  SharedStorage& shared_;
  GroupStorage& group_;
  const Lane& lane_;
  const UnitStorage& unit_;
  const int end_, first_row_;
};

// The result of this warpgroup to shared memory. Returns whether the unit is the last of the block.
__device__ __forceinline__ bool store_result(SharedStorage& shared, const RowState& rows,
                                             const Lane& lane, const Unit& unit) {
  const int count = unit.rows;
  GroupStorage& group = shared.group[lane.group];
  const int thread = threadIdx.x % Sizes::kGroupThreads;
  if (thread < Sizes::kRows) {  // it has set the reference of this row
    group.row_max[thread] = group.reference[thread] * group.factors[thread].x;
  }
  float row_sum[Sizes::kRows / 4];
#pragma unroll
  for (int j = 0; j < Sizes::kRows / 4; j++) row_sum[j] = rows.row_sum[j];
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) {  // all rows at once hide the latency
#pragma unroll
    for (int j = 0; j < Sizes::kRows / 4; j++) {
      row_sum[j] += __shfl_xor_sync(~0u, row_sum[j], distance);
    }
  }
#pragma unroll
  for (int j = 0; j < Sizes::kRows / 4; j++) {
    const int row = j / 2 * 8 + 2 * lane.t + j % 2, at = j / 2 * 4 + j % 2;
    if (row >= count) continue;  // padding
    if (lane.g == 0) reinterpret_cast<float*>(&group.row_sum[row])[lane.warp] = row_sum[j];
#pragma unroll
    for (int block = 0; block < Sizes::kColumnBlocks; block++) {
      const int column = block * Sizes::kBlockM + 16 * lane.warp + 2 * lane.g;
      *reinterpret_cast<float2*>(&group.o[row][column]) = {rows.o[block][at],
                                                           rows.o[block][at + 2]};
    }
  }
  return unit.is_last;
}

// Four columns of a row of the result of a warpgroup.
constexpr int kResults = Sizes::kGroups;
__device__ __forceinline__ RowPart load_result(const SharedStorage& shared, int index, int row,
                                               int column) {
  const GroupStorage& group = shared.group[index];
  const float4 sums = group.row_sum[row];
  return {group.row_max[row], sums.x + sums.y + sums.z + sums.w,
          *reinterpret_cast<const float4*>(&group.o[row][column])};
}

}  // namespace attention::decode
