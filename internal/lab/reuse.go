package lab

import (
	"slices"

	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

// Code identifies what the chip executes. Builds with equal code are the same program.
type Code struct {
	Hash, Arch string
	Launch     string // what the launch depends on besides
}

// CodeOf is zero for no build.
func CodeOf(p problem.Problem, b problem.Build) Code {
	if b.Image == nil {
		return Code{}
	}
	return Code{b.Image.Record.CodeHash, b.Image.Record.Arch, p.LaunchKey(b)}
}

// measurements has the first measured variant of a command for each code. A later variant with the
// same code reuses its results: a second measurement would differ by noise only. A variant that the
// request names twice is measured twice.
type measurements map[Code]*measurement

type measurement struct {
	run     *run.Run
	against Code // code of the parent that the times were interleaved with; zero without one
	excused bool // its launches were not compared bit for bit, because kernel.toml allows them to differ
}

// add keeps a complete attempt. A sanitizer's findings are in no row of the record, so a run under
// one is not reused. Neither is one whose relaunch failed: another attempt may not have its shape.
func (m measurements) add(a *attempt) {
	complete := a.reused == nil && a.result.Failure == "" && a.result.Requested.Sanitizer == "" &&
		len(a.result.Correctness) == a.result.Requested.Problems &&
		!slices.ContainsFunc(a.result.Correctness, func(c run.Correctness) bool { return c.Relaunch != nil && !c.Relaunch.Pass })
	if complete {
		m[CodeOf(a.problem(), a.build)] = &measurement{a.result, a.against, excused(a.variant)}
	}
}

// serves reports whether an attempt may reuse a measurement: it has all problems of the attempt, and
// was checked as strictly. A variant reuses only those of another variant, unless it is a part of a
// selection.
func (m *measurement) serves(a *attempt) bool {
	if m.run.Variant == a.result.Variant && a.selection == nil || m.excused && !excused(a.variant) {
		return false
	}
	return !slices.ContainsFunc(a.plan.instances(a.variant, a.shapes), func(i problem.Instance) bool {
		row := m.row(i)
		return row == nil || a.variant.Exponentials() != "" && row.Exponentials == nil
	})
}

// row is the result of an instance, or nil.
func (m *measurement) row(of problem.Instance) *run.Correctness {
	for i := range m.run.Correctness {
		if c := &m.run.Correctness[i]; c.Shape == of.Shape.String() && c.Seed == of.Seed && c.Inputs == of.Inputs {
			return c
		}
	}
	return nil
}

// reuse begins an attempt with the results of the same code.
func (a *attempt) reuse(same *measurement) {
	a.reused = same
	a.result.MeasuredAs = &run.MeasuredAs{Run: same.run.ID, Variant: same.run.Variant}
	a.result.Device, a.result.Facts, a.result.Loaded, a.result.Ran = same.run.Device, same.run.Facts, same.run.Loaded, same.run.Ran
}

// reuseRow applies the limits of an attempt to the errors that the same code had on an instance.
func (a *attempt) reuseRow(i problem.Instance, ref, second problem.Reference) *run.Correctness {
	row := *a.reused.row(i)
	result := problem.Result{Errors: row.Errors, LSE: row.LSE, Outputs: row.Outputs, Exponentials: row.Exponentials}
	row.Limits, row.Wrong = judge(a.build, ref, result, row.Findings)
	if row.Relaunch != nil && second != nil {
		own := *row.Relaunch
		row.Wrong, row.Relaunch = append(row.Wrong, relaunchWrong(a.build, second, &own, row.Wrong)...), &own
	}
	row.Pass = len(row.Wrong) == 0
	return &row
}

// reusedTimes are the times of the same code if they were interleaved with the same parent, else
// nil.
func (a *attempt) reusedTimes(shape spec.Shape, parent problem.Build) *run.Samples {
	if a.reused == nil || a.reused.against != CodeOf(a.problem(), parent) {
		return nil
	}
	i := slices.IndexFunc(a.reused.run.Samples, func(s run.Samples) bool { return s.Shape == shape.String() })
	if i < 0 {
		return nil
	}
	a.result.MeasuredAs.Times = true
	return &a.reused.run.Samples[i]
}
