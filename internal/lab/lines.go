package lab

import (
	"context"
	"slices"
	"time"

	"attune/internal/coverage"
	"attune/internal/spec"
)

// Limits of the search for shapes that execute further lines. It takes no longer than the correctness
// gate has taken, or the least time.
const (
	maxReaching   = 3
	leastSearch   = 500 * time.Millisecond
	longestSearch = 5 * time.Second
)

// coverLines records which source lines the problems have executed. For a single variant it looks for
// shapes that execute the others. A device that does not count lines has none.
func (a *attempt) coverLines(ctx context.Context, took time.Duration) {
	if a.reused != nil {
		a.result.Lines = a.reused.run.Lines
		return
	}
	summary := a.covered.Summary()
	if a.result.Lines = summary; summary == nil || summary.Complete() || len(a.plan.entries) > 1 || a.selection != nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, min(max(took, leastSearch), longestSearch))
	defer cancel()
	session := a.newSession() // a fault on another shape does not lose that of the attempt
	defer session.close()
	covered := a.covered.Clone()
	near := a.neighbours()
	for i, shape := range near {
		a.step("shapes for lines that were not executed", i, len(near))
		launch := a.coveredOn(limited, session, shape)
		if limited.Err() != nil || len(summary.Shapes) == maxReaching {
			return
		}
		if reached := covered.Reached(launch); len(reached) > 0 {
			summary.Shapes = append(summary.Shapes, coverage.Reaching{Shape: shape.String(), Lines: reached})
			covered.Add(launch)
		}
	}
}

// neighbours are those of the smallest shape of the attempt, the smallest first.
func (a *attempt) neighbours() []spec.Shape {
	near := a.Kernel.Neighbours(Runnable(a.problem(), a.variant, a.shapes)[0])
	near = slices.DeleteFunc(near, func(s spec.Shape) bool { return slices.Contains(a.shapes, s) })
	return Runnable(a.problem(), a.variant, near)
}

// coveredOn is what a launch on a shape executes; nil for a shape that the kernel or its reference does
// not take.
func (a *attempt) coveredOn(ctx context.Context, s *session, shape spec.Shape) *coverage.Launches {
	ref, err := a.refs.Get(ctx, a.problem().Plain(shape, a.plan.Seeds[0]))
	if err != nil {
		return nil
	}
	build := a.build
	job, err := s.job(ctx, &build, ref)
	if err != nil {
		return nil
	}
	outcome, err := s.run(ctx, job)
	if err != nil {
		return nil
	}
	return outcome.Covered
}
