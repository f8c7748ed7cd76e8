package measure

import (
	"math/rand/v2"
	"slices"
)

// CompareBlocks is CompareSpeed for series that were interleaved in blocks of several samples:
// block i of both belongs to round i. Samples of a block are correlated, so the bootstrap resamples
// whole blocks. Both series need the same number of blocks, at least 1, with at least one sample
// each.
func CompareBlocks(parent, variant [][]float64) Speedup {
	random := rand.New(rand.NewPCG(1, 2))
	ratios := make([]float64, resamples)
	a, b := make([][]float64, len(parent)), make([][]float64, len(parent))
	for i := range ratios {
		for j := range parent {
			round := random.IntN(len(parent))
			a[j], b[j] = parent[round], variant[round]
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
