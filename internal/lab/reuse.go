package lab

import (
	"fmt"
	"slices"

	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// code identifies what the chip executes. Images with equal code are the same program.
type code struct {
	hash, arch string
	launch     string // formatted, to be comparable
}

// codeOf is zero for no image.
func codeOf(image *toolchain.Image) code {
	if image == nil {
		return code{}
	}
	return code{image.Record.CodeHash, image.Record.Arch, fmt.Sprint(image.Record.Launch)}
}

// measurements has the first measured variant of a command for each code. A later variant with the
// same code reuses its results: a second measurement would differ by noise only. A variant that the
// request names twice is measured twice.
type measurements map[code]*measurement

type measurement struct {
	run     *run.Run
	against code // code of the parent that the times were interleaved with; zero without one
}

// add keeps a complete attempt. A sanitizer's findings are in no row of the record, so a run under
// one is not reused. Neither is one whose relaunch failed: another attempt may not have its shape.
func (m measurements) add(a *attempt) {
	complete := a.reused == nil && a.result.Failure == "" && a.result.Requested.Sanitizer == "" &&
		len(a.result.Correctness) == a.result.Requested.Problems &&
		!slices.ContainsFunc(a.result.Correctness, func(c run.Correctness) bool { return c.Relaunch != nil && !c.Relaunch.Pass })
	if complete {
		m[codeOf(a.image)] = &measurement{a.result, a.against}
	}
}

// serves reports whether an attempt may reuse a measurement: it has all problems of the attempt. A
// variant reuses only those of another variant, unless it is a part of a selection.
func (m *measurement) serves(a *attempt) bool {
	if m.run.Variant == a.result.Variant && a.selection == nil {
		return false
	}
	return !slices.ContainsFunc(a.plan.problems(a.variant, a.shapes), func(p problem) bool {
		row := m.row(p)
		return row == nil || a.variant.Exponentials() != "" && row.Exponentials == nil
	})
}

// row is the result of a problem, or nil.
func (m *measurement) row(p problem) *run.Correctness {
	for i := range m.run.Correctness {
		if c := &m.run.Correctness[i]; c.Shape == p.shape.String() && c.Seed == p.seed && c.Inputs == p.inputs.String() {
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

// reuseRow applies the limits of an attempt to the errors that the same code had on a problem.
func (a *attempt) reuseRow(p problem, ref, second *reference) *run.Correctness {
	row := *a.reused.row(p)
	launch, share := a.image.Record.Launch, a.variant.Stage().ErrorShare
	errs := outputErrors{row.Errors, row.LSE, row.Exponentials}
	row.Limits, row.Wrong = applyLimits(ref, launch, errs, row.Findings, share, a.Kernel.Tolerance)
	row.Wrong = append(row.Wrong, gate.ExponentialErrors(errs.exponentials, a.exponentialLimits())...)
	if row.Relaunch != nil && second != nil {
		own := *row.Relaunch
		row.Wrong, row.Relaunch = append(row.Wrong, relaunchWrong(second, launch, &own, share, a.Kernel.Tolerance)...), &own
	}
	row.Pass = len(row.Wrong) == 0
	return &row
}

// reusedTimes are the times of the same code if they were interleaved with the same parent, else
// nil.
func (a *attempt) reusedTimes(shape tensor.Shape, parent *toolchain.Image) *run.Samples {
	if a.reused == nil || a.reused.against != codeOf(parent) {
		return nil
	}
	i := slices.IndexFunc(a.reused.run.Samples, func(s run.Samples) bool { return s.Shape == shape.String() })
	if i < 0 {
		return nil
	}
	a.result.MeasuredAs.Times = true
	return &a.reused.run.Samples[i]
}
