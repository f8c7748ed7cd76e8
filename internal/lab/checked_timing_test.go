package lab

import (
	"math"
	"strings"
	"testing"

	"attune/internal/finding"
	"attune/internal/measure"
)

// timedCheats are kernels with correct outputs at the gate that do something else when they are timed.
func timedCheats() map[string]behaviour {
	return map[string]behaviour{
		"a wrong output of a timed launch": {Timed: func(out []byte) { clear(out) }},
		"a finding about timed launches":   {Found: []finding.Finding{finding.New(finding.RemembersResults, "it does not do all its work")}},
	}
}

// A variant whose timed launches are wrong is incorrect, and has no times.
func TestTimedLaunchesAreChecked(t *testing.T) {
	t.Parallel()
	for name, cheat := range timedCheats() {
		s := newSetup(t)
		s.declare("stage1", cheat)
		s.declare("stage1+USE_CP_ASYNC=0", behaviour{Seconds: 20e-6})
		if err := s.run(s.request("stage1")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := s.runs[0]
		expectOutcome(t, r, incorrect)
		expectReason(t, r.Reasons.Correctness, "timing 1x2x40x64: ")
		if len(r.Performance) != 0 || len(r.Samples) != 0 || r.Headline != nil || r.Speedup != nil {
			t.Errorf("%s: it has times: %+v", name, r.Performance)
		}
	}
}

// A parent whose timed launches are wrong gives no speedup.
func TestTimedLaunchesOfTheParentAreChecked(t *testing.T) {
	t.Parallel()
	for name, cheat := range timedCheats() {
		s := newSetup(t)
		s.declare("stage1", behaviour{})
		s.declare("stage1+USE_CP_ASYNC=0", cheat)
		if err := s.run(s.request("stage1")); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := s.runs[0]
		expectOutcome(t, r, "not-measured pass/pass/not-measured/not-measured")
		expectReason(t, r.Reasons.Performance, "the parent stage1+USE_CP_ASYNC=0: timing 1x2x40x64: ")
		if r.Speedup != nil {
			t.Errorf("%s: a speedup of %+v over a wrong parent", name, r.Speedup)
		}
	}
}

func TestCompareChecksTimedLaunches(t *testing.T) {
	t.Parallel()
	for name, cheat := range timedCheats() {
		s := newSetup(t)
		s.declare("stage1", behaviour{})
		s.declare("stage2", cheat)
		_, err := s.Compare(t.Context(), s.comparison("stage1", "stage2"))
		if err == nil || !strings.Contains(err.Error(), "stage2 itself does not pass the correctness gate: timed on ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestBenchChecksTimedLaunches(t *testing.T) {
	t.Parallel()
	for name, cheat := range timedCheats() {
		s := newSetup(t)
		r := s.bench(newPeers(t), "torch-flash")
		s.declare("stage2", cheat)
		b, err := s.Bench(t.Context(), r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, row := range b.Rows {
			if wrong := row.Name == "stage2"; wrong != strings.HasPrefix(row.Wrong, "timed: ") || wrong != (row.P50US == nil) || wrong && row.Seconds != nil {
				t.Errorf("%s: %s: wrong %q, %v us, %d blocks", name, row.Name, row.Wrong, row.P50US, len(row.Seconds))
			}
		}
	}
}

// The samples are spread over processes, and the interval covers what differs between them.
func TestProcesses(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	slower := func(process int) float64 { return 1 + 0.01*float64(process%2) }
	s.declare("stage1", behaviour{Process: slower, Joules: 0.002})
	s.declare("stage1+USE_CP_ASYNC=0", behaviour{Seconds: 20e-6, Process: slower, Joules: 0.004})
	r := s.request("stage1")
	r.Processes, r.Samples, r.Energy = 4, 10, true
	r.Benchmark = r.Shapes[:1]
	if err := s.run(r); err != nil {
		t.Fatal(err)
	}
	got := s.runs[0]
	row := got.Performance[0]
	if row.Processes != 4 || row.Samples != 10 || got.Requested.Processes != 4 || s.gpu.Opened != 5 {
		t.Errorf("%d samples of %d processes; %d requested, %d devices opened", row.Samples, row.Processes, got.Requested.Processes, s.gpu.Opened)
	}
	if *row.P50LowUS > 10 || *row.P50HighUS < 10.1 || *row.P50LowUS < 9.8 || math.Abs(*row.ParentRatio-2) > 1e-9 {
		t.Errorf("%.3f us, %.3f to %.3f, ratio %g; want an interval around 10 and 10.1", row.P50US, *row.P50LowUS, *row.P50HighUS, *row.ParentRatio)
	}
	if row.Joules == nil || *row.Joules != 0.002 || *row.ParentJoules != 0.004 || got.Performance[1].Joules != nil {
		t.Errorf("%v J and %v J, and %v J of a shape that is no benchmark", row.Joules, row.ParentJoules, got.Performance[1].Joules)
	}
	if secrets := map[uint64]bool{}; true {
		for _, plan := range s.gpu.Planned {
			secrets[plan.Secret] = true
		}
		if len(secrets) != len(s.gpu.Planned) {
			t.Errorf("%d secrets for %d timings", len(secrets), len(s.gpu.Planned))
		}
	}
}

// A comparison over processes counts each process once, also after rounds were added.
func TestCompareOverProcesses(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage1", behaviour{Noise: 0.001})
	s.declare("stage2", behaviour{Seconds: 9e-6, Noise: 0.001, Joules: 0.001})
	r := s.comparison("stage1", "stage2")
	r.Processes, r.Rounds, r.MaxRounds, r.Energy = 3, 12, 48, true
	c, err := s.Compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range c.Shapes {
		if shape.ABetween.Processes != 3 || len(shape.Samples.Processes) != 3 || shape.Verdict != measure.Faster || shape.BJoules != 0.001 {
			t.Errorf("%s: %+v, %v rounds by process, %s, %g J", shape.Shape, shape.ABetween, shape.Samples.Processes, shape.Verdict, shape.BJoules)
		}
	}
}
