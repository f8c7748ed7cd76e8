// The main loop of a consumer warp over the tiles of a head: Q·K^T, online softmax, P·V.
#pragma once

#include "query.cuh"

namespace attention::decode {

// P is at most 2^8, which moves small P out of the subnormal range of FP16.
constexpr float kMaxOffset = 8.0f;
constexpr float kLog2E = 1.4426950408889634f;

// The state of a warp. Lane 4g+t has rows g and g+8, as the accumulators of mma have them.
struct RowState {
  static constexpr int kHeadDim = Sizes::kHeadDim;

  uint4 q[Sizes::kQInShared ? 1 : RowElements::kChunks];  // operands A of Q·K^T
  // Accumulators of P·V. Column c of each 32 columns of O is column c / 4 of n-tile c % 4, because
  // a lane loads V by words of four columns.
  float o[kHeadDim / 8][4];
  float row_max[2];
  float row_sum[2];     // of this lane's keys
  float scale_log2[2];  // of the scores, in log2 units

  // Starts a head: loads its Q.
  __device__ __forceinline__ void start(const Params& p, SharedStorage& shared,
                                        const Cursor& cursor) {
    const int g = threadIdx.x % 32 / 4, rows = p.rows();
    const int row[2] = {min(g, rows - 1), min(g + 8, rows - 1)};  // padding repeats the last row
    const Queries queries(p, cursor.sequence, cursor.head, row);
    store_queries(shared, queries);
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) o[n][i] = 0;
    }
    const float scale =
        p.softmax_scale * kLog2E * p.descale_k[cursor.sequence * p.kv_heads + cursor.head];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      row_max[r] = -INFINITY;
      row_sum[r] = 0;
      scale_log2[r] = scale * queries.descale[r];
      if (scale_log2[r] == 0) scale_log2[r] = 1e-30f;  // 0 times the -inf of a mask would be NaN
    }
  }

  // Q to registers, or to shared memory: a warp writes its share. All warps have read the head
  // before, because the epilogue has barriers.
  __device__ __forceinline__ void store_queries(SharedStorage& shared, const Queries& queries) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < RowElements::kChunks; i++) {
      if constexpr (!Sizes::kQStaged) {
        q[i] = queries.operand(i);
      } else if (i % Sizes::kWarps == threadIdx.x / 32) {
        shared.q[i][lane] = queries.operand(i);
      }
    }
    if constexpr (Sizes::kQStaged) ptx::barrier_sync(kConsumerBarrier, Sizes::kConsumers);
    if constexpr (Sizes::kQStaged && !Sizes::kQInShared) {
#pragma unroll
      for (int i = 0; i < RowElements::kChunks; i++) q[i] = shared.q[i][lane];
    }
  }

  // Operand A of chunk i.
  __device__ __forceinline__ uint4 query(const SharedStorage& shared, int i) const {
    if constexpr (Sizes::kQInShared) return shared.q[i][threadIdx.x % 32];
    return q[i];
  }
};

// S = Q·K^T of 16 rows and the 32 keys of a warp. The four columns of K in a word go to the places
// of the contraction where Q has them.
__device__ __forceinline__ void gemm_qk(float (&s)[4][4], const RowState& rows,
                                        const SharedStorage& shared, const LaneOffsets& offsets,
                                        uint32_t k_tile) {
#pragma unroll
  for (int n = 0; n < 4; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[n][i] = 0;
  }
  // If the loop were unrolled, ptxas would load all of Q first: it would be in registers again.
#pragma unroll(Sizes::kQInShared ? 1 : Sizes::kHeadDim / 64)
  for (int d = 0; d < Sizes::kHeadDim; d += 64) {
    uint32_t k[4][4];
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const uint32_t from = k_tile + (offsets.k ^ d % Sizes::kBoxBytes);
      ptx::ldmatrix_x4(k[n], from + octet_offset(n, d));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint4 q = rows.query(shared, d / 16 + i);
#pragma unroll
      for (int n = 0; n < 4; n++) {
        ptx::mma_m16n8k16_f16(s[n], q, ptx::cvt_rn_f16x2_e4m3x2_low(k[n][i]),
                              ptx::cvt_rn_f16x2_e4m3x2_high(k[n][i]));
      }
    }
  }
}

// Masks the keys that a row does not see. Few tiles of a head need it, so it keeps nothing in
// registers between them.
__device__ __forceinline__ void mask(float (&s)[4][4], const Params& p, int keys_end,
                                     int first_key) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int query = (g + 8 * r) % p.queries;
    const int begin = p.window_begin(keys_end, query), end = p.causal_end(keys_end, query);
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int key = first_key + 8 * n + 2 * t + i;
        if (key < begin || key >= end) s[n][2 * r + i] = -INFINITY;
      }
    }
  }
}

// S becomes P = exp2(S - row_max). O and row_sum are rescaled to the new row max. With up to 8 rows
// the upper half of each lane is padding, and its P is 0.
__device__ __forceinline__ void online_softmax(float (&s)[4][4], RowState& rows, int count) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (8 * r >= count) {
#pragma unroll
      for (int n = 0; n < 4; n++) s[n][2 * r] = s[n][2 * r + 1] = 0;
      continue;
    }
    const float scale = rows.scale_log2[r], before = rows.row_max[r];
    float row_max = before;
#pragma unroll
    for (int n = 0; n < 4; n++) row_max = fmaxf(row_max, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
    row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 1));
    row_max = fmaxf(row_max, __shfl_xor_sync(~0u, row_max, 2));
    rows.row_max[r] = row_max;
    // A row that has seen no key keeps -inf; its differences would be NaN.
    const float finite_max = row_max == -INFINITY ? 0 : row_max;
    const float rescale = ptx::ex2_approx_ftz((before - finite_max) * scale);
    const float neg_row_max_scaled = kMaxOffset - finite_max * scale;
    float row_sum = 0;
#pragma unroll
    for (int n = 0; n < 4; n++) {
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; i++) {
        s[n][i] = ptx::ex2_approx_ftz(fmaf(s[n][i], scale, neg_row_max_scaled));
        row_sum += s[n][i];
      }
    }
    rows.row_sum[r] = fmaf(rows.row_sum[r], rescale, row_sum);
    if (__any_sync(~0u, rescale != 1)) {
#pragma unroll
      for (int n = 0; n < Sizes::kHeadDim / 8; n++) {
        rows.o[n][2 * r] *= rescale;
        rows.o[n][2 * r + 1] *= rescale;
      }
    }
  }
}

// Four words with four columns of one key each become four words with four keys of one column.
__device__ __forceinline__ void transpose_4x4(uint32_t (&w)[4]) {
  const uint32_t low01 = __byte_perm(w[0], w[1], 0x5140), low23 = __byte_perm(w[2], w[3], 0x5140);
  const uint32_t high01 = __byte_perm(w[0], w[1], 0x7362);
  const uint32_t high23 = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(low01, low23, 0x5410);
  w[1] = __byte_perm(low01, low23, 0x7632);
  w[2] = __byte_perm(high01, high23, 0x5410);
  w[3] = __byte_perm(high01, high23, 0x7632);
}

// O += P·V of 16 rows and the 32 keys of a warp, 16 keys a step. The order of the keys is that of
// the accumulators of S: of each 16 keys a lane has 2t, 2t+1, 8+2t and 9+2t. `valid` keys are in
// the sequence. With kPartial the others count as zeros: their bytes may be anything, and 0 times
// NaN is NaN.
template <bool kPartial>
__device__ __forceinline__ void gemm_pv(RowState& rows, const float (&p)[4][4],
                                        const LaneOffsets& offsets, uint32_t v_tile, int valid) {
  const int t = threadIdx.x % 4;
  uint32_t a[2][4];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int r = 2 * (i % 2), n = i / 2;
    uint32_t& word = a[i / 4][i % 4];
    word = pack_half2(p[n][r], p[n][r + 1]);
    if (Sizes::kHeadDim == 64) word = __byte_perm(word, 0, swaps_keys() ? 0x1032 : 0x3210);
  }
#pragma unroll
  for (int d = 0; d < Sizes::kHeadDim; d += 32) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int octet = 2 * half + i / 2, key = 2 * t + (i % 2 ^ swaps_keys());
        const uint32_t from = v_tile + offsets.v[d % Sizes::kBoxBytes / 32][i % 2];
        v[i] = ptx::ld_shared_4(from + octet_offset(octet, d));
        if (kPartial && 8 * octet + key >= valid) v[i] = 0;
      }
      transpose_4x4(v);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        ptx::mma_m16n8k16_f16(rows.o[d / 8 + j], {a[half][0], a[half][1], a[half][2], a[half][3]},
                              ptx::cvt_rn_f16x2_e4m3x2_low(v[j]),
                              ptx::cvt_rn_f16x2_e4m3x2_high(v[j]));
      }
    }
  }
}

// The step of one tile. The rows see keys from `begin` on; the sequence ends before key `end`.
__device__ __forceinline__ void step(const Params& p, SharedStorage& shared, RowState& rows,
                                     const LaneOffsets& offsets, int begin, int end, int tile_key,
                                     int stage) {
  const int warp = threadIdx.x / 32, first_key = tile_key + warp * Sizes::kWarpN;
  const int behind = first_key + Sizes::kWarpN;
  // The stage has no keys of this warp that a row sees, and perhaps none at all.
  if (first_key >= end || behind <= begin) return;
  const bool whole = first_key >= p.window_begin(end, p.queries - 1) &&
                     behind <= p.causal_end(end, 0);
  const uint32_t k_tile = ptx::shared_address(shared.k[stage]);
  const uint32_t v_tile = ptx::shared_address(shared.v[stage]);
  float s[4][4];
  gemm_qk(s, rows, shared, offsets, k_tile);
  if (!whole) mask(s, p, end, first_key);
  online_softmax(s, rows, p.rows());
  if (whole) {
    gemm_pv<false>(rows, s, offsets, v_tile, 0);
  } else {
    gemm_pv<true>(rows, s, offsets, v_tile, end - first_key);
  }
}

// The tiles of a head that this block has.
__device__ __forceinline__ void mainloop(const Params& p, SharedStorage& shared, RowState& rows,
                                         const LaneOffsets& offsets, const Cursor& cursor,
                                         KvState& state) {
  const int begin = cursor.keys.begin, end = cursor.keys.end;
  int tile_key = cursor.first_key();
  const int behind = tile_key + cursor.tiles_of_head() * Sizes::kTileN;
  for (; tile_key < behind; tile_key += Sizes::kTileN) {
    ptx::mbarrier_try_wait_parity(&shared.full[state.stage], state.phase);
    step(p, shared, rows, offsets, begin, end, tile_key, state.stage);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[state.stage]);
    state.advance();
  }
}

}  // namespace attention::decode
