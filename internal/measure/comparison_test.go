package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// noise is the noise of a session. A time is multiplied by two factors: one of the moment, which
// depends on the sample's index in the session, and one of the sample.
type noise struct {
	name   string
	moment func(samples float64, random *rand.Rand) func(index int) float64 // per session
	sample func(random *rand.Rand) float64
}

func gauss(sigma float64) func(*rand.Rand) float64 {
	return func(random *rand.Rand) float64 { return math.Exp(sigma * random.NormFloat64()) }
}

func steady(float64, *rand.Rand) func(int) float64 { return func(int) float64 { return 1 } }

func drift(share float64) func(float64, *rand.Rand) func(int) float64 {
	return func(samples float64, _ *rand.Rand) func(int) float64 {
		return func(index int) float64 { return 1 + share*float64(index)/samples }
	}
}

func step(share float64) func(float64, *rand.Rand) func(int) float64 {
	return func(samples float64, random *rand.Rand) func(int) float64 {
		at := int(samples * random.Float64())
		return func(index int) float64 {
			if index < at {
				return 1
			}
			return 1 + share
		}
	}
}

func twoClocks(share float64) func(float64, *rand.Rand) func(int) float64 {
	return func(_ float64, random *rand.Rand) func(int) float64 {
		slow := false
		return func(int) float64 {
			if random.Float64() < 0.1 {
				slow = !slow
			}
			if slow {
				return 1 + share
			}
			return 1
		}
	}
}

func outliers(random *rand.Rand) float64 {
	if random.Float64() < 0.05 {
		return 1 + 2*random.Float64()
	}
	return math.Exp(0.004 * random.NormFloat64())
}

// combine multiplies several kinds of moment.
func combine(all ...func(float64, *rand.Rand) func(int) float64) func(float64, *rand.Rand) func(int) float64 {
	return func(samples float64, random *rand.Rand) func(int) float64 {
		var parts []func(int) float64
		for _, moment := range all {
			parts = append(parts, moment(samples, random))
		}
		return func(index int) float64 {
			product := 1.0
			for _, part := range parts {
				product *= part(index)
			}
			return product
		}
	}
}

// sessions have the kinds of noise that published GPU timings show, each stronger than on a healthy
// card.
var sessions = []noise{
	{"quiet", steady, gauss(0.002)},
	{"noisy", steady, gauss(0.02)},
	{"drift of 10 %", drift(0.1), gauss(0.003)},
	{"a step of 15 %", step(0.15), gauss(0.003)},
	{"two clocks, 8 % apart, that change at random", twoClocks(0.08), gauss(0.003)},
	{"outliers", steady, outliers},
	{"all of them", combine(drift(0.1), step(0.15), twoClocks(0.08)), outliers},
}

// simulate simulates a session: a, b and the control interleaved in ABBA order.
func simulate(n noise, rounds int, slowdown float64, random *rand.Rand) Interleaved {
	moment, index := n.moment(float64(3*rounds), random), 0
	next := func(truth float64) float64 {
		t := truth * moment(index) * n.sample(random)
		index++
		return t
	}
	var t Interleaved
	for i := range rounds {
		var a, b, control float64
		if i%2 == 0 {
			a, b, control = next(1), next(slowdown), next(1)
		} else {
			control, b, a = next(1), next(slowdown), next(1)
		}
		t.A, t.B, t.Control = append(t.A, a), append(t.B, b), append(t.Control, control)
	}
	return t
}

// decide compares as the command does: an ambiguous verdict leads to more rounds, up to a limit.
func decide(n noise, slowdown float64, random *rand.Rand) Verdict {
	t := simulate(n, 1600, slowdown, random)
	for rounds := 100; ; rounds *= 2 {
		part := Interleaved{A: t.A[:rounds], B: t.B[:rounds], Control: t.Control[:rounds]}
		if v := Compare([]Interleaved{part})[0].Verdict; v != Ambiguous || rounds == len(t.A) {
			return v
		}
	}
}

// A noisy session raises the floor of a difference. It does not turn a measured difference into
// Same.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		low, high, floor float64
		want             Verdict
	}{
		{0.9676, 0.9719, 0.034, Ambiguous},
		{0.9676, 0.9719, 0.01, Slower},
		{1.02, 1.03, 0.01, Faster},
		{0.995, 1.005, 0.034, Same},
		{0.98, 1.02, 0.034, Ambiguous},
		{0.995, 1.02, 0.01, Ambiguous},
	} {
		if got := verdict(c.low, c.high, c.floor, minFloor); got != c.want {
			t.Errorf("%g to %g with a floor of %g: %s; want %s", c.low, c.high, c.floor, got, c.want)
		}
	}
}

// Counting draws by rank gives the same medians as sorting the draws.
func TestResampledMedian(t *testing.T) {
	for _, n := range []int{1, 2, 7, 50} {
		random := rand.New(rand.NewPCG(uint64(n), 5))
		values := make([]float64, n)
		for i := range values {
			values[i] = math.Round(10 * random.NormFloat64()) // with ties
		}
		draws := rand.New(rand.NewPCG(1, 2))
		var want []float64
		for range resamples {
			drawn := make([]float64, n)
			for i := range drawn {
				drawn[i] = values[draws.IntN(n)]
			}
			want = append(want, median(drawn))
		}
		slices.Sort(want)
		if got := resampledMedian(values); !slices.Equal(got, want) {
			t.Errorf("of %d values: %v to %v; want %v to %v", n, got[0], got[len(got)-1], want[0], want[len(want)-1])
		}
	}
}

// The required error rates, in every kind of session: of 200 comparisons of a kernel with itself at
// most 2 report a difference. Of 100 with a kernel that is 3 % slower at least 95 report Slower.
func TestComparisonErrorRates(t *testing.T) {
	if testing.Short() {
		t.Skip("repeats a comparison 300 times for each kind of session")
	}
	for i, n := range sessions {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(uint64(i), 3))
			different := 0
			for range 200 {
				if v := decide(n, 1, random); v == Faster || v == Slower {
					different++
				}
			}
			slower := 0
			for range 100 {
				if decide(n, 1.03, random) == Slower {
					slower++
				}
			}
			t.Logf("equal kernels reported different %d of 200 times; 3 %% slower reported %d of 100 times", different, slower)
			if different > 2 || slower < 95 {
				t.Errorf("equal kernels reported different %d of 200 times, want at most 2; 3 %% slower reported %d of 100 times, want at least 95",
					different, slower)
			}
		})
	}
}
