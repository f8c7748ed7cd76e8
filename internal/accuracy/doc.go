// Package accuracy measures the error of FP8 attention, and how much of it recipes on the host
// remove.
//
// [Measure] gives inputs of every distribution, shape and recipe to each implementation, and
// computes two errors, both against attention in float64. The recipe error is the distance to
// attention over the original values, before the recipe quantised them. It is what a user of the
// kernel gets. The kernel error is the distance to attention over the quantised inputs. It is what
// the kernel itself adds. A recipe can lower the first error, a kernel only the second. For
// comparison there is the error of BF16 attention on the same inputs, the alternative to an FP8
// kernel.
//
// An implementation is a variant on a device or a model on the host. [BF16] and [E4M3] model the
// arithmetic of such kernels, without tiles and order of summation. They reach lengths that the
// simulator cannot, and serve inputs that no kernel supports yet.
//
// [ExactExponentials] also models the sums of Hopper's tensor cores. The correctness gate compares
// the errors of kernels that round P to E4M3 with its errors.
//
// The package runs nothing on a device and decides nothing.
package accuracy
