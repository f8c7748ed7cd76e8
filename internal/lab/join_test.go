package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/run"
	"attune/internal/spec"
)

// machinesOf runs a request as several machines do.
func machinesOf(t *testing.T, request func() (*setup, Request), of int) (machines [][]*run.Run) {
	t.Helper()
	for i := range of {
		s, r := request()
		r.Part = Part{i, of}
		if err := s.run(r); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(s.runs) // as they come from another machine
		if err != nil {
			t.Fatal(err)
		}
		var runs []*run.Run
		if err := json.Unmarshal(text, &runs); err != nil {
			t.Fatal(err)
		}
		machines = append(machines, runs)
	}
	return machines
}

// inParts joins what several machines recorded.
func inParts(t *testing.T, request func() (*setup, Request), of int) *run.Run {
	t.Helper()
	s, r := request()
	var joined []*run.Run
	if err := s.Join(t.Context(), r, machinesOf(t, request, of), func(one *run.Run) { joined = append(joined, one) }); err != nil {
		t.Fatal(err)
	}
	if len(joined) != 1 || joined[0].ID == "" {
		t.Fatalf("%d runs are joined: %+v", len(joined), joined)
	}
	return joined[0]
}

// drawnInputs is what differs between two runs: inputs that are drawn, and where a kernel was ended.
var drawnInputs = regexp.MustCompile(`(seed \d+ with |it was ended).*`)

// A run whose problems are divided among machines is that of one machine.
func TestJoin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		variant string
		options simdevice.Options
	}{
		{"good", simdevice.Options{Checks: true, Limit: time.Minute}},
		{"zeros", simdevice.Options{Checks: true, Limit: time.Minute}},
		{"lazy", simdevice.Options{Checks: true, Limit: time.Minute}},
		{"illegal", simdevice.Options{Checks: true, Limit: time.Minute}},
		{"hopper", simdevice.Options{Checks: true, Limit: time.Minute}},
		{"endless", simdevice.Options{Checks: true, Limit: 50 * time.Millisecond}},
	} {
		request := func() (*setup, Request) {
			s := newSimulated(t, c.options)
			r := s.request(c.variant)
			r.Shapes, r.Seeds = shapes(t, "1x1x4x64", "1x2x4x64"), []uint64{0, 5}
			return s, r
		}
		s, r := request()
		want := s.runOne(r)
		got := inParts(t, request, 3)
		ignored := cmpopts.IgnoreFields(run.Run{}, "ID", "Time", "Build", "Lines", "Log")
		relaunch := cmpopts.IgnoreFields(run.Correctness{}, "Relaunch") // its inputs are drawn
		drawn := cmpopts.AcyclicTransformer("drawn", func(text string) string { return drawnInputs.ReplaceAllString(text, "") })
		if diff := cmp.Diff(want, got, ignored, relaunch, drawn, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: the joined run differs (-whole +joined):\n%s", c.variant, diff)
		}
	}
}

// A selection is joined from its parts, which may reuse the results of a variant of the request.
func TestJoinSelection(t *testing.T) {
	t.Parallel()
	request := func() (*setup, Request) {
		s := withSelection(t, best)
		o := simdevice.Options{Checks: true, Limit: time.Minute}
		s.Device = Simulator(simdevice.Open(o).Facts(), func(context.Context) (device.Device, error) { return simdevice.Open(o), nil },
			run.Simulation{Schedules: 1, Checks: true, Tensor: run.ExactTensor})
		r := s.request("stage3b")
		r.Selections = []*spec.Selection{s.Kernel.Selection("best")}
		r.Shapes, r.Seeds = shapes(t, "1x1x4x64", "1x1x40x64"), []uint64{0}
		return s, r
	}
	whole, r := request()
	if err := whole.run(r); err != nil {
		t.Fatal(err)
	}
	joined, r := request()
	machines := machinesOf(t, request, 2)
	if err := joined.Join(t.Context(), r, machines, func(one *run.Run) { joined.runs = append(joined.runs, one) }); err != nil {
		t.Fatal(err)
	}
	texts := func(runs []*run.Run) (all []string) {
		for _, r := range runs {
			same := ""
			if r.MeasuredAs != nil {
				same = r.MeasuredAs.Variant
			}
			all = append(all, fmt.Sprintf("%s part of %q as %q: %s, %d problems, %d rows, %d parts", r.Variant, r.PartOf, same, r.Verdict, r.Requested.Problems, len(r.Correctness), len(r.Parts)))
		}
		return all
	}
	if diff := cmp.Diff(texts(whole.runs), texts(joined.runs)); diff != "" {
		t.Error("the joined runs differ (-whole +joined):\n", diff)
	}
	machines[1] = machines[1][:1]
	if err := joined.Join(t.Context(), r, machines, func(*run.Run) {}); err == nil || !strings.Contains(err.Error(), "part 2 of 2 has no run of ") {
		t.Error(err)
	}
}
