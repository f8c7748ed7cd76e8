package device

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/finding"
)

// series makes samples 0, 1, 2, ...; the listed ones were throttled.
func series(n int, throttled ...int) Series {
	s := Series{Readings: make([]Reading, n)}
	for i := range n {
		s.Seconds = append(s.Seconds, float64(i))
	}
	for _, i := range throttled {
		s.Readings[i].Throttled = []string{"power cap"}
	}
	return s
}

func TestSteady(t *testing.T) {
	check := func(name string, groupSize int, all []Series, kept, excluded [][]float64, throttled int) {
		t.Helper()
		k, e, n := Steady(groupSize, all...)
		if diff := cmp.Diff([]any{kept, excluded, throttled}, []any{k, e, n}); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	none := []float64(nil)
	check("not throttled", 1, []Series{series(3)}, [][]float64{{0, 1, 2}}, [][]float64{none}, 0)
	check("no readings", 2, []Series{{Seconds: []float64{5, 6}}}, [][]float64{{5, 6}}, [][]float64{none}, 0)
	check("one sample", 1, []Series{series(4, 2)}, [][]float64{{0, 1, 3}}, [][]float64{{2}}, 1)
	check("a round is excluded from every series", 1, []Series{series(5, 1), series(5, 4)},
		[][]float64{{0, 2, 3}, {0, 2, 3}}, [][]float64{{1, 4}, {1, 4}}, 2)
	check("both orders of a group are excluded", 2, []Series{series(6), series(6, 3)},
		[][]float64{{0, 1, 4, 5}, {0, 1, 4, 5}}, [][]float64{{2, 3}, {2, 3}}, 2)
	check("the last group is incomplete", 2, []Series{series(5, 4)}, [][]float64{{0, 1, 2, 3}}, [][]float64{{4}}, 1)
	check("half is excluded", 1, []Series{series(4, 0, 3)}, [][]float64{{1, 2}}, [][]float64{{0, 3}}, 2)
	check("more than half is kept", 1, []Series{series(3, 0, 2)}, [][]float64{{0, 1, 2}}, [][]float64{none}, 2)
}

func TestAnd(t *testing.T) {
	empty := 6e-7
	text := func(series ...Series) string {
		data, err := json.Marshal(series)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	check := func(name string, a, b, want Series) {
		t.Helper()
		before := text(a, b)
		got := a.And(b)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if after := text(a, b); after != before {
			t.Errorf("%s: the series were %s and are %s", name, before, after)
		}
	}
	reading := func(mhz int) Reading { return Reading{ClockMHz: mhz} }
	check("every field", Series{
		Seconds: []float64{1, 2}, LaunchesPerSample: 50, Copies: 4, WarmSeconds: 0.25, WithFlush: []float64{5, 6}, Flush: []float64{4, 4},
		Single: []float64{7}, EmptyNode: &empty, Readings: []Reading{reading(1), reading(2)}, Joules: 3,
		Check: &TimedCheck{FreshSeconds: 2, Outputs: 4, Findings: []finding.Finding{finding.New("a", "b")}, Launches: []TimedLaunch{{Rotation: Rotation{Count: 2}}}},
	}, Series{
		Seconds: []float64{3}, LaunchesPerSample: 50, Copies: 4, WarmSeconds: 0.5, WithFlush: []float64{7}, Flush: []float64{4},
		Single: []float64{8, 9}, EmptyNode: &empty, Readings: []Reading{reading(3)}, Unstable: true, Joules: 4,
		Check: &TimedCheck{FreshSeconds: 1, Outputs: 3, Findings: []finding.Finding{finding.New("c", "d")}},
	}, Series{
		Seconds: []float64{1, 2, 3}, Processes: []int{2, 1}, LaunchesPerSample: 50, Copies: 4, WarmSeconds: 0.75,
		WithFlush: []float64{5, 6, 7}, Flush: []float64{4, 4, 4}, Single: []float64{7, 8, 9}, EmptyNode: &empty,
		Readings: []Reading{reading(1), reading(2), reading(3)}, Unstable: true, Joules: 3,
		Check: &TimedCheck{
			FreshSeconds: 2, Outputs: 7, Findings: []finding.Finding{finding.New("a", "b"), finding.New("c", "d")}, Launches: []TimedLaunch{{Rotation: Rotation{Count: 2}}},
		},
	})
	check("three processes", Series{Seconds: []float64{1, 2, 3}, Processes: []int{2, 1}}, Series{Seconds: []float64{4}},
		Series{Seconds: []float64{1, 2, 3, 4}, Processes: []int{2, 1, 1}})
	check("four processes", Series{Seconds: []float64{1, 2}}, Series{Seconds: []float64{3, 4, 5}, Processes: []int{1, 1, 1}},
		Series{Seconds: []float64{1, 2, 3, 4, 5}, Processes: []int{2, 1, 1, 1}})
	both := Series{Seconds: []float64{1, 2}, Processes: []int{1, 1}, NoReadings: "no NVML"}
	check("no readings in the first", Series{Seconds: []float64{1}, NoReadings: "no NVML"}, Series{Seconds: []float64{2}, Readings: []Reading{reading(1)}}, both)
	check("no readings in the second", Series{Seconds: []float64{1}, Readings: []Reading{reading(1)}}, Series{Seconds: []float64{2}, NoReadings: "no NVML"}, both)
	one := &TimedCheck{FreshSeconds: 1, Outputs: 2}
	for _, c := range [][2]*TimedCheck{{one, nil}, {nil, one}} {
		check("one check", Series{Seconds: []float64{1}, Check: c[0]}, Series{Seconds: []float64{2}, Check: c[1]},
			Series{Seconds: []float64{1, 2}, Processes: []int{1, 1}, Check: one})
	}
	check("energy of the second", Series{Seconds: []float64{1}}, Series{Seconds: []float64{2}, Joules: 5},
		Series{Seconds: []float64{1, 2}, Processes: []int{1, 1}, Joules: 5})
}

func TestSteadyByProcess(t *testing.T) {
	of := func(s Series, processes ...int) Series {
		s.Processes = processes
		return s
	}
	for _, c := range []struct {
		name string
		all  []Series
		want [][][]float64
	}{
		{"one process", []Series{series(3)}, [][][]float64{{{0, 1, 2}}}},
		{"one process, one throttled", []Series{series(3, 1)}, [][][]float64{{{0, 2}}}},
		{"two processes", []Series{of(series(5), 2, 3)}, [][][]float64{{{0, 1}, {2, 3, 4}}}},
		{"no readings", []Series{{Seconds: []float64{5, 6}, Processes: []int{1, 1}}}, [][][]float64{{{5}, {6}}}},
		{
			"a round is excluded from every series",
			[]Series{of(series(6, 1), 3, 3), of(series(6, 4), 3, 3)},
			[][][]float64{{{0, 2}, {3, 5}}, {{0, 2}, {3, 5}}},
		},
		{"a process that was throttled throughout", []Series{of(series(6, 2, 3), 2, 2, 2)}, [][][]float64{{{0, 1}, {4, 5}}}},
		{"half is excluded", []Series{of(series(4, 0, 1), 2, 2)}, [][][]float64{{{2, 3}}}},
		{"more than half is kept", []Series{of(series(4, 0, 1, 3), 2, 2)}, [][][]float64{{{0, 1}, {2, 3}}}},
	} {
		if diff := cmp.Diff(c.want, SteadyByProcess(c.all...)); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
		// The same samples as Steady keeps.
		kept, _, _ := Steady(1, c.all...)
		for i, processes := range SteadyByProcess(c.all...) {
			if diff := cmp.Diff(kept[i], slices.Concat(processes...)); diff != "" {
				t.Errorf("%s, series %d, Steady keeps others:\n%s", c.name, i, diff)
			}
		}
	}
}
