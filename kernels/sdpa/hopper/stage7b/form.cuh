// The form of the problem: plain tensors, or those of kernels/prefill with options. Each form has
// its work tiles and their order, the mask, the loads, and the stores.
#pragma once

#include "knobs.cuh"

#if STAGE7B_OPTIONS
#include "options/loads.cuh"
#include "options/output.cuh"
#include "options/tiles.cuh"
#else
#include "plain/loads.cuh"
#include "plain/output.cuh"
#include "plain/tiles.cuh"
#endif
