package run

import (
	"fmt"
	"math"
	"testing"
)

func TestSummarizeRandom(t *testing.T) {
	var problems []RandomProblem
	add := func(ratio float64) {
		problems = append(problems, RandomProblem{Shape: fmt.Sprint(len(problems)), Ratio: &ratio})
	}
	for i := range 18 {
		add([]float64{1.6, 0.9, 1, 2}[i%4])
	}
	add(0.5)
	problems = append(problems, RandomProblem{Shape: "no peer"}, RandomProblem{Shape: "wrong", Wrong: "off"})
	got := SummarizeRandom("stage7", problems, 1)
	if got.Name != "stage7" || got.Problems != 20 || got.Failed != 1 || got.Uncompared != 1 {
		t.Errorf("%+v", got)
	}
	// 5 of 1.6, 5 of 0.9, 4 of 1, 4 of 2, 0.5; the wrong one counts as slower
	if got.Held != 13 || *got.Share != 13./20 {
		t.Errorf("%d held, a share of %v", got.Held, *got.Share)
	}
	near := func(what string, got *float64, want float64) {
		t.Helper()
		if got == nil || math.Abs(*got-want) > 1e-12 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("mean", got.Mean, math.Pow(math.Pow(1.6, 5)*math.Pow(0.9, 5)*16*0.5, 1./19))
	near("median", got.Median, 1)
	near("lowest tenth", got.LowestTenth, math.Sqrt(0.5*0.9)) // two of 19
	if len(got.Worst) != WorstProblems || got.Worst[0].Shape != "wrong" || got.Worst[1].Shape != "18" || *got.Worst[9].Ratio != 1 {
		t.Errorf("the worst are %+v", got.Worst)
	}
	none := SummarizeRandom("stage7", problems[19:20], 1)
	if none.Problems != 0 || none.Uncompared != 1 || none.Share != nil || none.Mean != nil || len(none.Worst) != 0 {
		t.Errorf("without a peer: %+v", none)
	}
	wrong := SummarizeRandom("stage7", problems[20:], 1)
	if wrong.Failed != 1 || *wrong.Share != 0 || wrong.Mean != nil || wrong.LowestTenth != nil {
		t.Errorf("all wrong: %+v", wrong)
	}
	two := SummarizeRandom("stage7", problems[:2], 1)
	near("median of two", two.Median, 1.25)
	near("lowest tenth of two", two.LowestTenth, 0.9)
}
