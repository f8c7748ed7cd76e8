package lab

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/problem"
	"attune/internal/run"
)

// newSimulated is the kernel of newBroken on the simulator.
func newSimulated(t *testing.T, o simdevice.Options) *setup {
	t.Helper()
	s := newBroken(t)
	open := func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	s.Device = Simulator(simdevice.Open(o).Facts(), open, run.Simulation{Schedules: 1, Checks: o.Checks, Tensor: run.ExactTensor})
	return s
}

// The simulator finds what is wrong with a kernel, mostly with its source line.
func TestRunOnTheSimulator(t *testing.T) {
	t.Parallel()
	check := func(variant string, o simdevice.Options, want string, reasons ...string) {
		t.Helper()
		s := newSimulated(t, o)
		r := s.request(variant)
		r.Shapes, r.Seeds = shapes(t, "1x1x4x64"), []uint64{0}
		got := s.runOne(r)
		expectOutcome(t, got, want)
		for _, reason := range reasons {
			expectReason(t, slices.Concat(got.Reasons.Correctness, got.Reasons.Performance), reason)
		}
		checked := len(got.Correctness) > 0
		if got.Device != "sim" || checked != (got.Ran == "ptx") || got.Arch != "sm_90a" || len(got.Performance) != 0 || got.Headline != nil {
			t.Errorf("%s: the record is %+v", variant, got)
		}
	}
	all := simdevice.Options{Checks: true, Limit: time.Minute}
	check("good", all, "not-measured pass/pass/not-measured/not-measured", "this device measures no time")
	check("racy", all, incorrect, "1x1x4x64 seed 0 and 4 more: race at broken.cu:", "with broken.cu:")
	check("outside", all, incorrect, "out-of-bounds at broken.cu:")
	check("illegal", all, incorrect, "out-of-bounds at broken.cu:")
	check("zeros", all, incorrect, "max_err")
	check("scribble", all, incorrect, "race at broken.cu:") // all threads of a block flip one bit of an input
	check("lazy", all, incorrect, "unwritten: argument 3: 128 of 512 bytes never written")
	check("hang", all, incorrect, "deadlock")
	check("hopper", all, "not-measured pass/not-measured/not-measured/not-measured", "multimem.red", "this device cannot run the kernel")
	check("endless", simdevice.Options{Checks: true, Limit: 50 * time.Millisecond}, "not-measured pass/not-measured/not-measured/not-measured",
		"1x1x4x64 seed 0: no result within 50ms")
}

// Outputs that differ between automatic schedules are judged by the reference. The record has the
// number of schedules.
func TestJudgeRescheduled(t *testing.T) {
	t.Parallel()
	right, wrong := []byte{0, 0, 128, 63}, []byte{0, 0, 0, 64}
	for _, c := range []struct {
		name      string
		other     []byte
		unordered bool
		relaunch  int
		findings  string
		notes     string
	}{
		{"right", right, false, 0, "", "differs; both are within the limits of the reference"},
		{"right and unordered", right, true, 0, "", ""},
		{"wrong", wrong, false, 0, "differs; the latter is wrong: off", ""},
		{"wrong and unordered", wrong, true, 0, "differs; the latter is wrong: off", ""},
		{"right in the relaunch", wrong, false, 1, "", "differs; both are within the limits of the reference"},
		{"wrong in the relaunch", right, false, 1, "differs; the latter is wrong: off", ""},
		{"wrong in the last", wrong, false, 2, "differs; the latter is wrong: off", ""},
	} {
		outcome := &device.Outcome{Rescheduled: []device.Rescheduled{{
			Relaunch: c.relaunch, Outputs: [][]byte{c.other}, Difference: finding.New(finding.NotRepeatable, "differs"),
		}}}
		judged, first := &checked{outcome: outcome, further: &run.Relaunch{}}, bitReference{want: right}
		err := judged.judgeRescheduled(problem.Build{}, c.unordered, []problem.Reference{first, bitReference{want: wrong}, first})
		texts := func(list []finding.Finding) (all string) {
			for _, f := range list {
				all += f.Text()
			}
			return all
		}
		if err != nil || texts(outcome.Findings) != c.findings || texts(outcome.Notes) != c.notes || len(judged.wrong) != len(outcome.Findings) {
			t.Errorf("%s: %+v, %v", c.name, outcome, err)
		}
	}
	// A load that has missed a write comes before the wrong output, and is nothing where that is right.
	cause := finding.New(finding.Race, "misses a write")
	for _, c := range []struct {
		other    []byte
		findings int
	}{{right, 0}, {wrong, 2}} {
		outcome := &device.Outcome{Rescheduled: []device.Rescheduled{{Outputs: [][]byte{c.other}, Difference: finding.New(finding.NotRepeatable, "differs"), Cause: &cause}}}
		judged := &checked{outcome: outcome, further: &run.Relaunch{}}
		err := judged.judgeRescheduled(problem.Build{}, false, []problem.Reference{bitReference{want: right}})
		if err != nil || len(outcome.Findings) != c.findings || len(judged.wrong) != c.findings || c.findings > 0 && outcome.Findings[0].Detail != cause.Detail {
			t.Errorf("with a cause: %+v, %v", outcome, err)
		}
	}
	none := &checked{outcome: &device.Outcome{Rescheduled: []device.Rescheduled{{}}}}
	if err := none.judgeRescheduled(problem.Build{}, false, []problem.Reference{bitReference{}}); err == nil {
		t.Error("no error of the comparison")
	}
}

// bitReference is a reference of exactly these bytes.
type bitReference struct {
	problem.Reference
	want []byte
}

func (r bitReference) Compare(_ problem.Build, outputs [][]byte) (problem.Result, error) {
	if len(outputs) == 0 {
		return problem.Result{}, errors.New("no output")
	}
	var result problem.Result
	if !bytes.Equal(outputs[0], r.want) {
		result.Bad = 1
	}
	return result, nil
}

func (r bitReference) Judge(_ problem.Build, result problem.Result, _ float64) (gate.Limits, []string) {
	if result.Bad > 0 {
		return gate.Limits{}, []string{"off"}
	}
	return gate.Limits{}, nil
}
