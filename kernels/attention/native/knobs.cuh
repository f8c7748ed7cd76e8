// What the headers of stage7b need and kernels/attention/native does not vary. It includes this before the
// other headers.
#pragma once

#define STAGE7B_HALVES 1
#define KEY_GROUPS 1
#define USE_OVERLAP 0
#define USE_Q_IN_SHARED 0
#define USE_CHECKERBOARD 0
#define USE_DIRECT_V 0
#define STAGGER_CYCLES 0
#define PRODUCER_REGISTERS 0
#define TRANSPOSE_BATCH 0
#define USE_LSE 0              // an argument decides
#define USE_BF16_OUT USE_BF16  // O has the type of Q, K and V
