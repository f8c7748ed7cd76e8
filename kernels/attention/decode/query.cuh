// Q of a unit as operand of the products of Q and K, in FP16 unless K is BF16. E4M3 is exact there.
// BF16 has a wider range, so each row of it has a power of two as scale, which brings its largest
// magnitude to [2^14, 2^15). So elements down to 2^-28 of the largest keep all their bits.
#pragma once

#include "include/output.cuh"
#include "include/wgmma.cuh"
#include "shared_storage.cuh"

namespace attention::decode {

constexpr float kLog2E = 1.4426950408889634f;

// The summand of an exponent before a row has seen a key: P of the first key is infinite, which asks
// for a reference. That of a masked key is 0.
constexpr float kUnset = 1e30f;

__device__ __forceinline__ uint32_t pack_half2(float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return reinterpret_cast<const uint32_t&>(pair);
}

// This lane's share of a row: elements 16i + 4t to 16i + 4t + 3. With keys as M wgmma takes the first
// two as k = 2t, 2t+1 and the others as k = 2t+8, 2t+9. K is loaded in the same order.
struct RowElements {
  // Of 16 columns. A row of BF16 that is scaled is loaded as a whole.
  static constexpr int kChunks = Sizes::kCacheBytes == 2 ? 4 : Sizes::kHeadDim / 16;
  uint2 x[kChunks] = {};

  __device__ __forceinline__ void load_halves(const void* row) {
    const uint2* from = static_cast<const uint2*>(row) + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kChunks; i++) x[i] = __ldg(&from[4 * i]);
  }

  __device__ __forceinline__ void load_codes(const uint8_t* row) {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(row) + threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < kChunks; i++) x[i].x = __ldg(&from[4 * i]);
  }

  __device__ __forceinline__ void convert_codes() {
#pragma unroll
    for (int i = 0; i < kChunks; i++) {
      const uint32_t codes = x[i].x;
      x[i] = {ptx::cvt_rn_f16x2_e4m3x2_low(codes), ptx::cvt_rn_f16x2_e4m3x2_high(codes)};
    }
  }

  // FP16 that has been E4M3 to BF16, exactly.
  __device__ __forceinline__ void halves_to_bf16() {
#pragma unroll
    for (int i = 0; i < kChunks; i++) x[i] = {bf16_of(x[i].x), bf16_of(x[i].y)};
  }

  // Returns the inverse of the scale.
  __device__ __forceinline__ float convert_bf16() {
    float amax = 0;
#pragma unroll
    for (int i = 0; i < kChunks; i++) {
      const float4 f = floats_of_bf16(i);
      amax = fmaxf(amax, fmaxf(fmaxf(fabsf(f.x), fabsf(f.y)), fmaxf(fabsf(f.z), fabsf(f.w))));
    }
    amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 1));
    amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 2));
    // The bound leaves the inverse a normal number beside the other factors.
    const int exponent = min(14 + 127 - static_cast<int>(__float_as_uint(amax) >> 23), 112);
    const float scale = __int_as_float((127 + exponent) << 23);
#pragma unroll
    for (int i = 0; i < kChunks; i++) {
      const float4 f = floats_of_bf16(i);
      x[i] = {pack_half2(f.x * scale, f.y * scale), pack_half2(f.z * scale, f.w * scale)};
    }
    return __int_as_float((127 - exponent) << 23);
  }

 private:
  __device__ __forceinline__ static uint32_t bf16_of(uint32_t halves) {
    const float2 f = __half22float2(reinterpret_cast<const __half2&>(halves));
    return pack_output<true>(f.x, f.y);
  }
  __device__ __forceinline__ float4 floats_of_bf16(int i) const {
    return {__uint_as_float(x[i].x << 16), __uint_as_float(x[i].x & 0xFFFF0000),
            __uint_as_float(x[i].y << 16), __uint_as_float(x[i].y & 0xFFFF0000)};
  }
};

// Writes this lane's elements of a row of Q, from chunk `first` on. Rows that are padding are zeros.
__device__ __forceinline__ void store_elements(__half* q, int row, int first,
                                               const RowElements& elements, bool is_row) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < RowElements::kChunks; j++) {
    const uint2 x = is_row ? elements.x[j] : uint2{0, 0};
    const int i = first + j;
    if constexpr (Sizes::kRowsAsM) {  // blocks of 64 rows, panels of 64 columns, 128 bytes a row
      const int panel = row / 64 * (Sizes::kHeadDim / 64) + i / 4;
      uint8_t* to = reinterpret_cast<uint8_t*>(q) + panel * 64 * 128 +
                    swizzled_offset<128>(row % 64, i % 4 * 2 + t / 2);
      *reinterpret_cast<uint2*>(to + t % 2 * 8) = x;
    } else {
      uint32_t* to = reinterpret_cast<uint32_t*>(q) + row * 4 + t;
      to[(2 * i) * Sizes::kRows * 4] = x.x;
      to[(2 * i + 1) * Sizes::kRows * 4] = x.y;
    }
  }
}

// Loads a row of Q to shared memory. Returns the factor of its scores.
__device__ __forceinline__ float load_row(const Params& p, __half* q, int sequence, int head,
                                          int query, int row, bool is_row) {
  float descale = 1;
  // Not unrolled: the finishers have few registers.
#pragma unroll 1
  for (int chunk = 0; chunk < Sizes::kHeadDim / 16; chunk += RowElements::kChunks) {
    RowElements elements;
    if (p.q != nullptr) {
      const size_t of_all = static_cast<size_t>(sequence) * p.kv_heads * p.group + head;
      elements.load_codes(p.q + (of_all * p.queries + query) * Sizes::kHeadDim + 16 * chunk);
      descale = p.descale_q[of_all];
      elements.convert_codes();
      if constexpr (Sizes::kBf16) elements.halves_to_bf16();
    } else {
      const Strides& s = p.q_strides;
      const uint16_t* halves = reinterpret_cast<const uint16_t*>(p.q_bf16);
      if (p.q_bf16 == nullptr) halves = reinterpret_cast<const uint16_t*>(p.q_fp16);
      elements.load_halves(halves + sequence * s.batch + head * s.head + query * s.row +
                           16 * chunk);
      if (Sizes::kCacheBytes == 1 && p.q_bf16 != nullptr) descale = elements.convert_bf16();
    }
    store_elements(q, row, chunk, elements, is_row);
  }
  return descale;
}

// Loads Q of a unit to shared memory: four lanes have a row, and write it with its scale.
template <class Team>
__device__ __forceinline__ void load_queries(const Params& p, UnitStorage& unit, __half* q,
                                             int sequence, const Unit& facts) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int kv_head = facts.kv_head, first_row = facts.first_row, count = facts.rows;
  const float scale =
      p.softmax_scale * kLog2E * factor_of(p.descale_k, sequence * p.kv_heads + kv_head);
  for (int row8 = Team::thread() / 32 * 8; row8 < Sizes::kRows; row8 += Team::kThreads / 4) {
    const int row = row8 + g, of_head = first_row + min(row, count - 1);
    const int in_group = static_cast<unsigned>(of_head) / p.queries, query = of_head - in_group * p.queries;
    const int head = kv_head * p.group + in_group;
    const float descale = load_row(p, q, sequence, head, query, row, row < count);
    const float factor = scale * descale;
    if (t == 0) unit.scale[row] = factor == 0 ? 1e-30f : factor;  // 0 times -inf would be NaN
  }
  ptx::fence_proxy_async();
}

}  // namespace attention::decode
