package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// noise is what a session does to times: a factor for the moment, which every series meets in its turn, and one for the single sample.
type noise struct {
	name   string
	moment func(at float64, random *rand.Rand) func(turn int) float64 // called once a session
	sample func(random *rand.Rand) float64
}

func gauss(sigma float64) func(*rand.Rand) float64 {
	return func(random *rand.Rand) float64 { return math.Exp(sigma * random.NormFloat64()) }
}

func steady(float64, *rand.Rand) func(int) float64 { return func(int) float64 { return 1 } }

// sessions are the troubles that published timings of GPUs show, each stronger than a card in order has them.
var sessions = []noise{
	{"quiet", steady, gauss(0.002)},
	{"noisy", steady, gauss(0.02)},
	{"drift of 10 %", func(turns float64, _ *rand.Rand) func(int) float64 {
		return func(turn int) float64 { return 1 + 0.1*float64(turn)/turns }
	}, gauss(0.003)},
	{"a step of 15 %", func(turns float64, random *rand.Rand) func(int) float64 {
		at := int(turns * random.Float64())
		return func(turn int) float64 {
			if turn < at {
				return 1
			}
			return 1.15
		}
	}, gauss(0.003)},
	{"two clocks, 8 % apart, that change at random", func(_ float64, random *rand.Rand) func(int) float64 {
		slow := false
		return func(int) float64 {
			if random.Float64() < 0.1 {
				slow = !slow
			}
			if slow {
				return 1.08
			}
			return 1
		}
	}, gauss(0.003)},
	{"outliers", steady, func(random *rand.Rand) float64 {
		if random.Float64() < 0.05 {
			return 1 + 2*random.Float64()
		}
		return math.Exp(0.004 * random.NormFloat64())
	}},
}

// take plays a session of so many rounds: a, b and the control in turns, in one order and then in the other.
func take(n noise, rounds int, slowdown float64, random *rand.Rand) Turns {
	moment, turn := n.moment(float64(3*rounds), random), 0
	next := func(truth float64) float64 {
		t := truth * moment(turn) * n.sample(random)
		turn++
		return t
	}
	var t Turns
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

// decide compares as the command does: what is ambiguous buys more rounds, up to a limit.
func decide(n noise, slowdown float64, random *rand.Rand) Verdict {
	t := take(n, 1600, slowdown, random)
	for rounds := 100; ; rounds *= 2 {
		part := Turns{t.A[:rounds], t.B[:rounds], t.Control[:rounds]}
		if v := Compare([]Turns{part})[0].Verdict; v != Ambiguous || rounds == len(t.A) {
			return v
		}
	}
}

// The promise: of 200 comparisons of a kernel with itself at most 2 call it different, and of 100 with one that is 3 % slower at least 95 call it slower, whatever
// the session is like.
func TestComparisonKeepsItsPromise(t *testing.T) {
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
			t.Logf("equal kernels called different %d of 200 times; 3 %% slower called slower %d of 100 times", different, slower)
			if different > 2 || slower < 95 {
				t.Errorf("equal kernels called different %d of 200 times, want at most 2; 3 %% slower called slower %d of 100, want at least 95", different, slower)
			}
		})
	}
}
