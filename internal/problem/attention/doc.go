// Package attention is the problem of FP8 attention kernels: E4M3 inputs with descale factors, an
// FP16 or BF16 output, a float64 reference, and limits from what the quantisation of the inputs
// costs.
package attention
