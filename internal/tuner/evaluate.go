package tuner

import (
	"context"

	"attune/internal/lab"
	"attune/internal/run"
	"attune/internal/tune"
)

// evaluate takes a candidate through the steps of a search, of which the cheapest come first.
func (s *search) evaluate(ctx context.Context, c *Candidate) error {
	if s.request.Elsewhere != nil {
		return s.receive(ctx, c)
	}
	return s.harness.walk(ctx, c, []step{
		{"building", s.harness.build},
		{"comparing its code", s.compareCode},
		{"resources", s.harness.fits},
		{"correctness", s.harness.checkSmall},
		{"measuring", s.measure},
		{"waiting for the simulator", s.provePatch},
	})
}

// provePatch asks the simulator about a patched kernel that is better than all before: others would be
// built on it. The finals ask about every candidate.
func (s *search) provePatch(ctx context.Context, c *Candidate) error {
	if c.Patch == nil || !c.result.Best {
		return nil
	}
	err := s.harness.prove(ctx, c)
	c.result.Best = c.ok()
	return err
}

// compareCode looks for an evaluation of the same machine code, whose result is this candidate's.
func (s *search) compareCode(_ context.Context, c *Candidate) error {
	i, known := s.standings.known[code(c.result)]
	if !known {
		s.dropPatch(c)
		return nil
	}
	same := &s.standings.evaluations[i]
	c.result.SameAs, c.result.Failure, c.result.Reason, c.result.Cost, c.result.Shapes = same.Name(), same.Failure, same.Reason, same.Cost, same.Shapes
	c.result.SharedBytes, c.result.Number = same.SharedBytes, same.Number
	return nil
}

// dropPatch makes a patched candidate one of the kernel itself if the patch changes no machine code.
func (s *search) dropPatch(c *Candidate) {
	if c.Patch == nil {
		return
	}
	own, err := s.harness.pipeline.Build(c.Variant)
	if err != nil || lab.CodeOf(s.harness.lab.Problem, own) != code(c.result) {
		return
	}
	c.build, c.Patch, c.result.Patch = own, nil, ""
	if !s.inFlight(c.Variant) {
		c.point, _ = tune.PointOf(s.space, c.Variant)
	}
}

// measure finds the cost of a correct candidate.
func (s *search) measure(ctx context.Context, c *Candidate) error {
	switch {
	case s.request.Objective == run.ObjectiveCost:
		return s.harness.simulate(ctx, c, s.standings.best)
	case s.standings.best == nil:
		return s.harness.timeAlone(ctx, c)
	}
	return s.screen(ctx, c)
}
