package document

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"attune/internal/ci"
	"attune/internal/gate"
	"attune/internal/mutate"
	"attune/internal/run"
)

// JUnit writes runs as a test suite with one case per gate, classed by kernel and variant. A gate
// that was not measured is skipped, except that outputs which could not be checked are an error. Run and device are in the texts, which are what viewers show.
// elapsed is the time of all runs; 0 if it is not known.
func JUnit(w io.Writer, runs []*run.Run, elapsed time.Duration) error {
	suite := ci.Suite{Name: "attune", Elapsed: elapsed}
	for _, r := range runs {
		suite.Name = r.Kernel
		for _, g := range r.GateOutcomes() {
			c := ci.Case{Class: r.Kernel + "." + r.Variant, Name: g.Name, Message: firstReason(g.Reasons)}
			c.Text = fmt.Sprintf("run %s on %s (%s)", r.ID, deviceName(r), r.Arch)
			switch g.Status {
			case gate.Fail:
				c.Outcome = ci.Failed
				c.Text += "\n" + strings.Join(g.Reasons, "\n")
			case gate.NotMeasured:
				c.Outcome = ci.Skipped
				if g.Name == "correctness" && Unchecked(r) {
					c.Outcome = ci.Broken
				}
				c.Message = strings.Join(g.Reasons, "; ") // the text has no reasons
			default:
				c.Text = strings.Join(append([]string{c.Text}, g.Reasons...), "\n")
			}
			suite.Cases = append(suite.Cases, c)
		}
	}
	return ci.JUnit(w, suite)
}

// MutationJUnit writes the mutants of a kernel as a test suite with one case per kind of mutant. A
// kind with survivors has failed: errors of that kind may pass the gates.
func MutationJUnit(w io.Writer, kernel string, r *mutate.Report, elapsed time.Duration) error {
	suite := ci.Suite{Name: "mutants of " + kernel, Elapsed: elapsed}
	for _, kind := range slices.Sorted(maps.Keys(r.ByKind)) {
		t := r.ByKind[kind]
		c := ci.Case{Class: kernel, Name: kind, Text: fmt.Sprintf("%d of %d killed", t.Killed, t.Mutants)}
		if t.Mutants == 0 {
			c.Outcome, c.Message = ci.Skipped, "all are equivalent to the kernel"
		}
		for _, m := range r.Survivors {
			if m.Kind == kind {
				c.Outcome = ci.Failed
				c.Message = fmt.Sprintf("%d of %d survived", t.Mutants-t.Killed, t.Mutants)
				c.Text += fmt.Sprintf("\nPTX line %d: was %s, is %s", m.Line, PTXLine(m.Before), PTXLine(m.After))
			}
		}
		suite.Cases = append(suite.Cases, c)
	}
	return ci.JUnit(w, suite)
}
