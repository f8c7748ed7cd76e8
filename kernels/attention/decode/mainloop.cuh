// The main loop of the form: query rows or keys as the rows of wgmma (M).
#pragma once

#include "traits.cuh"

#if USE_ROWS_AS_M
#include "mainloop_rows.cuh"
#else
#include "mainloop_keys.cuh"
#endif
