package document

import (
	"cmp"

	"attune/internal/run"
)

// Exponentials says how an implementation computes them.
type Exponentials string

const (
	ExactExponentials   Exponentials = "exact"
	SegmentExponentials Exponentials = "segments" // some of them with two linear segments per octave
	LinearExponentials  Exponentials = "linear"   // some of them with one
)

// ExponentialsOf reads the knobs of a build of the attention kernel. Old builds of both Hopper
// sources called the knob POLYNOMIAL_EIGHTHS; with the keys as rows it stood for a cubic polynomial.
func ExponentialsOf(knobs map[string]int) Exponentials {
	eighths, named := knobs["EXP2_LINEAR_EIGHTHS"]
	if !named && knobs["USE_KEYS_AS_ROWS"] == 0 {
		eighths = knobs["POLYNOMIAL_EIGHTHS"]
	}
	switch {
	case eighths == 0:
		return ExactExponentials
	case knobs["EXP2_SEGMENTS"] == 2:
		return SegmentExponentials
	}
	return LinearExponentials
}

// Mark ends a figure of a kernel whose approximation is larger than the rounding of E4M3.
func (e Exponentials) Mark() string {
	if e == LinearExponentials {
		return "~"
	}
	return ""
}

// BenchExponentials says how the kernel of a row computes exponentials.
func BenchExponentials(b *run.Bench, r run.BenchRow) Exponentials {
	for _, build := range b.Builds {
		if !r.Peer && build.Variant == cmp.Or(r.Variant, r.Name) {
			return ExponentialsOf(build.Knobs)
		}
	}
	return ExactExponentials
}
