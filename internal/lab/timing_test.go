package lab

import (
	"math"
	"strings"
	"testing"

	"attune/internal/measure"
	"attune/internal/run"
)

// The related times are in the record, and a repeated run has the same L2 state.
func TestColdL2(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.setSpeedup(1.5, 0.01)
	request := s.request("stage2")
	request.L2 = run.Cold
	r := s.runOne(request)
	expectOutcome(t, r, merged)
	if r.Requested.L2 != run.Cold || !strings.Contains(r.Requested.Timing, "cold in L2") {
		t.Errorf("L2 %q, timing %q", r.Requested.L2, r.Requested.Timing)
	}
	row := r.Performance[0]
	about := func(got *float64, want float64) bool { return got != nil && math.Abs(*got-want) < 1e-6 }
	if !about(row.SingleUS, 14) || !about(row.FlushUS, 40) || !about(row.WithFlushUS, 50) || !about(row.EmptyNodeUS, 0.6) {
		t.Errorf("%+v", row)
	}
	if row.P50LowUS == nil || *row.P50LowUS > row.P50US || *row.P50HighUS < row.P50US || math.Abs(row.CV-0.01) > 0.005 {
		t.Errorf("a median of %g us from %v to %v, CV %g", row.P50US, row.P50LowUS, row.P50HighUS, row.CV)
	}
	if repeat, err := ReproduceRequest(s.Kernel, r, nil); err != nil || repeat.L2 != run.Cold {
		t.Errorf("repeated: L2 %q, %v", repeat.L2, err)
	}
}

// Samples of a throttled GPU are excluded from the figures, and recorded.
func TestThrottledSamples(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage1", behaviour{Seconds: 30e-6, Throttled: []int{1}})
	s.declare("stage2", behaviour{Seconds: 10e-6, Throttled: []int{3, 4}})
	request := s.request("stage2")
	r := s.runOne(request)
	row, raw := r.Performance[0], r.Samples[0]
	if row.P99US > 10.1 || math.Abs(*row.ParentRatio-3) > 1e-9 || row.Samples != request.Samples-3 || len(raw.Variant.Seconds) != request.Samples {
		t.Errorf("%+v of %d raw samples", row, len(raw.Variant.Seconds))
	}
	w := row.Monitored
	if w == nil || w.Throttled != 3 || w.Excluded != 3 || w.Rounds != request.Samples || w.ClockMHz != [2]int{990, 1980} || len(w.Reasons) != 1 {
		t.Errorf("monitored %+v", w)
	}
}

// In a comparison, two rounds in opposite order are excluded together.
func TestThrottledRounds(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage1", behaviour{Seconds: 10e-6, Noise: 0.001})
	s.declare("stage2", behaviour{Seconds: 20e-6, Noise: 0.001, Throttled: []int{2, 7}})
	r := s.comparison("stage1", "stage2")
	r.L2, r.Launches = run.Cold, 10
	c, err := s.Compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if plan := s.gpu.Planned[0]; !plan.ColdL2 || plan.Launches != 10 || c.Launches != 10 {
		t.Errorf("a plan of %+v; the comparison says %d launches", plan, c.Launches)
	}
	first := c.Shapes[0]
	if c.L2 != run.Cold || c.Verdict != measure.Slower || first.Rounds != 36 || first.Monitored.Throttled != 4 || first.Monitored.Excluded != 4 || first.Monitored.Rounds != 40 {
		t.Errorf("%s after %d rounds, %+v", c.Verdict, first.Rounds, first.Monitored)
	}
	if first.Excluded == nil || len(first.Excluded.A) != 4 || len(first.Excluded.B) != 4 || len(first.Excluded.Control) != 4 || first.Excluded.B[0] < 39e-6 {
		t.Errorf("excluded: %+v", first.Excluded)
	}
	if first.P > 1e-6 || first.ATimes.Median == nil || *first.BRelated.FlushUS != 40 {
		t.Errorf("p=%g, %+v, %+v", first.P, first.ATimes, first.BRelated)
	}
}
