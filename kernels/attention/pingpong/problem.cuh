// The problem: that of native, with what the stores and the order of the tiles need.
#pragma once

#include "attention/native/problem.cuh"

struct TensorMap;

namespace attention::pingpong {

struct Problem : native::Problem {
  float softmax_scale_log2;
  const TensorMap* o_map;
  unsigned* counters;  // (2) zeros: tiles that are taken, blocks that have ended
};

}  // namespace attention::pingpong
