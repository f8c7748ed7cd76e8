// Package tensor defines attention problems: the shape of a problem and its seeded inputs.
//
// A [Shape] is written 1x8x512x64, optionally with :kv=N, :kvheads=N and :causal. Parsing that text
// gives an equal Shape.
//
// [Draw] generates the inputs of a shape from a seed. The elements come from a normal distribution
// and are quantised to E4M3 with float32 descale factors. The original values are kept, so that the
// quantisation error of the inputs can be computed. The same shape, seed and options give the same
// bits on every machine and with any number of cores. A recorded run can therefore be repeated from
// its seed, and no input is ever stored. Two rules ensure this. The package has its own logarithm
// and normal quantile, because math.Log differs between processors. No product is left for a
// compiler to fuse with a sum. The AVX2 assembly performs the same operations, eight elements at a
// time.
//
// A [Recipe] is what a host may do before it quantises, to reduce the quantisation error: subtract
// the mean of each channel of K, rotate Q and K, and choose how many elements share a descale
// factor. A recipe changes the inputs of the kernel but not the exact result of attention.
//
// All tensors are stored as [batch, head, row, dim], with dim contiguous. K and V may have fewer
// heads than Q; each K/V head then serves a group of query heads.
package tensor
