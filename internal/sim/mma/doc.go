// Package mma is the arithmetic of NVIDIA's tensor cores and the way matrices lie in registers and shared memory.
//
// PTX leaves both the rounding of a matrix product and, for wmma, the layout of its fragments open. A simulator has to
// choose. This package has the choices of the chips: Lookup reads the modifiers of mma, wmma, wgmma, ldmatrix, stmatrix
// and movmatrix; Instruction.Fragment says which element of a matrix is in which register of which lane;
// Instruction.Product multiplies; Descriptor finds the operands of wgmma in shared memory.
//
// In mode Exact a product has the bits that the chip gives. A tensor core adds a group of products and the accumulator
// in one step: it lines all of them up with the one of the largest exponent, cuts off what lies below a fixed number of
// fractional bits, adds the rest without error and rounds once. What differs is how many products go into a step, how
// many bits stay and how the sum is rounded (plan). On Hopper all of this was compared with an H200, see testdata. On
// Ampere and Ada it follows what is published about those chips, with the handling of zeros and of signs that Hopper
// shows. Modes F32 and F64 add one product after the other, for speed and for error budgets.
//
// For wmma the layout is drawn from a seed: programs must not depend on it, and those that do get wrong answers with
// another seed.
//
// The package is pure. It knows no warps, no memory and no waiting; matrices come and go as slices.
package mma
