package lab

import (
	"context"
	"slices"
	"time"

	"attune/internal/coverage"
	"attune/internal/problem"
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
	a.result.Lines = a.covered.Summary()
	if len(a.plan.entries) > 1 || a.selection != nil || a.plan.Part.Of > 0 {
		return
	}
	search := lineSearch{Lab: a.Lab, refs: a.refs, build: a.build, shapes: a.shapes, seed: a.plan.Seeds[0]}
	search.step = func(i, n int) { a.step("shapes for lines that were not executed", i, n) }
	search.extend(ctx, a.result.Lines, &a.covered, took)
}

// lineSearch looks for shapes that execute lines which the shapes of a check have not.
type lineSearch struct {
	*Lab
	refs   problem.References
	build  problem.Build
	shapes []spec.Shape // of the check
	seed   uint64
	step   func(done, total int) // may be nil
}

// extend adds the shapes to the summary of what a check has covered. The check took some time.
func (s lineSearch) extend(ctx context.Context, summary *coverage.Summary, checked *coverage.Launches, took time.Duration) {
	if summary == nil || summary.Complete() {
		return
	}
	limited, cancel := context.WithTimeout(ctx, min(max(took, leastSearch), longestSearch))
	defer cancel()
	session := s.newSession() // a fault on another shape does not lose that of the check
	defer session.close()
	covered := checked.Clone()
	near := s.neighbours()
	for i, shape := range near {
		if s.step != nil {
			s.step(i, len(near))
		}
		launch := s.coveredOn(limited, session, shape)
		if limited.Err() != nil || len(summary.Shapes) == maxReaching {
			return
		}
		if reached := covered.Reached(launch); len(reached) > 0 {
			summary.Shapes = append(summary.Shapes, coverage.Reaching{Shape: shape.String(), Lines: reached})
			covered.Add(launch)
		}
	}
}

// neighbours are those of the smallest shape of the check, the smallest first.
func (s lineSearch) neighbours() []spec.Shape {
	near := s.Kernel.Neighbours(Runnable(s.problem(), s.build.Variant, s.shapes)[0])
	near = slices.DeleteFunc(near, func(shape spec.Shape) bool { return slices.Contains(s.shapes, shape) })
	return Runnable(s.problem(), s.build.Variant, near)
}

// coveredOn is what a launch on a shape executes; nil for a shape that the kernel or its reference does
// not take.
func (s lineSearch) coveredOn(ctx context.Context, on *session, shape spec.Shape) *coverage.Launches {
	ref, err := s.refs.Get(ctx, s.problem().Plain(shape, s.seed))
	if err != nil {
		return nil
	}
	build := s.build
	job, err := on.job(ctx, &build, ref)
	if err != nil {
		return nil
	}
	outcome, err := on.run(ctx, job)
	if err != nil {
		return nil
	}
	return outcome.Covered
}
