package measure

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Pair is two series of one shape, taken in turns: sample i of one next to sample i of the other.
type Pair struct {
	Parent, Variant []float64
}

// Speedup is how many times faster than its parent a variant is, with the interval that holds the true value with 95 %.
type Speedup struct {
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

const (
	resamples  = 2000
	confidence = 0.95
)

// CompareSpeed gives the geometric mean, over pairs, of median(parent)/median(variant). Each pair needs as many samples on
// one side as on the other, and at least one; there must be at least one pair.
func CompareSpeed(pairs []Pair) Speedup { return compare(pairs, resampledMedians) }

// CompareApart does the same for series that were not taken in turns, such as those of two sessions: samples are drawn from each side by
// itself, and there may be more on one side. The interval holds what varies within a session, and nothing of what varies between
// sessions: clocks, heat, driver, card.
func CompareApart(pairs []Pair) Speedup { return compare(pairs, separateMedians) }

func compare(pairs []Pair, draw func(Pair, *rand.Rand) (parent, variant float64)) Speedup {
	random := rand.New(rand.NewPCG(1, 2))
	ratios := make([]float64, resamples)
	for i := range ratios {
		ratios[i] = meanRatio(pairs, func(p Pair) (a, b float64) { return draw(p, random) })
	}
	slices.Sort(ratios)
	return Speedup{
		Ratio: meanRatio(pairs, func(p Pair) (a, b float64) { return median(p.Parent), median(p.Variant) }),
		Low:   quantile(ratios, (1-confidence)/2),
		High:  quantile(ratios, (1+confidence)/2),
	}
}

func meanRatio(pairs []Pair, medians func(Pair) (parent, variant float64)) float64 {
	logs := 0.0
	for _, p := range pairs {
		parent, variant := medians(p)
		logs += math.Log(parent / variant)
	}
	return math.Exp(logs / float64(len(pairs)))
}

func median(samples []float64) float64 {
	return quantile(slices.Sorted(slices.Values(samples)), 0.5)
}

// resampledMedians draws rounds with replacement and gives the medians of both sides over them.
func resampledMedians(p Pair, random *rand.Rand) (parent, variant float64) {
	n := len(p.Parent)
	a, b := make([]float64, n), make([]float64, n)
	for i := range n {
		round := random.IntN(n)
		a[i], b[i] = p.Parent[round], p.Variant[round]
	}
	return median(a), median(b)
}

// separateMedians draws samples of each side with replacement and gives the medians.
func separateMedians(p Pair, random *rand.Rand) (parent, variant float64) {
	draw := func(samples []float64) float64 {
		drawn := make([]float64, len(samples))
		for i := range drawn {
			drawn[i] = samples[random.IntN(len(samples))]
		}
		return median(drawn)
	}
	return draw(p.Parent), draw(p.Variant)
}
