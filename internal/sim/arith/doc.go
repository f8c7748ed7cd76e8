// Package arith is the meaning of the scalar PTX instructions, one lane at a time: bits in, bits out.
//
// Lookup takes an opcode and its modifiers apart once and returns an Op: the types of its operands and plain
// functions to call for each lane. The functions depend on nothing but their arguments, allocate nothing and look at
// no text.
//
// The answers are those of an H200, bit for bit. Where PTX says what an instruction does, that is the same; where PTX
// leaves something open, the chip decides: division by zero, the bits of NaNs, what .ftz flushes, the unit behind
// ex2, rcp, rsqrt, sqrt, lg2, sin, cos and tanh, and the video instructions, in which the chip's compiler differs
// from PTX. Op.Approximate marks the instructions whose last bits PTX leaves to the chip.
//
// Floating point is done once for all formats: numbers are taken apart into sign, significand and exponent, operated
// on exactly, and rounded once, in any direction (number.go, float.go). For float32 and float64 rounded to nearest,
// the processor does the same faster. The tests hold it all against exact rational arithmetic, against recorded
// kernels, and every form of every instruction against the chip.
//
// An instruction is accepted in the forms that PTX 9.0 has for sm_90a, with modifiers in any order; all other forms
// are errors that name the instruction, never approximations of it. Not here: what moves data, reads memory, branches
// or needs other lanes; selectors and negation in operands of video instructions, which are syntax of operands.
package arith
