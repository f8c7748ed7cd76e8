package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// TuneRequest says what to search, and how.
type TuneRequest struct {
	Variant  spec.Variant // the default: it is measured first, and its stage gives the space
	Fixed    []string     // knobs that keep the default's value
	Shapes   []spec.Shape // the objective is the geometric mean over them
	Small    []spec.Shape // checked before any time is taken; the smallest of the kernel's own if empty
	Seeds    []uint64
	Strategy string
	Options  tune.Options
	Budget   TuneBudget
	// Objective is one of run.ObjectiveTime, ObjectiveEnergy and ObjectiveCost. The simulator has only
	// the last one, and a GPU only the others. Empty is the usual one of the device.
	Objective string
	// Folder is where journal.jsonl and elite.json are written. If it is empty, the ledger has one;
	// without a ledger nothing is written.
	Folder    string
	Resume    bool // continue the newest unfinished search of the same request
	Arch      string
	MaxWork   float64 // multiply-adds of a complete reference; above it a sample of rows is checked
	Processes int     // of the finals
	Proposer  Proposer
	Resumed   func(TuneState) // called with what a resumed search has found so far; may be nil
}

// TuneBudget limits a search. A zero field is no limit; at least one is set.
type TuneBudget struct {
	Evaluations int
	Time        time.Duration // of all sessions of a resumed search, without the finals
}

// Proposal is a variant from outside of the strategy.
type Proposal struct {
	Lab     *Lab // of the patched kernel, which builds it; nil for the own kernel
	Variant spec.Variant
	Origin  string // for the record
	Patch   []byte
	Parent  string
	// PatchFile is the name of the patch in the folder of the search, if the proposer keeps it there.
	PatchFile string
}

// Proposer suggests variants that no strategy would, such as patches of the kernel.
type Proposer interface {
	// Propose is asked between the strategy's variants. It returns none where the proposer has nothing.
	Propose(ctx context.Context, state TuneState) ([]Proposal, error)
}

// Keeper is a Proposer that keeps files in the folder of the search, which become part of its record.
type Keeper interface {
	// Open is called before the first Propose of a search that has a folder.
	Open(folder string) error
	// Files are the names of the files.
	Files() []string
	// Close is called when the search has ended, before the finals.
	Close() error
}

// Restorer is a Proposer whose patched kernels can be made again when a search is resumed. Without
// it they are known by their results only, and do not take part in the finals.
type Restorer interface {
	Restore(ctx context.Context, variant, origin string, patch []byte) (Proposal, error)
}

// TuneState is what a proposer knows of the search.
type TuneState struct {
	Space         *tune.Space
	Default, Best run.TuneEvaluation
	Elites        []run.TuneEvaluation
	Evaluations   int
	Insights      []profile.Insight // of the best variant
	// LeftOut counts the patched variants of a resumed search that have a cost, and that nobody can
	// make again.
	LeftOut int
}

// Tune searches the knobs of a variant. Each evaluation is passed to done after it was written to
// the journal. An interrupted search can be resumed. An error means that the default or the lab
// failed; failures of other variants are results.
func (l *Lab) Tune(ctx context.Context, r TuneRequest, done func(run.TuneEvaluation)) (*run.Tuning, error) {
	defer l.Freeze()()
	t, err := l.newTuning(ctx, r)
	if err != nil {
		return nil, err
	}
	defer t.close()
	t.done = done
	result, err := t.conduct(ctx)
	if err != nil && ctx.Err() == nil && t.isNew && len(t.evaluations) == 0 { // there is nothing to resume
		return nil, errors.Join(err, t.Ledger.RemoveUnfinishedTuning(t.document.ID))
	}
	if t.folder != "" && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		err = fmt.Errorf("the disk is full; free some space, then the same command with --resume continues: %w", err)
	}
	return result, err
}

// conduct carries out the search and the finals, and records them.
func (t *tuning) conduct(ctx context.Context) (*run.Tuning, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	if err := t.loadInputs(ctx); err != nil {
		return nil, err
	}
	if err := t.search(ctx); err != nil {
		return nil, err
	}
	if keeper, ok := t.request.Proposer.(Keeper); ok {
		if err := keeper.Close(); err != nil {
			return nil, err
		}
	}
	result, err := t.finals(ctx)
	if err != nil {
		return nil, err
	}
	return result, t.finish(ctx, result)
}

// CheckTune refuses a request that cannot be carried out. It needs no device.
func (l *Lab) CheckTune(r TuneRequest) error {
	_, _, err := l.planTune(r)
	return err
}

// planTune checks the request, completes it and makes its space.
func (l *Lab) planTune(r TuneRequest) (TuneRequest, *tune.Space, error) {
	if err := r.check(l.Device); err != nil {
		return r, nil, err
	}
	p := l.problem()
	if len(r.Small) == 0 {
		r.Small = l.smallShapes(r)
	}
	if r.Options.Elites <= 0 {
		r.Options.Elites = tune.DefaultElites
	}
	if r.Options.Budget <= 0 {
		r.Options.Budget = r.Budget.Evaluations
	}
	if err := p.CheckShapes(r.Variant, slices.Concat(r.Shapes, r.Small)); err != nil {
		return r, nil, RequestError(err.Error())
	}
	if _, err := Arch(r.Variant.Stage(), r.Arch, l.Device.facts.Arch); err != nil {
		return r, nil, err
	}
	fixed := r.Fixed
	if HeadDim(r.Variant) != 0 { // another head dim cannot run the shapes
		fixed = append(slices.Clone(fixed), spec.HeadDimKnob)
	}
	space, err := tune.OfVariant(r.Variant, fixed...)
	if err != nil {
		return r, nil, RequestError(err.Error())
	}
	if n, exact := space.Size(); exact && n < 2 {
		return r, nil, RequestError(fmt.Sprintf("%s has no other variant to try: no knob of %s has a second value that its constraints allow",
			r.Variant, l.Kernel.Name))
	}
	return r, space, nil
}

func (r *TuneRequest) check(d Device) error {
	if r.Objective == "" {
		r.Objective = run.ObjectiveTime
		if d.Simulated() {
			r.Objective = run.ObjectiveCost
		}
	}
	if r.Strategy == "" {
		r.Strategy = tune.DefaultStrategy
	}
	known := []string{run.ObjectiveTime, run.ObjectiveEnergy, run.ObjectiveCost}
	switch {
	case !slices.Contains(known, r.Objective):
		return RequestError(fmt.Sprintf("unknown objective %q; there are %s", r.Objective, strings.Join(known, ", ")))
	case r.Objective == run.ObjectiveCost && d.timed():
		return RequestError("the objective cost is an estimate for machines without a GPU; this device measures time and energy")
	case r.Objective != run.ObjectiveCost && d.Simulated():
		return RequestError(fmt.Sprintf("the objective %s needs a GPU; the simulator has only cost, an estimate from its counters", r.Objective))
	case r.Budget.Evaluations < 0 || r.Budget.Time < 0 || r.Budget == (TuneBudget{}):
		return RequestError("the budget of a search is a number of evaluations above 0, a time above 0, or both")
	case len(r.Shapes) == 0 || len(r.Seeds) == 0:
		return RequestError("a search needs at least one shape and one seed")
	}
	if err := tune.CheckStrategy(r.Strategy); err != nil {
		return RequestError(err.Error())
	}
	return nil
}

// smallShapes are the two smallest shapes of a quick run on the simulator that the default takes, or
// else the smallest shape of the kernel or the request.
func (l *Lab) smallShapes(r TuneRequest) []spec.Shape {
	p := l.problem()
	takes := func(all []spec.Shape) []spec.Shape {
		all = slices.DeleteFunc(slices.Clone(all), func(s spec.Shape) bool { return p.CheckShapes(r.Variant, []spec.Shape{s}) != nil })
		slices.SortStableFunc(all, func(a, b spec.Shape) int { return cmp.Compare(p.Size(a), p.Size(b)) })
		return all
	}
	quick, _ := l.Kernel.Shapes(strings.Join(l.Kernel.Run.SimQuick, ",")) // the loader has checked them
	if small := takes(quick); len(small) > 0 {
		return small[:min(len(small), 2)]
	}
	all := slices.Clone(r.Shapes)
	for _, g := range l.Kernel.Groups {
		all = append(all, g.Shapes...)
	}
	if small := takes(all); len(small) > 0 {
		return small[:1]
	}
	return r.Shapes[:1] // CheckShapes says what is wrong with it
}
