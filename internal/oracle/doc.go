// Package oracle says what the right answer is: attention in float64, against which every kernel is judged.
//
// Attention is softmax(q·kᵀ/√d)·v, head by head, with the causal mask of tensor.Shape. It is blocked, runs on all
// cores and subtracts each row's largest score, so it neither overflows nor keeps a gate waiting.
//
// Compute gives a Reference: the answer for the FP8 inputs that the kernel gets, and beside it what those inputs have
// already cost, as the distance to the answer for the numbers before quantisation. A kernel's own error can so be
// budgeted against a computed figure instead of a guessed one. Compare measures a kernel's output against it, CompareLSE
// the logarithms of its sums. Whoever only wants to know whether an answer is right at all may ask for some Rows of it, such as a Sample: a
// long problem takes minutes.
//
// The oracle rounds only as float64 does and knows no kernel's tiling, order or number format. Its last bits may differ
// between processors; nothing recorded depends on them. It passes no verdict: gates do.
package oracle
