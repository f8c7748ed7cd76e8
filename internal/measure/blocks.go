package measure

import (
	"math/rand/v2"
	"slices"
)

// CompareBlocks is how many times faster than the parent the variant is where both were sampled in turns of several samples: turn i of one stands next to turn i of
// the other. Samples of one turn have much in common, so it is turns that are drawn for the interval. Both sides need the same number of turns, one at least, and
// each turn a sample.
func CompareBlocks(parent, variant [][]float64) Speedup {
	random := rand.New(rand.NewPCG(1, 2))
	ratios := make([]float64, resamples)
	a, b := make([][]float64, len(parent)), make([][]float64, len(parent))
	for i := range ratios {
		for j := range parent {
			turn := random.IntN(len(parent))
			a[j], b[j] = parent[turn], variant[turn]
		}
		ratios[i] = ratioOfMedians(a, b)
	}
	slices.Sort(ratios)
	return Speedup{
		Ratio: ratioOfMedians(parent, variant),
		Low:   quantile(ratios, (1-confidence)/2),
		High:  quantile(ratios, (1+confidence)/2),
	}
}

func ratioOfMedians(a, b [][]float64) float64 {
	return median(slices.Concat(a...)) / median(slices.Concat(b...))
}
