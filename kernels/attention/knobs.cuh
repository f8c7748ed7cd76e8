// The knobs of stage7b as named constants.
#pragma once

#include "hopper_knobs.cuh"

// Not a knob: kernels/attention/prefill/prefill.cu defines it before it includes these headers.
#ifndef STAGE7B_OPTIONS
#define STAGE7B_OPTIONS 0
#endif

// Not a knob either: halves/knobs.cuh defines it, which kernels/attention/native/native.cu includes.
#ifndef STAGE7B_HALVES
#define STAGE7B_HALVES 0
#endif

// Nor this: kernels/attention/mixed/mixed.cu defines it.
#ifndef STAGE7B_MIXED
#define STAGE7B_MIXED 0
#endif

namespace knob {

constexpr bool kOptions = STAGE7B_OPTIONS;               // form.cuh
constexpr bool kHalves = STAGE7B_HALVES;                 // form.cuh
constexpr bool kMixed = STAGE7B_MIXED;                   // query.cuh
constexpr int kKvStages = KV_STAGES;                     // K/V tiles in the pipeline
constexpr bool kQInShared = USE_Q_IN_SHARED;             // Q in shared memory instead of registers
constexpr bool kOverlap = USE_OVERLAP;                   // P·V overlaps the next softmax step
constexpr bool kSkipMasked = USE_SKIP_MASKED;            // consumers skip steps that are all masked
constexpr int kStaggerCycles = STAGGER_CYCLES;           // start delay between consumer warpgroups
constexpr int kProducerRegisters = PRODUCER_REGISTERS;   // per producer thread
constexpr int kExp2LinearEighths = EXP2_LINEAR_EIGHTHS;  // linear exp2 approximation, of every 8
constexpr int kExp2Segments = EXP2_SEGMENTS;             // linear segments per octave
constexpr bool kCheckerboard = USE_CHECKERBOARD;         // linear exp2 alternates by row and key
constexpr bool kDirectV = USE_DIRECT_V;                  // V^T from global memory by registers
constexpr int kTransposeBatch = TRANSPOSE_BATCH;         // blocks of V transposed at a time

}  // namespace knob
