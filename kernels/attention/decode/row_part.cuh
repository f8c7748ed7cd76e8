// Results before they are normalised, as main loops leave them and the epilogue merges them.
#pragma once

#include "shared_storage.cuh"

namespace attention::decode {

// P of the reference of a row is 2^8, which moves small P out of the subnormal range of FP16.
constexpr float kMaxOffset = 8.0f;

// Four columns of a row, not normalised, with the row max in log2 units.
struct RowPart {
  float row_max, row_sum;
  float4 o;
};

// The factor of a part in a sum whose row max is `row_max`. A part without keys has none.
__device__ __forceinline__ float rescale(float part_max, float row_max) {
  return part_max == -INFINITY ? 0 : ptx::ex2_approx_ftz(part_max - row_max);
}

}  // namespace attention::decode
