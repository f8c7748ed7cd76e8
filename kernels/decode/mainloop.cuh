// The main loop of a consumer warp over the tiles of a head: Q·K^T, online softmax, P·V.
#pragma once

#include "shared_storage.cuh"

// P is at most 2^8 (FA3: Max_offset). E4M3 has the same relative precision up to its maximum, 448.
// So the scale costs nothing and moves small P out of the subnormal range.
constexpr float kMaxOffset = 8.0f;
constexpr float kLog2E = 1.4426950408889634f;

// The state of a warp. Lane 4g+t has rows g and g+8, as the accumulators of mma have them.
struct RowState {
  static constexpr int kHeadDim = Sizes::kHeadDim;

  uint4 q[Sizes::kQInShared ? 1 : kHeadDim / 32];  // operands A of Q·K^T
  // Accumulators of P·V. Column c of each 32 columns of O is column c / 4 of n-tile c % 4, because
  // a lane loads V by words of four columns.
  float o[kHeadDim / 8][4];
  float row_max[2] = {-INFINITY, -INFINITY};
  float row_sum[2] = {0, 0};  // of this lane's keys
  float scale_log2[2];        // of the scores, in log2 units

  __device__ __forceinline__ RowState(const Params& p, SharedStorage& shared,
                                      const Cursor& cursor) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, rows = p.rows();
    const size_t head = static_cast<size_t>(cursor.sequence) * p.kv_heads + cursor.head;
    const uint8_t* of_head = p.q + head * rows * kHeadDim;
    const int row[2] = {min(g, rows - 1), min(g + 8, rows - 1)};  // padding repeats the last row
    const uint32_t* low = reinterpret_cast<const uint32_t*>(of_head + row[0] * kHeadDim) + t;
    const uint32_t* high = reinterpret_cast<const uint32_t*>(of_head + row[1] * kHeadDim) + t;
#pragma unroll
    for (int k = 0; k < kHeadDim / 32; k++) {
      query(shared, k) = {low[8 * k], high[8 * k], low[8 * k + 4], high[8 * k + 4]};
    }
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) o[n][i] = 0;
    }
    const float scale = p.softmax_scale * kLog2E * p.descale_k[head];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      scale_log2[r] = scale * p.descale_q[head * p.group + row[r] / p.queries];
      if (scale_log2[r] == 0) scale_log2[r] = 1e-30f;  // 0 times the -inf of a mask would be NaN
    }
  }

  // Operand A of k-step k.
  __device__ __forceinline__ uint4& query(SharedStorage& shared, int k) {
    if (!Sizes::kQInShared) return q[k];
    const int warp = threadIdx.x / 32;
    return shared.q[(warp * (kHeadDim / 32) + k) * 32 + threadIdx.x % 32];
  }
};

// S = Q·K^T of 16 rows and the 32 keys of a warp.
__device__ __forceinline__ void gemm_qk(float (&s)[4][4], RowState& rows, SharedStorage& shared,
                                        uint32_t k_warp) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < 4; n++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[n][i] = 0;
  }
  // If the loop were unrolled, ptxas would load all of Q first: it would be in registers again.
#pragma unroll(Sizes::kQInShared ? 1 : Sizes::kHeadDim / 64)
  for (int d = 0; d < Sizes::kHeadDim; d += 64) {
    const uint4 q[2] = {rows.query(shared, d / 32), rows.query(shared, d / 32 + 1)};
#pragma unroll
    for (int n = 0; n < 4; n++) {
      uint32_t k[4];
      ptx::ldmatrix_x4(k, k_warp + row_offset(n, lane % 8, d + lane / 8 * 16));
      ptx::mma_m16n8k32_e4m3(s[n], q[0], k[0], k[1]);
      ptx::mma_m16n8k32_e4m3(s[n], q[1], k[2], k[3]);
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

__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
  return ptx::cvt_rn_satfinite_e4m3x2_f32(a, b) |
         static_cast<uint32_t>(ptx::cvt_rn_satfinite_e4m3x2_f32(c, d)) << 16;
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

// The order of the keys 2t and 2t+1 in a lane's operands of P·V. Rows of 64 bytes: the even rows of
// a tile are in one half of the banks, so the odd lanes read the odd row first.
__device__ __forceinline__ int swaps_keys() {
  return Sizes::kHeadDim == 64 ? threadIdx.x % 2 : 0;
}

// O += P·V of 16 rows and the 32 keys of a warp. The order of the keys is that of the accumulators
// of S: of each 16 keys a lane has 2t, 2t+1, 8+2t and 9+2t. On sm_90a ptxas makes two FP16 mma of
// an E4M3 one and adds their sum in FP32. So O keeps its bits, as it would not in an E4M3 wgmma.
// `valid` keys are in the sequence. With kPartial the others count as zeros: their bytes may be
// anything, and 0 times NaN is NaN.
template <bool kPartial>
__device__ __forceinline__ void gemm_pv(RowState& rows, const float (&p)[4][4], uint32_t v_warp,
                                        int valid) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int r = 2 * (i % 2), n = 2 * (i / 2);
    words[i] = pack_e4m3(p[n][r], p[n][r + 1], p[n + 1][r], p[n + 1][r + 1]);
    if (Sizes::kHeadDim == 64) words[i] = __byte_perm(words[i], 0, swaps_keys() ? 0x2301 : 0x3210);
  }
  const uint4 a = {words[0], words[1], words[2], words[3]};
#pragma unroll
  for (int d = 0; d < Sizes::kHeadDim; d += 32) {
    uint32_t v[2][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int octet = 2 * half + i / 2, key = 2 * t + (i % 2 ^ swaps_keys());
        v[half][i] = ptx::ld_shared_4(v_warp + row_offset(octet, key, d + 4 * g));
        if (kPartial && 8 * octet + key >= valid) v[half][i] = 0;
      }
      transpose_4x4(v[half]);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      ptx::mma_m16n8k32_e4m3(rows.o[d / 8 + j], a, v[0][j], v[1][j]);
    }
  }
}

// The step of one tile. The rows see keys from `begin` on; the sequence ends before key `end`.
__device__ __forceinline__ void step(const Params& p, SharedStorage& shared, RowState& rows,
                                     int begin, int end, int tile_key, int stage) {
  const int warp = threadIdx.x / 32, first_key = tile_key + warp * Sizes::kWarpN;
  const int behind = first_key + Sizes::kWarpN;
  // The stage has no keys of this warp that a row sees, and perhaps none at all.
  if (first_key >= end || behind <= begin) return;
  const bool whole = first_key >= p.window_begin(end, p.queries - 1) &&
                     behind <= p.causal_end(end, 0);
  const uint32_t k_warp = ptx::shared_address(shared.k[stage]) + warp_offset(warp);
  const uint32_t v_warp = ptx::shared_address(shared.v[stage]) + warp_offset(warp);
  float s[4][4];
  gemm_qk(s, rows, shared, k_warp);
  if (!whole) mask(s, p, end, first_key);
  online_softmax(s, rows, p.rows());
  if (whole) {
    gemm_pv<false>(rows, s, v_warp, 0);
  } else {
    gemm_pv<true>(rows, s, v_warp, end - first_key);
  }
}

// The tiles of a head that this block has.
__device__ __forceinline__ void mainloop(const Params& p, SharedStorage& shared, RowState& rows,
                                         const Cursor& cursor, PipelineState& state) {
  const int begin = cursor.keys.begin, end = cursor.keys.end;
  int tile_key = cursor.first_key();
  const int behind = tile_key + cursor.tiles_of_head() * Sizes::kTileN;
  for (; tile_key < behind; tile_key += Sizes::kTileN) {
    ptx::mbarrier_try_wait_parity(&shared.full[state.stage], state.phase);
    step(p, shared, rows, begin, end, tile_key, state.stage);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[state.stage]);
    state.advance();
  }
}
