package trial

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"testing"

	"attune/internal/fleet"
	"attune/internal/run"
	"attune/internal/tuner"
)

func evaluated(objective string, cost float64) run.TuneEvaluation {
	e := run.TuneEvaluation{Variant: "softmax", Objective: objective}
	if cost > 0 {
		e.Cost = &cost
	} else {
		e.Failure, e.Reason = "incorrect", "max_err"
	}
	return e
}

// A simulated cost is repeated when it is the least so far, and a time when its worker says so.
func TestDue(t *testing.T) {
	r := &Repeats{}
	due := func(want bool, e run.TuneEvaluation) {
		t.Helper()
		if got := r.due(&tuner.Trial{Variant: "softmax"}, &e); got != want {
			t.Errorf("%s is due: %t", costOf(&e), got)
		}
	}
	due(true, evaluated(run.ObjectiveCost, 90))
	due(false, evaluated(run.ObjectiveCost, 91))
	due(true, evaluated(run.ObjectiveCost, 80))
	due(false, evaluated(run.ObjectiveCost, 80))
	due(false, evaluated(run.ObjectiveCost, 0))
	due(false, evaluated(run.ObjectiveTime, 1e-6))
	best := evaluated(run.ObjectiveTime, 1e-6)
	best.Best = true
	due(true, best)
	var none *Repeats
	if none.due(&tuner.Trial{}, &best) || none.Summary() != "" {
		t.Error("without repetitions one is due")
	}
	share := 0
	for i := range 5000 {
		one := evaluated(run.ObjectiveTime, 1e-6)
		if r.due(&tuner.Trial{Variant: strings.Repeat("x", i%70) + string(rune('a'+i/70%26)) + string(rune('a'+i/1820))}, &one) {
			share++
		}
	}
	if share < 50 || share > 200 { // 2 % of 5000 are 100
		t.Errorf("%d of 5000 others are repeated", share)
	}
}

// Of two times the larger one counts, and two simulated costs must be equal.
func TestWorse(t *testing.T) {
	for _, c := range []struct {
		objective     string
		first, second float64
		want          float64
		note, failure string
	}{
		{run.ObjectiveTime, 10e-6, 10.5e-6, 10.5e-6, "", ""},
		{run.ObjectiveTime, 10.5e-6, 10e-6, 10.5e-6, "", ""},
		{run.ObjectiveTime, 10e-6, 12e-6, 12e-6, "softmax: the time 1e-05 by a and the time 1.2e-05 by b; the larger counts", ""},
		{run.ObjectiveTime, 10e-6, 0, 0, "incorrect (max_err) by b; the latter counts", ""},
		{run.ObjectiveCost, 80, 80, 80, "", ""},
		{run.ObjectiveCost, 80, 81, 80, "", "a finds the cost 80 and b the cost 81, although a simulated cost depends on no machine"},
		{run.ObjectiveCost, 80, 0, 80, "", "a finds the cost 80 and b incorrect (max_err), although"},
	} {
		notes := ""
		r := &Repeats{Note: func(line string) { notes += line }}
		got, err := r.worse("a", evaluated(c.objective, c.first), "b", evaluated(c.objective, c.second))
		if (err == nil) != (c.failure == "") || err != nil && !strings.Contains(err.Error(), c.failure) {
			t.Errorf("%+v: the error is %v", c, err)
		}
		if !strings.Contains(notes, c.note) || (notes == "") != (c.note == "") {
			t.Errorf("%+v: the note is %q", c, notes)
		}
		if cost := got.Cost; cost == nil && c.want != 0 || cost != nil && *cost != c.want {
			t.Errorf("%+v: got %s", c, costOf(&got))
		}
	}
	r := &Repeats{done: 3, open: 1}
	if got := r.Summary(); got != "3 evaluations were repeated by another worker; for 1 there was none" {
		t.Error(got)
	}
}

// A search's evaluations go to workers, and a new best to a second one. What they disagree on ends the
// search, or the larger time counts; without a second worker the first result stands.
func TestRepeatByAnother(t *testing.T) {
	costs := map[string]float64{"a": 80, "b": 80}
	var mu sync.Mutex
	worker := func(name string) *fleet.Worker {
		return &fleet.Worker{Name: name, Class: "sim", Do: func(_ context.Context, j *fleet.Job, _ fleet.Objects, _ func()) (any, error) {
			var e evaluation
			if err := json.Unmarshal(j.Body, &e); err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			if j.Not != "" && costs["answer"] != 0 {
				return "no evaluation", nil
			}
			one := evaluated(e.Trial.Plan.Objective, costs[name])
			one.Variant, one.Best = e.Trial.Variant, true
			return one, nil
		}}
	}
	here, err := fleet.StartHere(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if err := here.Start(t.Context(), worker("a"), worker("b")); err != nil {
		t.Fatal(err)
	}
	s := &Searcher{Fleet: here.Coordinator, Class: "sim", Flight: 4, Repeats: &Repeats{Note: func(string) {}}}
	evaluate := func(variant, objective string, set map[string]float64) (run.TuneEvaluation, error) {
		mu.Lock()
		maps.Copy(costs, set)
		mu.Unlock()
		return s.Evaluate(t.Context(), tuner.Trial{Variant: variant, Plan: tuner.Plan{Objective: objective}})
	}
	if s.InFlight() != 4 {
		t.Error(s.InFlight())
	}
	if got, err := evaluate("first", run.ObjectiveCost, nil); err != nil || *got.Cost != 80 {
		t.Errorf("%+v, %v", got, err)
	}
	if got := s.Repeats.Summary(); got != "1 evaluation was repeated by another worker" {
		t.Error(got)
	}
	if _, err := evaluate("second", run.ObjectiveCost, map[string]float64{"a": 70, "b": 60}); err == nil ||
		!strings.HasPrefix(err.Error(), "second: ") || !strings.Contains(err.Error(), "depends on no machine") {
		t.Error(err)
	}
	if got, err := evaluate("third", run.ObjectiveTime, map[string]float64{"a": 2, "b": 3}); err != nil || *got.Cost != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := evaluate("fourth", run.ObjectiveTime, map[string]float64{"answer": 1}); err == nil || !strings.Contains(err.Error(), "cannot unmarshal") {
		t.Error(err)
	}
}
