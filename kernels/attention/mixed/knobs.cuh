// What the headers of stage7b need and this kernel does not vary.
#pragma once

#define STAGE7B_MIXED 1
#define KEY_GROUPS 1
#define USE_OVERLAP 0
#define USE_CHECKERBOARD 0
#define USE_DIRECT_V 0
#define TRANSPOSE_BATCH 0
#define USE_Q_IN_SHARED 0
#define USE_SKIP_MASKED 0
#define PRODUCER_REGISTERS 56
#define USE_LSE 0       // an argument decides
#define USE_BF16_OUT 0  // an argument decides
