// What the headers of stage7b need and this kernel does not vary.
#pragma once

#include "hopper/stage7b/halves/knobs.cuh"

#define KV_STAGES (TILE_M / 64)  // one for each consumer
