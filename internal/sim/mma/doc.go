// Package mma computes the matrix products of NVIDIA's tensor cores, and describes how matrices lie
// in registers and shared memory.
//
//   - Lookup parses the modifiers of mma, wmma, wgmma, ldmatrix, stmatrix and movmatrix.
//   - Instruction.Fragment maps the elements of a matrix to the registers of the lanes.
//   - Instruction.Product returns the arithmetic of a product.
//   - Descriptor locates the operands of wgmma in shared memory.
//
// The PTX ISA leaves the rounding of floating-point matrix products open. In mode Exact a product
// has the bits that the hardware gives. A tensor core adds a group of products and the accumulator
// in one step:
//  1. It aligns all terms to the largest exponent.
//  2. It truncates each term to a fixed number of fraction bits.
//  3. It adds the truncated terms exactly and rounds the sum once.
//
// Generations differ in the number of products per step, in the number of fraction bits and in the
// final rounding (plan). The Hopper model agrees bit for bit with recordings from an H200
// (testdata). The Ampere and Ada models follow publications about those GPUs; zeros and signs are
// treated as on Hopper. NaN results are canonical: 0x7FFF for f16, 0x7FFFFFFF for f32. Modes F32Sum
// and F64Sum add one product at a time, for speed and for error budgets.
//
// The PTX ISA also leaves the register layout of wmma fragments open. The package derives that
// layout from a seed, so a program that depends on it gives wrong results with another seed.
//
// The package has no warps, no memory and no synchronisation; matrices are slices.
//
// Comments cite sections of the PTX ISA by title: Warp-Level Matrix Multiply-Accumulate
// Instructions for mma, wmma, ldmatrix, stmatrix and movmatrix; Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate Instructions for wgmma.
package mma
