package tuner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"attune/internal/lab"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// Request says what to search, and how.
type Request struct {
	Variant  spec.Variant // the default: it is measured first, and its stage gives the space
	Fixed    []string     // knobs that keep the default's value
	Shapes   []spec.Shape // the objective is the geometric mean over them
	Small    []spec.Shape // checked before any time is taken; the smallest of the kernel's own if empty
	Seeds    []uint64
	Strategy string
	Options  tune.Options
	Budget   Budget
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
	Elsewhere Elsewhere   // evaluates the candidates in place of this machine; may be nil
	Resumed   func(State) // called with what a resumed search has found so far; may be nil
}

// Budget limits a search. A zero field is no limit; at least one is set.
type Budget struct {
	Evaluations int
	Time        time.Duration // of all sessions of a resumed search, without the finals
}

// Proposer suggests candidates that no strategy would, such as patches of the kernel.
type Proposer interface {
	// Propose is asked between the strategy's candidates. It returns none where the proposer has nothing.
	Propose(ctx context.Context, state State) ([]Candidate, error)
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
	Restore(ctx context.Context, variant, origin string, patch []byte) (Candidate, error)
}

// State is what a proposer knows of the search.
type State struct {
	Space         *tune.Space
	Default, Best run.TuneEvaluation
	Elites        []run.TuneEvaluation
	Evaluations   int
	Insights      []profile.Insight // of the best candidate
	// LeftOut counts the patched candidates of a resumed search that have a cost, and that nobody can
	// make again.
	LeftOut int
}

// plan checks the request for a frozen lab, completes it and makes its space.
func (r Request) plan(l *lab.Lab) (Request, *tune.Space, error) {
	if err := r.check(l.Device); err != nil {
		return r, nil, err
	}
	if len(r.Small) == 0 {
		r.Small = r.smallShapes(l)
	}
	if r.Options.Elites <= 0 {
		r.Options.Elites = tune.DefaultElites
	}
	if r.Options.Budget <= 0 {
		r.Options.Budget = r.Budget.Evaluations
	}
	if err := l.Problem.CheckShapes(r.Variant, slices.Concat(r.Shapes, r.Small)); err != nil {
		return r, nil, lab.RequestError(err.Error())
	}
	if _, err := lab.Arch(r.Variant.Stage(), r.Arch, l.Device.Facts().Arch); err != nil {
		return r, nil, err
	}
	space, err := tune.OfVariant(r.Variant, r.Fixed...)
	if err != nil {
		return r, nil, lab.RequestError(err.Error())
	}
	if n, exact := space.Size(); exact && n < 2 {
		return r, nil, lab.RequestError(fmt.Sprintf("%s has no other variant to try: no knob of %s has a second value that its constraints allow",
			r.Variant, l.Kernel.Name))
	}
	return r, space, nil
}

// check sets the defaults of a device, and refuses what no search could begin with.
func (r *Request) check(d lab.Device) error {
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
		return lab.RequestError(fmt.Sprintf("unknown objective %q; there are %s", r.Objective, strings.Join(known, ", ")))
	case r.Objective == run.ObjectiveCost && d.Timed():
		return lab.RequestError("the objective cost is an estimate for machines without a GPU; this device measures time and energy")
	case r.Objective != run.ObjectiveCost && d.Simulated():
		return lab.RequestError(fmt.Sprintf("the objective %s needs a GPU; the simulator has only cost, an estimate from its counters", r.Objective))
	case r.Budget.Evaluations < 0 || r.Budget.Time < 0 || r.Budget == (Budget{}):
		return lab.RequestError("the budget of a search is a number of evaluations above 0, a time above 0, or both")
	case len(r.Shapes) == 0 || len(r.Seeds) == 0:
		return lab.RequestError("a search needs at least one shape and one seed")
	}
	if err := tune.CheckStrategy(r.Strategy); err != nil {
		return lab.RequestError(err.Error())
	}
	return nil
}

// smallShapes are the two smallest shapes of a quick run on the simulator that the default takes, or
// else the smallest shape of the kernel or the request.
func (r *Request) smallShapes(l *lab.Lab) []spec.Shape {
	takes := func(all []spec.Shape) []spec.Shape { return lab.Runnable(l.Problem, r.Variant, all) }
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
