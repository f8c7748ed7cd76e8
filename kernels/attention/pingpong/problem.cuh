// The problem: that of native, with what the work tiles and their order need.
#pragma once

#include "attention/native/problem.cuh"

namespace attention::pingpong {

struct Problem : native::Problem {
  float softmax_scale_log2;
  int head_rows;       // rows of a head among the 64 of a consumer: 64, or 32, 16 or 8 if packed
  unsigned* counters;  // (2) zeros: tiles that are taken, blocks that have ended; or null
};

}  // namespace attention::pingpong
