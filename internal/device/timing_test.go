package device

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
