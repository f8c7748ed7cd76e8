package gate

import (
	"fmt"

	"attune/internal/oracle"
	"attune/internal/spec"
)

// ExponentialLimits bound the error of a kernel that rounds P to E4M3, as multiples of the error that
// exact exponentials have. The zero value bounds nothing.
type ExponentialLimits struct {
	Mean, RowClass, WorstRow float64
	KeyWeight                float64 // relative, of each class of key positions
}

// LimitsOfExponentials returns the limits of a variant, which may be a part of a selection.
//
// Exact exponentials may cost 2 % more than in the model, in the mean as in every class of rows, and
// may prefer no key.
//
// The linear exp2 approximation is off by 1.7 % root mean square, and E4M3 rounds by 2.6 %: together
// 1.19x where all exponentials of a row are linear, and 1.10x for the four of eight that a selection
// may have. At most it is off by 3.9 %, where E4M3 is off by 6.25 %: 1.62x in a row that sees few
// keys. It is at most 3.9 % low and 2 % high, so that the weight of a class of keys is at most 3 %
// from the middle.
func LimitsOfExponentials(of spec.Exponentials, selected bool) ExponentialLimits {
	switch of {
	case spec.ExactExponentials:
		return ExponentialLimits{Mean: 1.02, RowClass: 1.02, WorstRow: 1.02}
	case spec.ApproximateExponentials:
		l := ExponentialLimits{Mean: 1.2, RowClass: 1.2, WorstRow: 1.62, KeyWeight: 0.03}
		if selected {
			l.Mean = 1.10
		}
		return l
	}
	return ExponentialLimits{}
}

// ExponentialErrors compares the errors of one output with those of exact exponentials, and lists
// what is wrong. Without a comparison there is nothing wrong.
func ExponentialErrors(e *oracle.Exponentials, limits ExponentialLimits) []string {
	if e == nil || limits == (ExponentialLimits{}) {
		return nil
	}
	var wrong []string
	check := func(what string, r oracle.Ratio, limit float64) {
		if r.Ratio > limit+r.Slack {
			wrong = append(wrong, fmt.Sprintf("exponentials: the error of %s is %.3fx that of exact ones; %.3fx is allowed, and %.3f for chance",
				what, r.Ratio, limit, r.Slack))
		}
	}
	check("all rows", e.Mean, limits.Mean)
	check("rows "+e.RowClass.Where, e.RowClass, limits.RowClass)
	check("the worst row", e.WorstRow, limits.WorstRow)
	if k := e.KeyClass; k != nil && k.Deviation > limits.KeyWeight+k.Slack {
		wrong = append(wrong, fmt.Sprintf("exponentials: the weight of keys %d modulo the head dim is off by %.2f %%; %.2f %% is allowed",
			k.Class, 100*k.Deviation, 100*(limits.KeyWeight+k.Slack)))
	}
	return wrong
}
