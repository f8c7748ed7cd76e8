package tune

import (
	"math"
	"testing"

	"attune/internal/rule"
	"attune/internal/spec"
)

func evaluation(cost float64, point ...uint16) Evaluation {
	return Evaluation{Point: point, Result: Result{Cost: cost}}
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9 {
		t.Errorf("%s: got %v, want %v", what, show(got), want)
	}
}

func show(x *float64) any {
	if x == nil {
		return nil
	}
	return *x
}

func TestEffects(t *testing.T) {
	t.Parallel()
	space := mustSpace(t, []Knob{
		{Name: "still", Values: []rule.Value{rule.Int(1), rule.Int(2)}, Default: -1},
		{Name: "unroll", Values: []rule.Value{rule.Int(1), rule.Int(2), rule.Int(4)}, Default: -1},
		{Name: "threads", Layer: spec.Macro, Values: []rule.Value{rule.Int(64), rule.Int(128), rule.Int(256), rule.Int(512)}, Default: -1},
	})
	effects := Effects(space, []Evaluation{
		evaluation(10, 0, 0, 0),
		evaluation(8, 0, 0, 1), // neighbour of the first: threads
		evaluation(11, 0, 1, 0),
		evaluation(8.4, 0, 1, 1),
		{Point: Point{0, 1, 2}, Result: Result{Failure: "crashed"}},
		{Result: Result{Cost: 1}}, // of a patched kernel
		evaluation(16, 0, 2, 0),
	})
	if len(effects) != 2 || effects[0].Knob != "unroll" || effects[1].Knob != "threads" {
		t.Fatalf("got %+v; want unroll, which has the larger spread, then threads", effects)
	}
	threads := effects[1]
	if threads.Layer != spec.Macro || len(threads.Values) != 3 {
		t.Fatalf("got %+v; want three values of a macro knob: 512 was not tried", threads)
	}
	first, second, failed := threads.Values[0], threads.Values[1], threads.Values[2]
	near(t, "best of 64", first.Best, 10)
	near(t, "median of 64", first.Median, 11.0/8)
	near(t, "neighbours of 64", first.Ratio, (10/8.0+11/8.4)/2)
	near(t, "neighbours of 128", second.Ratio, (8/10.0+8.4/11)/2)
	near(t, "spread", &threads.Spread, *first.Ratio / *second.Ratio)
	if first.Neighbours != 2 || first.Evaluations != 3 || first.Value != rule.Int(64) {
		t.Errorf("got %+v; want 3 evaluations with 2 neighbours", first)
	}
	if failed.Evaluations != 1 || failed.Failures != 1 || failed.Best != nil || failed.Median != nil || failed.Ratio != nil {
		t.Errorf("got %+v; want one failure and no figures", failed)
	}
}

// A knob whose values never occur with the same others has no ratio, and no spread.
func TestEffectsWithoutNeighbours(t *testing.T) {
	t.Parallel()
	two := []rule.Value{rule.Int(1), rule.Int(2)}
	space := mustSpace(t, []Knob{{Name: "x", Values: two, Default: -1}, {Name: "y", Values: two, Default: -1}})
	for _, e := range Effects(space, []Evaluation{evaluation(1, 0, 0), evaluation(0, 1, 1)}) {
		if e.Spread != 1 || e.Values[0].Ratio != nil {
			t.Errorf("got %+v; want no ratio", e)
		}
	}
	if got := Effects(space, nil); got != nil {
		t.Errorf("got %+v without evaluations", got)
	}
}

// The costs of a rate are negative; twice the rate is half the cost.
func TestEffectsOfRates(t *testing.T) {
	t.Parallel()
	space := mustSpace(t, []Knob{{Name: "x", Values: []rule.Value{rule.Int(1), rule.Int(2)}, Default: -1}})
	e := Effects(space, []Evaluation{evaluation(-100, 0), evaluation(-200, 1)})[0]
	near(t, "the slow value", e.Values[0].Ratio, 2)
	near(t, "the fast value", e.Values[1].Ratio, 0.5)
	near(t, "the slow value over the best", e.Values[0].Median, 2)
}
