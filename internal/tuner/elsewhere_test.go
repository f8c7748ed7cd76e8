package tuner

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"attune/internal/lab"
	"attune/internal/run"
)

// nearby evaluates candidates in this process, as a worker does: what it gets and returns goes through JSON.
type nearby struct {
	t      *testing.T
	lab    *lab.Lab
	flight int
	fail   func(Trial) error // may be nil

	mu     sync.Mutex
	sites  map[string]*Site
	trials []Trial
}

func (n *nearby) InFlight() int { return n.flight }

func (n *nearby) site(ctx context.Context, p Plan) (*Site, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if n.sites[string(text)] == nil {
		site, err := NewSite(context.WithoutCancel(ctx), n.lab, p)
		if err != nil {
			return nil, err
		}
		n.sites = map[string]*Site{string(text): site}
	}
	return n.sites[string(text)], nil
}

func (n *nearby) Evaluate(ctx context.Context, t Trial) (found run.TuneEvaluation, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trials = append(n.trials, t)
	if n.fail != nil {
		if err := n.fail(t); err != nil {
			return found, err
		}
	}
	site, err := n.site(ctx, copied(n.t, t).Plan)
	if err != nil {
		return found, err
	}
	found, err = site.Evaluate(ctx, copied(n.t, t))
	return copied(n.t, found), err
}

func (n *nearby) Conclude(ctx context.Context, f Finals) (*Standing, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	site, err := n.site(ctx, f.Plan)
	if err != nil {
		return nil, err
	}
	found, err := site.Conclude(ctx, copied(n.t, f))
	return copied(n.t, found), err
}

func (n *nearby) close() {
	for _, s := range n.sites {
		if err := s.Close(); err != nil {
			n.t.Error(err)
		}
	}
}

// copied is a value after its way through a job.
func copied[T any](t *testing.T, value T) (other T) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &other)
	}
	if err != nil {
		t.Error(err)
	}
	return other
}

// onSimulator is a search by simulated cost.
func (s *setup) onSimulator() Request {
	s.t.Helper()
	r := s.tuneRequest()
	r.Shapes, r.Objective, r.Budget.Evaluations = r.Small, run.ObjectiveCost, 12
	return r
}

// A search elsewhere, by simulated cost, has the journal and the outcome of one on this machine with as many
// candidates in flight.
func TestElsewhereIsLocal(t *testing.T) {
	t.Parallel()
	local := newDeclared(t, tunedKernel)
	want, wanted := local.tuned(local.onSimulator())
	other := newDeclared(t, tunedKernel)
	r := other.onSimulator()
	n := &nearby{t: t, lab: newDeclared(t, tunedKernel).Lab, flight: r.ahead()}
	t.Cleanup(n.close)
	r.Elsewhere, r.MaxWork = n, 1e12
	got, evaluations := other.tuned(r)
	if got.Best.Variant != want.Best.Variant || got.Evaluations != want.Evaluations {
		t.Errorf("the best is %s after %d evaluations, want %s after %d", got.Best.Variant, got.Evaluations, want.Best.Variant, want.Evaluations)
	}
	if a, b := other.journalVariants(got.ID), local.journalVariants(want.ID); !slices.Equal(a, b) {
		t.Errorf("the journal has %q, want %q", a, b)
	}
	for i := range min(len(evaluations), len(wanted)) {
		a, b := evaluations[i], wanted[i]
		if a.Variant != b.Variant || a.Failure != b.Failure || a.Best != b.Best || a.SameAs != b.SameAs || (a.Cost == nil) != (b.Cost == nil) || a.Cost != nil && *a.Cost != *b.Cost {
			t.Errorf("evaluation %d is %s of cost %v (best: %t), want %s of cost %v (best: %t)", i, a.Variant, a.Cost, a.Best, b.Variant, b.Cost, b.Best)
		}
	}
	for _, one := range n.trials {
		if one.Search != "" || one.Against != "" {
			t.Errorf("the cost of %s depends on another one: %+v", one.Variant, one)
		}
	}
}

// On a GPU a candidate that was timed beside an older best, and seems better than the present one, is timed
// again beside that. Each new best was timed beside the one before it.
func TestElsewhereTimesAgain(t *testing.T) {
	t.Parallel()
	s, worker := newTuned(t), newTuned(t)
	s.landscape()
	worker.landscape()
	n := &nearby{t: t, lab: worker.Lab, flight: 6}
	t.Cleanup(n.close)
	r := s.tuneRequest()
	r.Elsewhere, r.MaxWork = n, 1e12
	result, all := s.tuned(r)
	if result.Best.Variant != "tuned+THREADS=256+ITEMS=2" || !result.Faster {
		t.Errorf("the best is %+v", result.Best)
	}
	best, times := "", map[string][]string{}
	for _, one := range n.trials {
		times[one.Variant] = append(times[one.Variant], one.Against)
		if one.Search == "" {
			t.Errorf("%s may take the times of another search", one.Variant)
		}
	}
	for _, e := range all {
		if e.Best {
			if e.Against != "" && e.Against != best || best != "" && e.Against == "" {
				t.Errorf("%s is the best beside %q; the best before was %q", e.Variant, e.Against, best)
			}
			best = e.Variant
		}
	}
	repeated := 0
	for variant, against := range times {
		if len(against) > 1 {
			repeated++
		}
		slices.Sort(against)
		if len(slices.Compact(slices.Clone(against))) != len(against) {
			t.Errorf("%s was timed twice beside the same best: %q", variant, against)
		}
	}
	if repeated == 0 {
		t.Error("no candidate was timed again")
	}
	t.Logf("%d of %d candidates were timed again", repeated, len(times))
}

// What a machine does ends the search; the candidate is not blamed.
func TestElsewhereFails(t *testing.T) {
	t.Parallel()
	s := newDeclared(t, tunedKernel)
	lost := errors.New("not measured: 3 workers were lost on it")
	n := &nearby{t: t, lab: newDeclared(t, tunedKernel).Lab, flight: 2}
	n.fail = func(Trial) error {
		if len(n.trials) > 3 {
			return lost
		}
		return nil
	}
	t.Cleanup(n.close)
	r := s.onSimulator()
	r.Elsewhere, r.MaxWork = n, 1e12
	if err := s.tuneError(r); !errors.Is(err, lost) {
		t.Errorf("the search ends with %v", err)
	}
	if site, err := NewSite(t.Context(), s.Lab, Plan{Variant: "nothing"}); err == nil || site != nil {
		t.Errorf("a plan of no variant: %v", err)
	}
	if _, err := NewSite(t.Context(), s.Lab, Plan{Variant: "tuned", Shapes: []string{"nothing"}}); err == nil {
		t.Error("a plan of no shape")
	}
}
