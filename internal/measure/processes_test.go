package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// drawn has the samples of processes whose medians vary by the share between, and whose samples
// vary by the share within.
func drawn(random *rand.Rand, processes, samples int, between, within float64) [][]float64 {
	all := make([][]float64, processes)
	for i := range all {
		center := 1 + between*random.NormFloat64()
		for range samples {
			all[i] = append(all[i], center*(1+within*random.NormFloat64()))
		}
	}
	return all
}

// The interval of a time contains the true time in at least 95 % of results, although the samples
// of one process vary ten times less than the processes.
func TestProcessIntervalCovers(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, between := range []float64{0, 0.001, 0.004, 0.01} {
		for _, processes := range []int{2, 3, 5, 10} {
			covered, naive := 0, 0
			const results = 400
			for range results {
				s := drawn(random, processes, 20, between, between/10)
				if m := SummarizeProcesses(s).Median; m.Low <= 1 && 1 <= m.High {
					covered++
				}
				if m := Summarize(slices.Concat(s...)).Median; m.Low <= 1 && 1 <= m.High {
					naive++
				}
			}
			if covered < 94*results/100 {
				t.Errorf("%g between %d processes: %d of %d intervals contain the time", between, processes, covered, results)
			}
			if between > 0.003 && naive > covered {
				t.Errorf("%g between %d processes: the interval of one level contains the time in %d, of two levels in %d", between, processes, naive, covered)
			}
		}
	}
}

func TestSummarizeOneProcess(t *testing.T) {
	s := SummarizeProcesses([][]float64{slices.Repeat([]float64{10}, 20)})
	if s.P50 != 10 || s.Median.Low != 9.9 || s.Median.High != 10.1 {
		t.Errorf("%+v %+v; want 1 %% around 10", s, s.Median)
	}
	if s := SummarizeProcesses([][]float64{{10, 11}}); s.Median != nil {
		t.Errorf("an interval of two samples: %+v", s.Median)
	}
	if s := SummarizeProcesses([][]float64{{10}, {10}}); math.Abs(s.Median.High-10*(1+minSpread)) > 1e-9 {
		t.Errorf("%+v; want at least %g", s.Median, minSpread)
	}
}

func TestCompareProcesses(t *testing.T) {
	pair := ProcessPair{
		Parent:  [][]float64{{20, 20, 20}, {21, 21, 21}, {20, 20, 20}},
		Variant: [][]float64{{10, 10, 10}, {10.4, 10.4, 10.4}, {10.1, 10.1, 10.1}},
	}
	// Student's quantile for two degrees of freedom is 4.303.
	logs := []float64{math.Log(2), math.Log(21 / 10.4), math.Log(20 / 10.1)}
	center := mean(logs)
	half := 4.302653 * standardDeviation(logs) / math.Sqrt(3)
	got := CompareProcesses([]ProcessPair{pair})
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-5 }
	if !near(got.Ratio, math.Exp(center)) || !near(got.Low, math.Exp(center-half)) || !near(got.High, math.Exp(center+half)) {
		t.Errorf("%+v; want %g to %g", got, math.Exp(center-half), math.Exp(center+half))
	}
	if two := CompareProcesses([]ProcessPair{pair, pair}); !near(two.Ratio, got.Ratio) || !near(two.Low, got.Low) {
		t.Errorf("the same pair twice: %+v; want %+v", two, got)
	}
	one := ProcessPair{pair.Parent[:1], pair.Variant[:1]}
	rounds := CompareSpeed([]Pair{{slices.Concat(pair.Parent...), slices.Concat(pair.Variant...)}, {pair.Parent[0], pair.Variant[0]}})
	if got := CompareProcesses([]ProcessPair{pair, one}); got != rounds {
		t.Errorf("a pair of one process: %+v; want the bootstrap over rounds, %+v", got, rounds)
	}
}

// Two records of the same code are the same in at least 95 % of comparisons, and 8 % slower code is
// found.
func TestRecordedProcesses(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	same, slower := 0, 0
	const results = 300
	for range results {
		a, b := drawn(random, 5, 20, 0.005, 0.0005), drawn(random, 5, 20, 0.005, 0.0005)
		if CompareRecordedProcesses(a, b, 0.05).Verdict == Same {
			same++
		}
		for i := range b {
			for j := range b[i] {
				b[i][j] *= 1.08
			}
		}
		if CompareRecordedProcesses(a, b, 0.05).Verdict == Slower {
			slower++
		}
	}
	if same < 95*results/100 || slower < 90*results/100 {
		t.Errorf("of %d comparisons %d are the same and %d slower", results, same, slower)
	}
	single := CompareRecordedProcesses([][]float64{{1, 1, 1}}, [][]float64{{1, 1, 1}}, 0.05)
	if single.Low > 0.981 || single.High < 1.019 || single.Verdict != Same {
		t.Errorf("two single processes: %+v; want at least 2 %%", single)
	}
	if equal := CompareRecordedProcesses([][]float64{{1}, {1}}, [][]float64{{1}, {1}}, 0.05); equal.Low != 1 || equal.High != 1 {
		t.Errorf("equal medians: %+v", equal)
	}
}

// Over processes, the interval is that of the ratios of the processes, not of the rounds.
func TestCompareInterleavedProcesses(t *testing.T) {
	one := Interleaved{A: []float64{2, 2, 2, 2}, B: []float64{1, 1, 1, 1}, Control: []float64{2, 2, 2, 2}}
	if c := Compare([]Interleaved{one})[0]; c.Low != 2 || c.High != 2 {
		t.Errorf("one process: %+v", c)
	}
	several := one
	several.B, several.Processes = []float64{1, 1, 1.1, 1.1}, []int{2, 2}
	c := Compare([]Interleaved{several})[0]
	if c.Low > 1 || c.High < 3 || c.Verdict != Ambiguous || c.Control.Low != 1 {
		t.Errorf("two processes that differ by 10 %%: %+v; want a wide interval", c)
	}
	between := BetweenProcesses(SplitProcesses(several.B, several.Processes))
	if between.Processes != 2 || between.Min != 1 || between.Max != 1.1 || math.Abs(between.Mean-1.05) > 1e-12 || between.CV < 0.06 || between.CV > 0.07 {
		t.Errorf("%+v", between)
	}
}
