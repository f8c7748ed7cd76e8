// Package fp8 converts to and from the two 8-bit floating-point formats of NVIDIA's tensor cores.
//
// E4M3 is the "FN" format: four exponent bits, three mantissa bits, no infinities, one NaN of
// either sign, largest value 448. E5M2 follows IEEE 754: five exponent bits, two mantissa bits,
// infinities and NaNs, largest finite value 57344.
//
// Encoding matches the GPU bit for bit (cvt.rn.satfinite.e4m3x2.f32, cvt.rn.satfinite.e5m2x2.f32).
// It rounds to nearest, ties to even, saturates to the largest finite value, and encodes every NaN
// as 0x7F. The simulator, the oracle and the kernels therefore agree on every code; the tests check
// every rounding boundary.
//
// Quantisation divides by a descale factor before encoding, because eight bits cover a small range.
// A group of values shares one float32 factor, which maps the group's largest magnitude to 448. The
// dequantised value of an element is its code's value times the descale factor.
//
// The package does no arithmetic on FP8 values and knows no tensor layout.
package fp8
