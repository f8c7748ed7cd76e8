// Q of a head as the operands A of Q·K^T, in FP16. E4M3 is exact there. BF16 has a wider range, so
// each row of it has a power of two as scale, which brings its largest magnitude to [2^14, 2^15).
// So elements down to 2^-28 of the largest keep all their bits.
#pragma once

#include "shared_storage.cuh"

namespace attention::decode {

__device__ __forceinline__ uint32_t pack_half2(float x, float y) {
  const __half2 pair = __floats2half2_rn(x, y);
  return reinterpret_cast<const uint32_t&>(pair);
}

// This lane's share of a row: elements 16i + 4t to 16i + 4t + 3, of which mma takes the first two
// as k = 2t, 2t+1 and the others as k = 2t+8, 2t+9. K is loaded in the same order.
struct RowElements {
  static constexpr int kChunks = Sizes::kHeadDim / 16;
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
  __device__ __forceinline__ float4 floats_of_bf16(int i) const {
    return {__uint_as_float(x[i].x << 16), __uint_as_float(x[i].x & 0xFFFF0000),
            __uint_as_float(x[i].y << 16), __uint_as_float(x[i].y & 0xFFFF0000)};
  }
};

// Rows g and g+8 of a head. With up to 8 rows the second one is padding, zeros.
struct Queries {
  RowElements of_row[2];
  float descale[2] = {0, 0};

  // `row` has the two rows; that of padding is the last of the head.
  __device__ __forceinline__ Queries(const Params& p, int sequence, int kv_head,
                                     const int (&row)[2]) {
    const int count = p.rows() > 8 ? 2 : 1;
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(p.q_bf16);
    if (p.q_bf16 == nullptr) halves = reinterpret_cast<const uint16_t*>(p.q_fp16);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (r >= count) break;
      const int in_group = row[r] / p.queries, query = row[r] - in_group * p.queries;
      const int head = kv_head * p.group + in_group;
      if constexpr (Sizes::kQInHalves) {
        const Strides& s = p.q_strides;
        of_row[r].load_halves(halves + sequence * s.batch + head * s.head + query * s.row);
        descale[r] = 1;
      } else {
        const size_t of_all = static_cast<size_t>(sequence) * p.kv_heads * p.group + head;
        of_row[r].load_codes(p.q + (of_all * p.queries + query) * Sizes::kHeadDim);
        descale[r] = p.descale_q[of_all];
      }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      if (r >= count) break;
      if constexpr (!Sizes::kQInHalves) {
        of_row[r].convert_codes();
      } else if (p.q_bf16 != nullptr) {
        descale[r] = of_row[r].convert_bf16();
      }
    }
  }

  // Operand A of chunk i.
  __device__ __forceinline__ uint4 operand(int i) const {
    const uint2 &low = of_row[0].x[i], &high = of_row[1].x[i];
    return {low.x, high.x, low.y, high.y};
  }
};

}  // namespace attention::decode
