// Package oracle computes the reference that kernels are compared with: attention in float64.
//
// Attention is softmax(q·kᵀ/√d)·v for each head, with the causal mask of tensor.Shape. The
// computation is blocked, runs on all cores, and subtracts each row's maximum score, so that it
// cannot overflow.
//
// [Compute] returns a [Reference]: attention over the FP8 inputs that the kernel gets, and the
// quantisation error of those inputs. That error is the distance to attention over the values
// before quantisation. A gate can therefore derive the error budget of a kernel from a computed
// figure. [Compare] measures the error of a kernel's output, [CompareLSE] the error of its
// logarithms of sums of exponentials. A reference for all rows of a long problem takes minutes; a
// [Sample] of its [Rows] is enough to tell whether an output is correct.
//
// The oracle rounds only as float64 does, and is independent of any kernel's tiling, order and
// number format. Its last bits may differ between processors; no record depends on them. The oracle
// measures errors; the gates decide.
package oracle
