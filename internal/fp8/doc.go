// Package fp8 holds the two 8-bit floating-point formats of NVIDIA's tensor cores, exactly, and turns numbers into them.
//
// E4M3 is the "FN" kind: four exponent bits, three mantissa bits, no infinities, one NaN of either sign, largest value
// 448. E5M2 follows IEEE 754: five exponent bits, two mantissa bits, infinities and NaNs, largest finite value 57344.
//
// Encoding does what the GPU does: it rounds to nearest, ties to even, saturates to the largest finite value and makes
// every NaN 0x7F, as cvt.rn.satfinite.e4m3x2.f32 and cvt.rn.satfinite.e5m2x2.f32 do bit for bit. So a simulator, an
// oracle and a kernel agree on every code, and the tests say so for every rounding boundary.
//
// Quantising is the step before: eight bits cover little range, so a group of numbers shares one float32 descale
// factor, which maps its largest magnitude to 448. A stored number is worth code times descale.
//
// The package does no arithmetic on FP8 numbers. It knows nothing of tensors beyond "heads of equal length".
package fp8
