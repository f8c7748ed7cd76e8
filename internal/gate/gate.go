package gate

import (
	"fmt"
	"math"

	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Status is the outcome of one gate.
type Status string

// The outcomes.
const (
	Pass        Status = "pass"
	Fail        Status = "fail"
	NotMeasured Status = "not-measured"
)

// Check is the outcome of one gate with the reasons for it: what failed, or why nothing was measured.
type Check struct {
	Status  Status
	Reasons []string
}

// Unmeasured is the check of a gate that saw nothing.
func Unmeasured(why string) Check { return Check{NotMeasured, []string{why}} }

// failing is a check that fails for reasons, and passes when there are none.
func failing(reasons []string) Check {
	if len(reasons) > 0 {
		return Check{Fail, reasons}
	}
	return Check{Status: Pass}
}

// Resources holds what an image needs against the budget of its stage.
func Resources(need toolchain.Resources, budget spec.Budget) Check {
	var over []string
	for _, item := range []struct {
		what       string
		need, have int
	}{
		{"registers a thread", need.Registers, budget.Registers},
		{"bytes of shared memory", need.SharedBytes(), budget.SharedBytes},
		{"bytes of spill", need.SpillBytes(), budget.SpillBytes},
	} {
		if item.need > item.have {
			over = append(over, fmt.Sprintf("%d %s, and the budget is %d", item.need, item.what, item.have))
		}
	}
	return failing(over)
}

// Limits bound the error of a kernel on one shape and seed.
type Limits struct {
	MaxErr      float64 `json:"max_err"`
	MeanErr     float64 `json:"mean_err"`
	BadFraction float64 `json:"bad_fraction"`
	LSE         *LSE    `json:"lse,omitempty"` // where the kernel writes logarithms of sums
}

// LSE bounds the error of the logarithm of a sum of exp(score).
type LSE struct {
	MaxErr  float64 `json:"max_err"`
	MeanErr float64 `json:"mean_err"`
}

// outputRounding is the relative error of an output at its worst, half a unit in the last of FP16's 11 bits or BF16's 8. No kernel can be
// asked for less, whatever its inputs cost.
func outputRounding(output toolchain.Output) float64 {
	if output == toolchain.BF16 {
		return 1.0 / (1 << 8)
	}
	return 1.0 / (1 << 11)
}

// LimitsFor derives the limits from what FP8 inputs cost on this very problem: the kernel may add a share of it, which its stage has
// named. The tolerance of the spec is the outer bound. Its max_err is an absolute number, which is meant for outputs that are means of many values of unit
// variance; where the largest output is more than 1, as in a query that sees one or two keys or with harder inputs, it counts in units of that. With
// harder inputs the share counts of the elements that may be bad, too.
func LimitsFor(ref *oracle.Reference, output toolchain.Output, share float64, tolerance spec.Tolerance, unitVariance bool) Limits {
	rounding := outputRounding(output)
	largest, sum := 0.0, 0.0
	for _, x := range ref.Out {
		largest = max(largest, x, -x)
		sum += max(x, -x)
	}
	mean := sum / float64(len(ref.Out))
	limits := Limits{
		MaxErr:      min(tolerance.MaxErr*max(1, largest), max(share*ref.InputCost.Max, largest*rounding)),
		MeanErr:     min(tolerance.MeanErr, max(share*ref.InputCost.Mean, mean*rounding)),
		BadFraction: tolerance.BadFraction,
	}
	if !unitVariance {
		limits.BadFraction = tolerance.BadFraction * min(1, share)
	}
	return limits
}

// Errors holds the errors of one answer against its limits and gives what is wrong.
func Errors(e oracle.Errors, limits Limits) []string {
	var wrong []string
	if e.NonFinite > 0 {
		wrong = append(wrong, fmt.Sprintf("%d elements are not finite, the first at %s", e.NonFinite, e.FirstNonFinite))
	}
	if e.MaxErr > limits.MaxErr {
		wrong = append(wrong, fmt.Sprintf("max_err %.3g is over %.3g, at %s: got %.6g, want %.6g",
			e.MaxErr, limits.MaxErr, e.Worst.Place, e.Worst.Got, e.Worst.Want))
	}
	if e.MeanErr > limits.MeanErr {
		wrong = append(wrong, fmt.Sprintf("mean_err %.3g is over %.3g", e.MeanErr, limits.MeanErr))
	}
	if e.BadFraction > limits.BadFraction {
		wrong = append(wrong, fmt.Sprintf("%.2f %% of the elements are bad, and %.2f %% may be", 100*e.BadFraction, 100*limits.BadFraction))
	}
	return wrong
}

// LSEFor derives the limits of the logarithm of a sum of exp(score) from what a kernel's number formats can cost. The logarithm is off by no
// more than the scores are, and by what the sum itself is.
//
// Tensor cores add 32 products of E4M3 to what is there by one instruction, and cut each of these 33 addends off at 13 bits below the largest.
// No addend of a score is larger than the reach. The largest error has all of them cut by a whole bit to one side; in the mean they are
// independent of each other, and errors grow with the root of their number. What else there is to a score, its factor, its exponential
// (13 bits by the polynomial) and the logarithm, stays below 2^-12.
//
// A sum of exponentials that were rounded to E4M3, which keeps four bits, is off by 2^-4 of itself at most, and in the mean by no more than the
// root mean square of one, 2.6 %. Those taken by lines are 4 % too low before that at most, which makes a tenth, and 3.1 % in the mean. It is summed by
// eight instructions at most, 256 keys, before it leaves the tensor cores, of positive addends, which are all cut to the same side. And each
// exponential below 2^-18 of the largest, which stands at 2^8, is lost in E4M3.
func LSEFor(ref *oracle.Reference, sums toolchain.LSE) *LSE {
	const (
		depth, addends  = 32, 33
		cut             = 0x1p-13
		othersOfScore   = 0x1p-12
		sumInstructions = 8
		lost            = 0x1p-18
	)
	instructions := float64(ref.Shape.HeadDim) / depth
	limits := &LSE{
		MaxErr:  othersOfScore + ref.Reach*cut*addends*instructions,
		MeanErr: othersOfScore + ref.Reach*cut*math.Sqrt(addends*instructions),
	}
	most, mean := 0x1p-4, 0.026
	switch sums {
	case toolchain.LSEInFP32:
		return limits
	case toolchain.LSELines:
		most, mean = 0.1, 0.0315
	}
	const summed = cut * addends * sumInstructions
	below := lost * float64(ref.Shape.SeqK)
	limits.MaxErr += below - math.Log(1-most-summed)
	limits.MeanErr += below - math.Log(1-mean-summed)
	return limits
}

// LSEErrors holds logarithms of sums against their limits and gives what is wrong.
func LSEErrors(e oracle.LSEErrors, limits *LSE) []string {
	var wrong []string
	if e.Lost > 0 {
		wrong = append(wrong, fmt.Sprintf("lse: %d rows are not what they should be, finite or minus infinity, the first at %s",
			e.Lost, rowOf(*e.FirstLost)))
	}
	if e.MaxErr > limits.MaxErr {
		wrong = append(wrong, fmt.Sprintf("lse: max_err %.3g is over %.3g, at %s: got %.6g, want %.6g",
			e.MaxErr, limits.MaxErr, rowOf(e.Worst.Place), e.Worst.Got, e.Worst.Want))
	}
	if e.MeanErr > limits.MeanErr {
		wrong = append(wrong, fmt.Sprintf("lse: mean_err %.3g is over %.3g", e.MeanErr, limits.MeanErr))
	}
	return wrong
}

func rowOf(p oracle.Place) string {
	return fmt.Sprintf("batch %d head %d row %d", p.Batch, p.Head, p.Row)
}

// Correctness passes when there is nothing wrong on any shape and seed.
func Correctness(wrong []string) Check { return failing(wrong) }

// Performance holds a measured speedup against what the stage promised. An interval that lies on both sides of the promise decides
// nothing.
func Performance(s measure.Speedup, required float64, parent string) Check {
	measured := fmt.Sprintf("%.3fx %s (%.3f to %.3f), and %.2fx is needed", s.Ratio, parent, s.Low, s.High, required)
	switch {
	case s.Low >= required:
		return Check{Pass, []string{measured}}
	case s.High < required:
		return Check{Fail, []string{measured}}
	}
	return Check{NotMeasured, []string{measured + ": too close to call"}}
}

// The profile gate asks for one of two: tensor cores that are busy, or memory that is not what the kernel waits for.
const (
	leastTensorPercent = 50
	mostDRAMPercent    = 50
)

// Utilisation is how busy a launch kept two units, in percent of their peak. What was not measured is nil.
type Utilisation struct {
	Tensor *float64 // the tensor pipe, while its multiprocessor was active
	DRAM   *float64 // over the whole launch
}

// Profile passes a launch that keeps the tensor cores at half their peak or more, or DRAM below half of its own.
func Profile(u Utilisation) Check {
	known := func(name string, percent *float64) string {
		if percent == nil {
			return name + " not measured"
		}
		return fmt.Sprintf("%s at %.1f %% of peak", name, *percent)
	}
	measured := fmt.Sprintf("%s, %s; tensor cores from %d %% or DRAM below %d %% is needed",
		known("tensor cores", u.Tensor), known("DRAM", u.DRAM), leastTensorPercent, mostDRAMPercent)
	switch {
	case u.Tensor != nil && *u.Tensor >= leastTensorPercent, u.DRAM != nil && *u.DRAM < mostDRAMPercent:
		return Check{Pass, []string{measured}}
	case u.Tensor != nil && *u.Tensor < leastTensorPercent && u.DRAM != nil && *u.DRAM >= mostDRAMPercent:
		return Check{Fail, []string{measured}}
	}
	return Check{NotMeasured, []string{measured}}
}
