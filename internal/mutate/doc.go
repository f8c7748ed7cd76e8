// Package mutate makes mutants of a kernel: copies of its PTX with one line changed.
//
// Each change is a plausible mistake: a missing barrier or wait, a comparison off by one, a wrong
// sign, a wrong offset, swapped operands, a negated guard. A test that passes on a mutant would
// miss that mistake. The share of mutants that it detects, the kill rate, measures the strength of
// a test.
//
//   - All lists the mutants of an entry function; Sample picks some of them.
//   - Mutant.Apply returns the mutated PTX.
//   - Report counts killed and surviving mutants.
//   - Original recognises equivalent mutants. It compares the machine code of mutant and original,
//     also after simplification with the known ranges of parameters, threads and blocks.
package mutate
