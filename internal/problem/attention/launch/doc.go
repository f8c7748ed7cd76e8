// Package launch packs one launch of an attention kernel: the grid, and the arguments of the entry
// function with their tensor maps. It is apart from the rest of the problem, so that a program that
// only calls the kernels does not contain references, limits and gates.
package launch
