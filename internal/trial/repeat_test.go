package trial

import (
	"strings"
	"testing"

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
