package accuracy

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestErrors(t *testing.T) {
	check := func(name string, got, want []float64, expected Errors) {
		t.Helper()
		var sum tally
		sum.add(got, want, 2)
		if diff := cmp.Diff(expected, sum.errors(), cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	check("equal", []float64{3, 4, 0, 0}, []float64{3, 4, 0, 0}, Errors{Cosine: 1, WorstRow: 1})
	check("twice as much", []float64{6, 8, 2, 0}, []float64{3, 4, 1, 0},
		Errors{RMSE: math.Sqrt(26.0 / 4), Relative: 1, MaxErr: 4, Cosine: 1, WorstRow: 1})
	check("one small row negated", []float64{300, 400, -1, 0}, []float64{300, 400, 1, 0},
		Errors{RMSE: 1, Relative: 2 / math.Sqrt(250001), MaxErr: 2, Cosine: 249999.0 / 250001, WorstRow: -1})
	check("a row of zeros", []float64{0, 0}, []float64{3, 4}, Errors{RMSE: math.Sqrt(12.5), Relative: 1, MaxErr: 4, Cosine: 0, WorstRow: 0})
	check("reference of zeros", []float64{0, 2}, []float64{0, 0}, Errors{RMSE: math.Sqrt2, MaxErr: 2})
	check("not finite", []float64{math.NaN(), 4, math.Inf(1), 1}, []float64{3, 4, 0, 1}, Errors{Cosine: 1, WorstRow: 1, NonFinite: 2})
	check("only NaN", []float64{math.NaN(), math.NaN()}, []float64{3, 4}, Errors{Cosine: 1, WorstRow: 1, NonFinite: 2})
}

// Problems added one by one give the errors of one long problem.
func TestErrorsAccumulate(t *testing.T) {
	got, want := []float64{1, 2, 3, 4, 5, 7}, []float64{1, 2, 3, 5, 5, 6}
	var whole, parts tally
	whole.add(got, want, 2)
	parts.add(got[:2], want[:2], 2)
	parts.add(got[2:], want[2:], 2)
	if whole.errors() != parts.errors() || whole.errors().RMSE != math.Sqrt(2.0/6) {
		t.Errorf("at once %+v, in parts %+v", whole.errors(), parts.errors())
	}
}
