// What the lanes of a warpgroup know of its 64 rows where the queries are the rows: which of them a lane has, its sums, and how these are merged and written.
#pragma once

#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "knobs.cuh"
#include "output.cuh"
#include "ring.cuh"
#include "softmax.cuh"

namespace attention {

constexpr int kPartColumns = 64;  // of O, multiplied at a time
constexpr int kParts = knob::kHeadDim / kPartColumns;
constexpr int kLseKind = knob::kPolynomialEighths > 0 ? 3 : 2;  // the sums are of P as it was rounded, of lines or not

// The number of a warpgroup that computes: the same for all its lanes, and the compiler knows.
__device__ __forceinline__ int group_of_thread() { return __shfl_sync(0xFFFFFFFF, threadIdx.x / 128 - 1, 0); }

__device__ __forceinline__ constexpr int first_row_of(int group) { return kSharesKeys ? 0 : group * 64; }

// Found anew wherever it is asked for: products need the registers.
struct Lane {
  int g, t;  // 4g + t is its number
  int row;   // of the tile: its first of two, eight apart
  __device__ __forceinline__ Lane() {
    const unsigned thread = ptx::opaque(threadIdx.x);
    g = thread % 32 / 4, t = thread % 4, row = (kSharesKeys ? thread / 32 % 4 : thread / 32 - 4) * 16 + g;
  }
};

// What a lane knows of its two rows. A weight is 2^(factor * score + base), at most 2^kShift; the rows of O and the sum of P are sums of such.
struct Rows {
  float base[2];
  float sum[2];
  float o[kParts][kPartColumns / 2];
  float keep[2];  // what of the sums before the last step remains

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) base[half] = kUnseen, sum[half] = 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kPartColumns / 2; ++i) o[part][i] = 0.0f;
    }
  }
};

// Two warpgroups have sums over the keys of their own steps. Each gives the other half of its columns, and has the sums of the other half in their place.
// Who gives anew, two tiles on, has met with the other behind what that took.
__device__ __forceinline__ void merge(Rows& rows, const Ring& ring, int group, unsigned round) {
  constexpr int kHalf = knob::kHeadDim / 4;  // of a lane's numbers
  const auto o = [&](int i) -> float& { return rows.o[i / (kPartColumns / 2)][i % (kPartColumns / 2)]; };
  const auto given_by = [&](int of) { return ring.given + (round % 2 * kConsumers + of) * kGivenPieces * 128 + ptx::opaque(threadIdx.x) % 128; };
  float mine[kHalf];
  float4* give = given_by(group);
#pragma unroll
  for (int i = 0; i < kHalf; i += 4) {
    float away[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float lower = o(i + e), upper = o(i + e + kHalf);
      mine[i + e] = group > 0 ? upper : lower, away[e] = group > 0 ? lower : upper;
    }
    give[i / 4 * 128] = make_float4(away[0], away[1], away[2], away[3]);
  }
  give[kHalf / 4 * 128] = make_float4(rows.base[0], rows.base[1], rows.sum[0], rows.sum[1]);
  ptx::barrier_sync(1, 128 * kConsumers);
  const float4* take = given_by(1 - group);
  const float4 notes = take[kHalf / 4 * 128];
  const float base[2] = {notes.x, notes.y}, sum[2] = {notes.z, notes.w};
  float keep[2], add[2];  // what the sums of each count
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float lowest = fminf(rows.base[half], base[half]);
    keep[half] = ptx::ex2_approx_ftz(lowest - rows.base[half]), add[half] = ptx::ex2_approx_ftz(lowest - base[half]);
    rows.base[half] = lowest, rows.sum[half] = fmaf(rows.sum[half], keep[half], sum[half] * add[half]);
  }
#pragma unroll
  for (int i = 0; i < kHalf; i += 4) {
    const float4 piece = take[i / 4 * 128];
    const float other[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) o(i + e) = fmaf(mine[i + e], keep[e / 2], other[e] * add[e / 2]);
  }
}

// Of warpgroups with the same rows each writes its columns, and the first one the logarithms.
__device__ __forceinline__ void write(const Rows& rows, const Tile& tile, float descale, int queries, int key_group) {
  constexpr int kColumns = knob::kHeadDim / knob::kKeyGroups;
  const Lane lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = tile.first_query + lane.row + 8 * half;
    const float share = rows.sum[half] > 0.0f ? descale * ptx::rcp_approx_ftz(rows.sum[half]) : 0.0f;  // a query that sees no key has 0
    uint16_t* row = tile.o + static_cast<size_t>(query) * knob::kHeadDim + key_group * kColumns + 4 * lane.t;
    if (query >= queries) continue;
    if constexpr (knob::kLse) {
      if (lane.t == 0 && key_group == 0) tile.lse[query] = log_sum_exp(rows.sum[half], rows.base[half]);
    }
#pragma unroll
    for (int i = 0; i < kColumns / 16; ++i) {
      const float* o = &rows.o[i / (kPartColumns / 16)][i % (kPartColumns / 16) * 8 + 2 * half];
      *reinterpret_cast<uint2*>(row + 16 * i) = make_uint2(output_pair(o[0] * share, o[4] * share), output_pair(o[1] * share, o[5] * share));
    }
  }
}

}  // namespace attention
