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

// The registers of all architectures that CUDA 13.0 builds for: of a block, and the unit in which a
// warp gets them.
const (
	blockRegisters = 65536
	registerUnit   = 256
	warpThreads    = 32
)

// unlaunchable says that the registers of a block are more than a chip has, or is empty. Such a
// kernel compiles, and its launch fails.
func unlaunchable(registers, threads int) string {
	ofWarp := (registers*warpThreads + registerUnit - 1) / registerUnit * registerUnit
	warps := (threads + warpThreads - 1) / warpThreads
	if ofWarp*warps <= blockRegisters {
		return ""
	}
	return fmt.Sprintf("%d registers per thread in blocks of %d threads: %d warps of %d are %d registers, and a block has at most %d; "+
		"launch smaller blocks, or limit the registers by __launch_bounds__(%d)",
		registers, threads, warps, ofWarp, ofWarp*warps, blockRegisters, threads)
}

// Resources compares the resources of an image, launched in blocks of up to some threads, with the
// chip and with the budget of its stage.
func Resources(need toolchain.Resources, threads int, budget spec.Budget) Check {
	var over []string
	if text := unlaunchable(need.Registers, threads); text != "" {
		over = append(over, text)
	}
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
// required speedup decides nothing. If none is required (0), the speedup is reported only.
func Performance(s measure.Speedup, required float64, parent string) Check {
	if required == 0 {
		return Check{Pass, []string{fmt.Sprintf("%.3fx %s (%.3f to %.3f), none required", s.Ratio, parent, s.Low, s.High)}}
	}
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
