package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSummarize(t *testing.T) {
	check := func(samples []float64, want Summary) {
		t.Helper()
		got := Summarize(samples)
		for _, pair := range [][2]float64{{got.P50, want.P50}, {got.P90, want.P90}, {got.P99, want.P99}, {got.Std, want.Std}, {got.CV, want.CV}} {
			if math.Abs(pair[0]-pair[1]) > 1e-12 {
				t.Errorf("Summarize(%v) = %+v, want %+v", samples, got, want)
				return
			}
		}
	}
	// Computed with NumPy: np.quantile(x, [.5, .9, .99]), np.std(x, ddof=1), and that over
	// np.mean(x).
	check([]float64{7}, Summary{7, 7, 7, 0, 0, nil})
	check([]float64{2, 1}, Summary{1.5, 1.9, 1.99, math.Sqrt2 / 2, math.Sqrt2 / 3, nil})
	check([]float64{5, 1, 4, 2, 3}, Summary{3, 4.6, 4.96, 1.5811388300841898, 0.5270462766947299, nil})
	check([]float64{1, 1, 1, 100}, Summary{1, 70.3, 97.03, 49.5, 1.9223300970873787, nil})
}

func TestSummarizeKeepsTheOrder(t *testing.T) {
	samples := []float64{3, 1, 2}
	Summarize(samples)
	if samples[0] != 3 || samples[1] != 1 {
		t.Errorf("the caller's samples were sorted: %v", samples)
	}
}

// noisy draws n samples around each median. Both series of a round have the same drift.
func noisy(random *rand.Rand, n int, parent, variant float64) Pair {
	var p Pair
	for i := range n {
		drift := 1 + 0.05*math.Sin(float64(i)/17)
		p.Parent = append(p.Parent, parent*drift*(1+0.01*random.NormFloat64()))
		p.Variant = append(p.Variant, variant*drift*(1+0.01*random.NormFloat64()))
	}
	return p
}

func TestCompareSpeedCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("repeats a comparison 200 times")
	}
	random := rand.New(rand.NewPCG(3, 4))
	inside := 0
	const runs = 200
	for range runs {
		s := CompareSpeed([]Pair{noisy(random, 60, 12, 10)})
		if s.Low <= 1.2 && 1.2 <= s.High {
			inside++
		}
		if s.Low > s.Ratio || s.Ratio > s.High || s.High-s.Low > 0.04 {
			t.Fatalf("a ratio of 1.2 measured as %+v", s)
		}
	}
	if inside < runs*90/100 {
		t.Errorf("the interval contained the true ratio %d of %d times", inside, runs)
	}
}

func TestCompareSpeedOverShapesIsAGeometricMean(t *testing.T) {
	same := func(x float64) []float64 { return []float64{x, x, x, x} }
	s := CompareSpeed([]Pair{{same(4), same(1)}, {same(1), same(1)}})
	if math.Abs(s.Ratio-2) > 1e-12 || math.Abs(s.Low-2) > 1e-12 || math.Abs(s.High-2) > 1e-12 {
		t.Errorf("4x and 1x give %+v, want 2", s)
	}
}

// Series of two sessions may have different lengths. Their interval is wider, because their common
// drift does not cancel.
func TestCompareApart(t *testing.T) {
	p := noisy(rand.New(rand.NewPCG(5, 6)), 200, 12, 10)
	paired := CompareSpeed([]Pair{p})
	p.Variant = p.Variant[:150]
	unpaired := CompareUnpaired([]Pair{p})
	if math.Abs(unpaired.Ratio-1.2) > 0.03 || unpaired.Low > 1.2 || unpaired.High < 1.2 || unpaired.High-unpaired.Low <= paired.High-paired.Low {
		t.Errorf("a ratio of 1.2 measured as %+v unpaired and %+v paired", unpaired, paired)
	}
}

func TestCompareSpeedIsReproducible(t *testing.T) {
	p := noisy(rand.New(rand.NewPCG(5, 6)), 40, 3, 2)
	if a, b := CompareSpeed([]Pair{p}), CompareSpeed([]Pair{p}); a != b {
		t.Errorf("the same samples gave %+v and %+v", a, b)
	}
}

func BenchmarkCompareSpeed(b *testing.B) {
	p := noisy(rand.New(rand.NewPCG(5, 6)), 100, 3, 2)
	for b.Loop() {
		CompareSpeed([]Pair{p, p})
	}
}
