// Package arith computes the scalar PTX instructions, one lane at a time, on raw bits.
//
// Lookup parses an opcode and its modifiers once and returns an Op: the operand types and plain
// functions to call for each lane. The functions depend only on their arguments, allocate nothing
// and parse nothing.
//
// Results match an H200 bit for bit. Where the PTX ISA defines a result, the two agree. Where it
// leaves a result open, the package follows the H200:
//   - integer division by zero;
//   - the encodings of NaN results;
//   - which operands and results .ftz flushes;
//   - the special function unit (SFU) behind ex2, rcp, rsqrt, sqrt, lg2, sin, cos and tanh;
//   - the video instructions, for which ptxas emits code that deviates from the PTX ISA.
//
// Op.Approximate marks the instructions whose low bits the PTX ISA leaves to the hardware.
//
// One implementation serves all floating-point formats. It decodes operands into sign, significand
// and exponent, computes exactly, and rounds once in the requested direction (number.go, float.go).
// For f32 and f64 rounded to nearest even, the host's own arithmetic is faster and gives the same
// result.
//
// NaN rules: every NaN result of an f16, bf16 or f32 instruction is the canonical NaN, 0x7FFF or
// 0x7FFFFFFF. An f64 instruction keeps sign and payload of a NaN operand and makes it quiet; an
// invalid operation without NaN operands gives 0xFFF8000000000000. Exceptions are cvt (convert.go)
// and the gross approximations of f64 (approx.go).
//
// Lookup accepts the forms that PTX 9.0 has for sm_90a, with modifiers in any order. Every other
// form is an error that names the instruction. The package does not cover data movement, memory
// access, branches and instructions that communicate between lanes. It does not handle the
// selectors and the negation of video operands either, which are part of the operand syntax.
//
// Comments cite sections of the PTX ISA by title, because the numbers change between releases.
//
// The tests compare with exact rational arithmetic, with recorded kernels, and with H200 results
// for every form of every instruction except lop3.
package arith
