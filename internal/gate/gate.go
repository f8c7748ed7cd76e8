package gate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

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

// Check is the outcome of one gate with its reasons: what failed, or why nothing was measured.
type Check struct {
	Status  Status
	Reasons []string
}

// Unmeasured is the check of a gate without a measurement.
func Unmeasured(why string) Check { return Check{NotMeasured, []string{why}} }

// failing is a check that fails if there are reasons.
func failing(reasons []string) Check {
	if len(reasons) > 0 {
		return Check{Fail, reasons}
	}
	return Check{Status: Pass}
}

// Resources compares the resources of an image with the budget of its stage.
func Resources(need toolchain.Resources, budget spec.Budget) Check {
	var over []string
	for _, item := range []struct {
		what       string
		need, have int
	}{
		{"registers per thread", need.Registers, budget.Registers},
		{"bytes of shared memory", need.SharedBytes(), budget.SharedBytes},
		{"bytes of spill", need.SpillBytes(), budget.SpillBytes},
	} {
		if item.need > item.have {
			over = append(over, fmt.Sprintf("%d %s; the budget is %d", item.need, item.what, item.have))
		}
	}
	return failing(over)
}

// Limits bound the error of a kernel on one problem.
type Limits struct {
	MaxErr      float64 `json:"max_err"`
	MeanErr     float64 `json:"mean_err"`
	BadFraction float64 `json:"bad_fraction"`
	LSE         *LSE    `json:"lse,omitempty"` // if the kernel writes the log-sum-exp

	Outputs map[string]OutputLimit `json:"outputs,omitempty"` // of a declared problem, by name
}

// OutputLimit bounds the errors of one output of a declared problem. An element is bad if
// |got - want| > Abs + Rel·|want|.
type OutputLimit struct {
	Abs         float64 `json:"abs"`
	Rel         float64 `json:"rel"`
	BadFraction float64 `json:"bad_fraction"`
}

// LSE bounds the error of the log-sum-exp of the scores.
type LSE struct {
	MaxErr  float64 `json:"max_err"`
	MeanErr float64 `json:"mean_err"`
}

// outputRounding is the largest relative rounding error of an output: half a unit in the last of
// FP16's 11 bits or BF16's 8. No kernel can be more accurate.
func outputRounding(output toolchain.Output) float64 {
	if output == toolchain.BF16 {
		return 1.0 / (1 << 8)
	}
	return 1.0 / (1 << 11)
}

// LimitsFor derives the limits from the quantisation error of the FP8 inputs on this problem. The
// kernel may add a share of it, which its stage declares. The tolerance of the spec is the outer
// bound.
//
// The spec's max_err is absolute, for outputs that are means of many values of unit variance. Where
// the largest output exceeds 1 (a query with one or two visible keys, or harder inputs), max_err is
// relative to it. With harder inputs the share also scales the fraction of bad elements.
func LimitsFor(ref *oracle.Reference, output toolchain.Output, share float64, tolerance spec.Tolerance, unitVariance bool) Limits {
	rounding := outputRounding(output)
	largest, sum := 0.0, 0.0
	for _, x := range ref.Out {
		largest = max(largest, x, -x)
		sum += max(x, -x)
	}
	mean := sum / float64(len(ref.Out))
	limits := Limits{
		MaxErr:      min(tolerance.MaxErr*max(1, largest), max(share*ref.InputError.Max, largest*rounding)),
		MeanErr:     min(tolerance.MeanErr, max(share*ref.InputError.Mean, mean*rounding)),
		BadFraction: tolerance.BadFraction,
	}
	if !unitVariance {
		limits.BadFraction = tolerance.BadFraction * min(1, share)
	}
	return limits
}

// Errors compares the errors of one output with its limits and lists what is wrong.
func Errors(e oracle.Errors, limits Limits) []string {
	var wrong []string
	if e.NonFinite > 0 {
		wrong = append(wrong, fmt.Sprintf("%d elements are not finite, the first at %s", e.NonFinite, e.FirstNonFinite))
	}
	if e.MaxErr > limits.MaxErr {
		wrong = append(wrong, fmt.Sprintf("max_err %.3g exceeds %.3g, at %s: got %.6g, want %.6g",
			e.MaxErr, limits.MaxErr, e.Worst.Place, e.Worst.Got, e.Worst.Want))
	}
	if e.MeanErr > limits.MeanErr {
		wrong = append(wrong, fmt.Sprintf("mean_err %.3g exceeds %.3g", e.MeanErr, limits.MeanErr))
	}
	if e.BadFraction > limits.BadFraction {
		wrong = append(wrong, fmt.Sprintf("%.2f %% of the elements are bad; %.2f %% are allowed", 100*e.BadFraction, 100*limits.BadFraction))
	}
	return wrong
}

// LSEFor derives the limits of the log-sum-exp from the rounding errors of a kernel's number
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

// LSEErrors compares the errors of the log-sum-exp with their limits and lists what is wrong.
func LSEErrors(e oracle.LSEErrors, limits *LSE) []string {
	var wrong []string
	if e.NonFinite > 0 {
		wrong = append(wrong, fmt.Sprintf("lse: %d rows are not finite, or are finite instead of minus infinity, the first at %s",
			e.NonFinite, rowOf(*e.FirstNonFinite)))
	}
	if e.MaxErr > limits.MaxErr {
		wrong = append(wrong, fmt.Sprintf("lse: max_err %.3g exceeds %.3g, at %s: got %.6g, want %.6g",
			e.MaxErr, limits.MaxErr, rowOf(e.Worst.Place), e.Worst.Got, e.Worst.Want))
	}
	if e.MeanErr > limits.MeanErr {
		wrong = append(wrong, fmt.Sprintf("lse: mean_err %.3g exceeds %.3g", e.MeanErr, limits.MeanErr))
	}
	return wrong
}

func rowOf(p oracle.Place) string {
	return fmt.Sprintf("batch %d head %d row %d", p.Batch, p.Head, p.Row)
}

// Correctness passes if nothing is wrong on any problem.
func Correctness(wrong []string) Check { return failing(wrong) }

// Performance compares a measured speedup with the required one. An interval that contains the
// required speedup decides nothing.
func Performance(s measure.Speedup, required float64, parent string) Check {
	measured := fmt.Sprintf("%.3fx %s (%.3f to %.3f), %.2fx required", s.Ratio, parent, s.Low, s.High, required)
	switch {
	case s.Low >= required:
		return Check{Pass, []string{measured}}
	case s.High < required:
		return Check{Fail, []string{measured}}
	}
	return Check{NotMeasured, []string{measured + ": too close to call"}}
}

// minPeakPercent is the share of its peak from which a unit counts as the limit of a launch.
const minPeakPercent = 50

// Unit is how busy a launch kept one unit of the chip, in percent of the unit's peak. Nil means not
// measured.
type Unit struct {
	Name    string
	Percent *float64
}

func (u Unit) measured() bool { return u.Percent != nil && !math.IsNaN(*u.Percent) }

// Utilisation is how busy a launch kept the units that can limit it.
type Utilisation struct {
	Units []Unit
	Waves *float64 // waves of blocks in the grid; nil if not measured
}

// Profile passes a launch that is near the limit that binds it: the busiest unit, whichever it is,
// reaches half of its peak. A launch fails only if every unit was measured and its grid fills the
// chip, because a smaller grid keeps no unit busy.
func Profile(u Utilisation) Check {
	var known []Unit
	var missing []string
	for _, unit := range u.Units {
		if unit.measured() {
			known = append(known, unit)
		} else {
			missing = append(missing, unit.Name)
		}
	}
	slices.SortStableFunc(known, func(a, b Unit) int { return cmp.Compare(*b.Percent, *a.Percent) })
	text := "no unit was measured"
	if len(known) > 0 {
		text = fmt.Sprintf("busiest unit: %s at %.1f %% of its peak, %d %% required", known[0].Name, *known[0].Percent, minPeakPercent)
	}
	for i, unit := range known[min(1, len(known)):] {
		separator := ", "
		if i == 0 {
			separator = "; "
		}
		text += fmt.Sprintf("%s%s %.1f %%", separator, unit.Name, *unit.Percent)
	}
	if len(known) > 0 && *known[0].Percent >= minPeakPercent {
		return Check{Pass, []string{text}}
	}
	switch {
	case len(known) == 0:
		return Check{NotMeasured, []string{text}}
	case len(missing) > 0:
		return Check{NotMeasured, []string{text + "; not measured: " + strings.Join(missing, ", ")}}
	case u.Waves != nil && *u.Waves < 1:
		return Check{NotMeasured, []string{text + fmt.Sprintf("; the grid is %.2f waves of blocks, too small to keep a unit busy", *u.Waves)}}
	}
	return Check{Fail, []string{text}}
}
