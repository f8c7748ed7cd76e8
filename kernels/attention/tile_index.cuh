// The position of a persistent block in the sequence of all tiles.
#pragma once

#include "../include/ptx.cuh"

namespace attention {

// Position of a block in the sequence of all tiles. A block takes one tile of each round of
// gridDim.x tiles. Odd rounds run from the last block to the first: with a causal mask tiles get
// shorter along a round, so a block with a long tile gets a short one next. With `paired` a block
// takes two neighbouring tiles in two consecutive rounds.
struct TileIndex {
  unsigned round = 0, index;

  __device__ __forceinline__ explicit TileIndex(bool paired)
      : index(paired ? 2 * blockIdx.x : blockIdx.x) {}

  // The same position, opaque to the compiler: it derives the tile again instead of keeping it in
  // registers.
  __device__ __forceinline__ TileIndex opaque() const {
    TileIndex t = *this;
    t.index = ptx::opaque(index);
    return t;
  }

  __device__ __forceinline__ void next(bool paired) {
    ++round;
    const unsigned odd = round % 2;
    index = paired ? 2 * (round / 2 * gridDim.x + blockIdx.x) + odd
                   : round * gridDim.x + (odd ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }
};

// Division of values below 2^31 by a constant of the launch. An integer division takes about a
// hundred cycles, and every tile needs several.
struct Divisor {
  unsigned divisor, reciprocal;  // reciprocal in units of 2^-32

  __device__ __forceinline__ explicit Divisor(unsigned divisor)
      : divisor(divisor), reciprocal(~0u) {
    if (divisor != 1) reciprocal /= divisor;
  }
  // With the reciprocal of an earlier one.
  __device__ __forceinline__ Divisor(unsigned divisor, unsigned reciprocal)
      : divisor(divisor), reciprocal(reciprocal) {}
  __device__ __forceinline__ unsigned quotient(unsigned x) const {
    const unsigned low = __umulhi(x, reciprocal);  // at most one too small
    return low + (x - low * divisor >= divisor);
  }
};

}  // namespace attention
