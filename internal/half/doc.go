// Package half holds the two 16-bit floating-point formats of GPUs: Float16 (IEEE 754 binary16) and BFloat16 (the upper
// half of a float32).
//
// Converting does what the GPU does, bit for bit: cvt.rn.f16.f32 and cvt.rn.bf16.f32 round to nearest, ties to even,
// keep subnormals, turn what is too large into infinity and every NaN into 0x7FFF. Widening is exact.
//
// The package converts; it does no arithmetic.
package half
