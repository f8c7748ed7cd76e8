package lab

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	simdevice "attune/internal/device/sim"
	"attune/internal/run"
)

// inParts runs a request as several machines do, and joins what they recorded.
func inParts(t *testing.T, request func() (*setup, Request), of int) *run.Run {
	t.Helper()
	var machines [][]*run.Run
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
	s, r := request()
	var joined []*run.Run
	if err := s.Join(t.Context(), r, machines, func(one *run.Run) { joined = append(joined, one) }); err != nil {
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
