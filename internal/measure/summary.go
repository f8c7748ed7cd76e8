package measure

import (
	"math"
	"slices"
)

// Summary describes one series, in the unit of its samples.
type Summary struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Std float64 `json:"std"` // of the samples, around their mean
}

// Summarize describes samples; there must be at least one.
func Summarize(samples []float64) Summary {
	sorted := slices.Sorted(slices.Values(samples))
	return Summary{P50: quantile(sorted, 0.50), P90: quantile(sorted, 0.90), P99: quantile(sorted, 0.99), Std: standardDeviation(sorted)}
}

// quantile interpolates between the two samples around the place q of the way through (type 7 of Hyndman and Fan, as in R and NumPy).
func quantile(sorted []float64, q float64) float64 {
	place := q * float64(len(sorted)-1)
	below := int(place)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (place-float64(below))*(sorted[below+1]-sorted[below])
}

func standardDeviation(samples []float64) float64 {
	if len(samples) < 2 {
		return 0
	}
	mean := 0.0
	for _, x := range samples {
		mean += x
	}
	mean /= float64(len(samples))
	squares := 0.0
	for _, x := range samples {
		squares += (x - mean) * (x - mean)
	}
	return math.Sqrt(squares / float64(len(samples)-1))
}
