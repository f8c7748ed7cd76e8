package attention

import (
	"math"

	"attune/internal/gate"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// outputRounding is the largest relative rounding error of an output: half a unit in the last of
// FP16's 11 bits or BF16's 8. No kernel can be more accurate.
func outputRounding(output toolchain.Output) float64 {
	if output == toolchain.BF16 {
		return 1.0 / (1 << 8)
	}
	return 1.0 / (1 << 11)
}

// limitsFor derives the limits from the quantisation error of the FP8 inputs on this problem. The
// kernel may add a share of it, which its stage declares. The tolerance of the spec is the outer
// bound.
//
// The spec's max_err is absolute, for outputs that are means of many values of unit variance. Where
// the largest output exceeds 1 (a query with one or two visible keys, or harder inputs), max_err is
// relative to it. With harder inputs the share also scales the fraction of bad elements.
func limitsFor(ref *oracle.Reference, output toolchain.Output, share float64, tolerance spec.Tolerance, unitVariance bool) gate.Limits {
	rounding := outputRounding(output)
	largest, sum := 0.0, 0.0
	for _, x := range ref.Out {
		largest = max(largest, x, -x)
		sum += max(x, -x)
	}
	mean := sum / float64(len(ref.Out))
	limits := gate.Limits{
		MaxErr:      min(tolerance.MaxErr*max(1, largest), max(share*ref.InputError.Max, largest*rounding)),
		MeanErr:     min(tolerance.MeanErr, max(share*ref.InputError.Mean, mean*rounding)),
		BadFraction: tolerance.BadFraction,
	}
	if !unitVariance {
		limits.BadFraction = tolerance.BadFraction * min(1, share)
	}
	return limits
}

// lseFor derives the limits of the log-sum-exp from the rounding errors of a kernel's number
// formats. The error of the logarithm is at most the error of a score plus the relative error of
// the sum.
//
// Scores: one tensor-core instruction adds 32 E4M3 products to the accumulator, and truncates each
// of these 33 addends at 13 bits below the largest. No addend exceeds ref.Reach. The maximum error
// has all of them truncated by a full bit in one direction. For the mean they are independent, so
// the error grows with the square root of their number. The scale, the exponential (13 bits by the
// polynomial) and the logarithm add less than 2^-12.
//
// Sums: an exponential rounded to E4M3, with four significant bits, has a relative error of at most
// 2^-4, and 2.6 % root mean square. At most eight instructions, 256 keys, accumulate the sum on the
// tensor cores; the addends are positive, so all truncations have the same sign. An exponential
// below 2^-18 of the largest, which is scaled to 2^8, underflows in E4M3.
func lseFor(ref *oracle.Reference, sums toolchain.LSE) *gate.LSE {
	const (
		depth, addends  = 32, 33
		cut             = 0x1p-13
		othersOfScore   = 0x1p-12
		sumInstructions = 8
		lost            = 0x1p-18
	)
	instructions := float64(ref.Shape.HeadDim) / depth
	limits := &gate.LSE{
		MaxErr:  othersOfScore + ref.ScoreBound*cut*addends*instructions,
		MeanErr: othersOfScore + ref.ScoreBound*cut*math.Sqrt(addends*instructions),
	}
	if sums == toolchain.LSEInFP32 {
		return limits
	}
	const most, mean, summed = 0x1p-4, 0.026, cut * addends * sumInstructions
	below := lost * float64(ref.Shape.SeqK)
	limits.MaxErr += below - math.Log(1-most-summed)
	limits.MeanErr += below - math.Log(1-mean-summed)
	return limits
}
