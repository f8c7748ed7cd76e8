package lab

import (
	"math"
	"strings"
	"testing"

	"attune/internal/measure"
	"attune/internal/run"
)

// What stands beside the times reaches the record, and a run done again asks for the same state of L2.
func TestColdL2(t *testing.T) {
	s := newSetup(t)
	s.times(1.5, 0.01)
	request := s.request("stage2")
	request.L2 = run.Cold
	r := s.one(request)
	expect(t, r, merged)
	if r.Asked.L2 != run.Cold || !strings.Contains(r.Asked.Timing, "cold in L2") {
		t.Errorf("L2 %q, timing %q", r.Asked.L2, r.Asked.Timing)
	}
	row := r.Performance[0]
	about := func(got *float64, want float64) bool { return got != nil && math.Abs(*got-want) < 1e-6 }
	if !about(row.SingleUS, 14) || !about(row.FlushUS, 40) || !about(row.WithFlushUS, 50) || !about(row.EmptyNodeUS, 0.6) {
		t.Errorf("%+v", row)
	}
	if row.P50LowUS == nil || *row.P50LowUS > row.P50US || *row.P50HighUS < row.P50US || math.Abs(row.CV-0.01) > 0.005 {
		t.Errorf("a median of %g us from %v to %v, CV %g", row.P50US, row.P50LowUS, row.P50HighUS, row.CV)
	}
	if again, err := Again(s.Kernel, r, nil); err != nil || again.L2 != run.Cold {
		t.Errorf("again: L2 %q, %v", again.L2, err)
	}
}

// Samples of a throttled GPU count for nothing, and are kept.
func TestThrottledSamples(t *testing.T) {
	s := newSetup(t)
	s.knows("stage1", behaviour{seconds: 30e-6, throttled: []int{1}})
	s.knows("stage2", behaviour{seconds: 10e-6, throttled: []int{3, 4}})
	request := s.request("stage2")
	r := s.one(request)
	row, raw := r.Performance[0], r.Samples[0]
	if row.P99US > 10.1 || math.Abs(*row.ParentRatio-3) > 1e-9 || row.Samples != request.Samples-3 || len(raw.Variant.Seconds) != request.Samples {
		t.Errorf("%+v of %d raw samples", row, len(raw.Variant.Seconds))
	}
	w := row.Watched
	if w == nil || w.Throttled != 3 || w.SetAside != 3 || w.Rounds != request.Samples || w.ClockMHz != [2]int{990, 1980} || len(w.Reasons) != 1 {
		t.Errorf("watched %+v", w)
	}
}

// In a comparison both orders of a round are set aside together, and more rounds add to what was watched.
func TestThrottledRounds(t *testing.T) {
	s := newSetup(t)
	s.knows("stage1", behaviour{seconds: 10e-6, noise: 0.001})
	s.knows("stage2", behaviour{seconds: 20e-6, noise: 0.001, throttled: []int{2, 7}})
	r := s.comparison("stage1", "stage2")
	r.L2, r.Launches = run.Cold, 10
	c, err := s.Compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if plan := s.gpu.planned[0]; !plan.ColdL2 || plan.Launches != 10 || c.Launches != 10 {
		t.Errorf("a plan of %+v; the comparison says %d launches", plan, c.Launches)
	}
	first := c.Shapes[0]
	if c.L2 != run.Cold || c.Verdict != measure.Slower || first.Rounds != 36 || first.Watched.Throttled != 4 || first.Watched.SetAside != 4 || first.Watched.Rounds != 40 {
		t.Errorf("%s after %d rounds, %+v", c.Verdict, first.Rounds, first.Watched)
	}
	if first.SetAside == nil || len(first.SetAside.A) != 4 || len(first.SetAside.B) != 4 || len(first.SetAside.Control) != 4 || first.SetAside.B[0] < 39e-6 {
		t.Errorf("set aside: %+v", first.SetAside)
	}
	if first.P > 1e-6 || first.ATimes.Median == nil || *first.BParts.FlushUS != 40 {
		t.Errorf("p=%g, %+v, %+v", first.P, first.ATimes, first.BParts)
	}
}
