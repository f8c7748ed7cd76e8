// The profiler's calls of the driver, for compilers that come without NVIDIA's header.
#pragma once

#include "cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

#ifdef __cplusplus
}
#endif
