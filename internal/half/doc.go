// Package half converts to and from the two 16-bit floating-point formats of GPUs: Float16 (IEEE
// 754 binary16) and BFloat16 (the upper half of a float32).
//
// Narrowing matches the GPU bit for bit (cvt.rn.f16.f32, cvt.rn.bf16.f32). It rounds to nearest,
// ties to even, keeps subnormals, overflows to infinity, and encodes every NaN as 0x7FFF. Widening
// is exact.
//
// The package does no arithmetic.
package half
