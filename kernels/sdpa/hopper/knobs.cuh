// The knobs of the kernels for wgmma as named constants.
#pragma once

#include "../common/knobs.cuh"

namespace knob {

constexpr int kKeyGroups = KEY_GROUPS;                  // warpgroups of a block that share out the keys
constexpr int kKvStages = KV_STAGES;                    // tiles of K and V in the ring, if the queries are the rows
constexpr bool kQInShared = USE_Q_IN_SHARED;            // instead of registers
constexpr bool kOverlap = USE_OVERLAP;                  // of P * V with the next step's scores
constexpr bool kSkipMasked = USE_SKIP_MASKED;           // steps of which a warpgroup sees no key, with a causal mask
constexpr int kStagger = STAGGER_CYCLES;                // by which each warpgroup begins behind the one before
constexpr int kProducerRegisters = PRODUCER_REGISTERS;  // of a thread that brings K and V; those that compute share the rest
constexpr int kPolynomialEighths = POLYNOMIAL_EIGHTHS;  // of the exponentials
constexpr bool kLse = USE_LSE;                          // the logarithms of the sums are written as well
constexpr bool kBf16Out = USE_BF16_OUT;                 // O is BF16 instead of FP16
constexpr int kBlocks = BLOCKS_PER_SM;                  // on a multiprocessor, for which the compiler leaves registers

}  // namespace knob
