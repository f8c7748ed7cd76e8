package propose

import (
	"context"
	"errors"
	"fmt"

	"attune/internal/form"
	"attune/internal/lab"
	"attune/internal/run"
	"attune/internal/tuner"
)

// Tuner is the proposer of a search of a lab.
type Tuner struct {
	*Proposer
	lab     *lab.Lab
	open    map[string]Candidate // proposals without a result, by their origin
	waiting []string             // their origins, in order
}

var (
	_ tuner.Proposer = (*Tuner)(nil)
	_ tuner.Keeper   = (*Tuner)(nil)
	_ tuner.Restorer = (*Tuner)(nil)
)

// ForLab returns the proposer of a request. Done must get every evaluation of the search.
func ForLab(l *lab.Lab, r tuner.Request, o Options) (*Tuner, error) {
	sources, err := l.Builder.Sources(form.Target(l.Kernel, r.Variant, r.Arch))
	if err != nil {
		return nil, err
	}
	s := Subject{Kernel: l.Kernel, Default: r.Variant, Shapes: r.Shapes, Folder: l.Builder.Folder(), Sources: sources}
	return &Tuner{Proposer: New(o, s), lab: l, open: map[string]Candidate{}}, nil
}

// Propose asks the program. Proposals of the last answer that the search left out are reported to it
// first.
func (t *Tuner) Propose(ctx context.Context, s tuner.State) ([]tuner.Candidate, error) {
	if t.Ended() {
		return nil, nil
	}
	if err := t.reportSkipped(); err != nil {
		return nil, err
	}
	t.subject.Space, t.subject.Objective = s.Space, s.Default.Objective
	state := State{Evaluations: s.Evaluations, Default: t.score(s.Default), Best: t.score(s.Best), Insights: s.Insights}
	for _, e := range s.Elites {
		state.Elites = append(state.Elites, *t.score(e))
	}
	candidates, err := t.Ask(ctx, state)
	var all []tuner.Candidate
	for _, c := range candidates {
		p := tuner.Candidate{Variant: c.Variant, Origin: fmt.Sprintf("proposal %d", c.Proposal), Parent: c.Parent}
		if c.Patch != 0 {
			p.Patch = &tuner.Patch{Lab: t.lab.Patched(c.Files), Diff: c.Diff, File: patchFile(c.Patch)}
		}
		t.open[p.Origin] = c
		t.waiting = append(t.waiting, p.Origin)
		all = append(all, p)
	}
	return all, err
}

// reportSkipped reports the proposals of the last answer that have no result.
func (t *Tuner) reportSkipped() error {
	for _, origin := range t.waiting {
		c, skipped := t.open[origin]
		if !skipped {
			continue
		}
		err := t.Report(Result{
			Proposal: c.Proposal, Variant: c.Variant.String(), Patch: c.Patch, Stage: "skipped",
			Reason: "the search has evaluated this variant, is about to, or has ended",
		})
		if err != nil {
			return err
		}
	}
	clear(t.open)
	t.waiting = nil
	return nil
}

// Close ends the program, and records which proposals the search has left out.
func (t *Tuner) Close() error {
	if t.closed {
		return nil
	}
	return errors.Join(t.reportSkipped(), t.Proposer.Close())
}

// Done takes an evaluation of the search. Those of the program's proposals are reported to it.
func (t *Tuner) Done(e run.TuneEvaluation) error {
	c, own := t.open[e.Origin]
	if !own {
		return nil
	}
	delete(t.open, e.Origin)
	r := Result{Proposal: c.Proposal, Variant: e.Variant, Patch: c.Patch, Stage: stageOf(e), Reason: e.Reason, Best: e.Best}
	r.P50US, r.Cost = units(e)
	switch {
	case !e.OK():
		r.Reason = e.Failure + ": " + e.Reason
	case c.Patch != 0 && e.Patch == "":
		r.Reason = "the patch changes no machine code of this variant; it counts as the variant without it"
	case e.SameAs != "":
		r.Reason = "its machine code is that of " + e.SameAs
	}
	return t.Report(r)
}

// stageOf is the stage that an evaluation has reached.
func stageOf(e run.TuneEvaluation) string {
	switch {
	case e.OK():
		return "measured"
	case e.Failure == run.FailedCompile:
		return "build"
	case e.Failure == run.FailedResources:
		return "resources"
	case e.Against != "": // it was timed beside the best so far
		return "timing"
	}
	return "correctness"
}

// units are the time in microseconds of a search for time, or else the cost.
func units(e run.TuneEvaluation) (p50US, cost float64) {
	switch {
	case e.Cost == nil:
		return 0, 0
	case e.Objective == run.ObjectiveTime:
		return 1e6 * *e.Cost, 0
	}
	return 0, *e.Cost
}

// score describes an evaluation to the program.
func (t *Tuner) score(e run.TuneEvaluation) *Score {
	s := &Score{Variant: e.Variant, Knobs: map[string]int{}, Origin: e.Origin}
	s.Patch, _ = patchNumber(e.Patch)
	s.P50US, s.Cost = units(e)
	if v, err := t.lab.Kernel.Variant(e.Variant); err == nil { // the search has it from there
		for _, setting := range v.Values() {
			s.Knobs[setting.Knob] = setting.Value
		}
	}
	return s
}

// Restore returns the candidate of a patched kernel that an earlier part of the search has evaluated.
func (t *Tuner) Restore(_ context.Context, variant, origin string, patch []byte) (tuner.Candidate, error) {
	v, err := t.lab.Kernel.Variant(variant)
	if err != nil {
		return tuner.Candidate{}, err
	}
	files, _, err := t.subject.patched(patch)
	if err != nil {
		return tuner.Candidate{}, err
	}
	return tuner.Candidate{Variant: v, Origin: origin, Patch: &tuner.Patch{Lab: t.lab.Patched(files), Diff: patch}}, nil
}
