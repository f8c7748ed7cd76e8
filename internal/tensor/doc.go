// Package tensor holds the problems that kernels are given: the shape of one attention problem, and the numbers in it.
//
// A Shape is written 1x8x512x64, with :kv=N, :kvheads=N and :causal where they apply, and read back the same.
//
// Draw makes the inputs of a shape from a seed: numbers from a normal distribution, quantised to E4M3 with float32
// descale factors, the originals kept beside them so that the price of quantising can be told. The same shape, seed and
// options give the same bits on every machine and with any number of cores. So a recorded run can be repeated anywhere
// from its seed, and no input is ever stored. For that, everything that decides a bit is exact or rounded once in a
// stated place: the package's own logarithm and normal quantile, never math.Log, which differs between processors, and
// no product that a compiler may fuse with a sum. The assembly for AVX2 does the same operations, eight numbers at a time.
//
// A Recipe is what a host may do before it quantises, to lose less: take the mean from each channel of the keys, rotate
// queries and keys, share descale factors more or less widely. It changes the numbers that a kernel gets and not the
// problem: attention over them stays the same.
//
// All tensors lie in memory as [batch, head, row, dim], the last index running fastest. K and V may have fewer heads than
// Q, of which each serves a group of Q's.
package tensor
