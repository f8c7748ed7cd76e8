package device

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// series makes samples 0, 1, 2 ... of which some were throttled.
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
	check := func(what string, together int, all []Series, kept, aside [][]float64, throttled int) {
		t.Helper()
		k, a, n := Steady(together, all...)
		if diff := cmp.Diff([]any{kept, aside, throttled}, []any{k, a, n}); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
	none := []float64(nil)
	check("free clocks", 1, []Series{series(3)}, [][]float64{{0, 1, 2}}, [][]float64{none}, 0)
	check("nobody watched", 2, []Series{{Seconds: []float64{5, 6}}}, [][]float64{{5, 6}}, [][]float64{none}, 0)
	check("one sample", 1, []Series{series(4, 2)}, [][]float64{{0, 1, 3}}, [][]float64{{2}}, 1)
	check("a round is set aside in every series", 1, []Series{series(5, 1), series(5, 4)}, [][]float64{{0, 2, 3}, {0, 2, 3}}, [][]float64{{1, 4}, {1, 4}}, 2)
	check("both orders of a round go together", 2, []Series{series(6), series(6, 3)}, [][]float64{{0, 1, 4, 5}, {0, 1, 4, 5}}, [][]float64{{2, 3}, {2, 3}}, 2)
	check("the last round has no partner", 2, []Series{series(5, 4)}, [][]float64{{0, 1, 2, 3}}, [][]float64{{4}}, 1)
	check("half may go", 1, []Series{series(4, 0, 3)}, [][]float64{{1, 2}}, [][]float64{{0, 3}}, 2)
	check("more than half may not", 1, []Series{series(3, 0, 2)}, [][]float64{{0, 1, 2}}, [][]float64{none}, 2)
}
