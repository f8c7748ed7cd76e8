package measure

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Pair is two interleaved series of one shape: sample i of both belongs to round i.
type Pair struct {
	Parent, Variant []float64
}

// Speedup is the time of the parent divided by the time of the variant, with the 95 % confidence
// interval of that ratio.
type Speedup struct {
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

const (
	resamples  = 2000
	confidence = 0.95
)

// CompareSpeed computes the geometric mean over pairs of median(parent)/median(variant). There must
// be at least one pair, and the two series of a pair must have the same length, at least 1.
func CompareSpeed(pairs []Pair) Speedup { return compare(pairs, resampledMedians) }

// CompareUnpaired is CompareSpeed for series that were not interleaved, such as series of two
// sessions. The bootstrap resamples each series separately, and their lengths may differ. The
// interval covers the variation within a session, but not between sessions: clocks, temperature,
// driver, card.
func CompareUnpaired(pairs []Pair) Speedup { return compare(pairs, separateMedians) }

func compare(pairs []Pair, resample func(Pair, *rand.Rand) (parent, variant float64)) Speedup {
	random := rand.New(rand.NewPCG(1, 2))
	ratios := make([]float64, resamples)
	for i := range ratios {
		ratios[i] = meanRatio(pairs, func(p Pair) (a, b float64) { return resample(p, random) })
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
	return sortedMedian(slices.Clone(samples))
}

// sortedMedian sorts the samples in place.
func sortedMedian(samples []float64) float64 {
	slices.Sort(samples)
	return quantile(samples, 0.5)
}

// resampledMedians draws rounds with replacement and returns the medians of both series over them.
func resampledMedians(p Pair, random *rand.Rand) (parent, variant float64) {
	n := len(p.Parent)
	a, b := make([]float64, n), make([]float64, n)
	for i := range n {
		round := random.IntN(n)
		a[i], b[i] = p.Parent[round], p.Variant[round]
	}
	return sortedMedian(a), sortedMedian(b)
}

// separateMedians draws samples of each series with replacement and returns the medians.
func separateMedians(p Pair, random *rand.Rand) (parent, variant float64) {
	draw := func(samples []float64) float64 {
		drawn := make([]float64, len(samples))
		for i := range drawn {
			drawn[i] = samples[random.IntN(len(samples))]
		}
		return sortedMedian(drawn)
	}
	return draw(p.Parent), draw(p.Variant)
}
