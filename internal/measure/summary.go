package measure

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Summary describes one series, in the unit of its samples.
type Summary struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Std float64 `json:"std"` // of the samples, around their mean
	CV  float64 `json:"cv"`  // the coefficient of variation: Std as a share of the mean

	Median *Interval `json:"p50_interval,omitempty"` // nil where there are too few samples for one: fewer than six
}

// Interval holds the true median with 95 % or a little more. It is what benchstat gives, and assumes nothing of how samples are distributed.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Summarize describes samples; there must be at least one.
func Summarize(samples []float64) Summary {
	sorted := slices.Sorted(slices.Values(samples))
	found := benchmath.AssumeNothing.Summary(benchmath.NewSample(sorted, &benchmath.DefaultThresholds), confidence)
	s := Summary{P50: found.Center, P90: quantile(sorted, 0.90), P99: quantile(sorted, 0.99), Std: standardDeviation(sorted)}
	if m := mean(sorted); m != 0 {
		s.CV = s.Std / m
	}
	if !math.IsInf(found.Lo, 0) && !math.IsInf(found.Hi, 0) {
		s.Median = &Interval{found.Lo, found.Hi}
	}
	return s
}

// Spread is how far the interval of the median reaches from it on the wider side, as a share of it. It is +Inf where there is no interval.
func (s Summary) Spread() float64 {
	if s.Median == nil {
		return math.Inf(1)
	}
	if s.P50 == 0 {
		return 0
	}
	return max(s.Median.High/s.P50-1, 1-s.Median.Low/s.P50)
}

// PValue is the probability of samples as far apart as these, or farther, if both series came from one distribution: Mann and Whitney's U test, as
// benchstat has it. Series that are all one value give 1. Both need a sample at least.
func PValue(a, b []float64) float64 {
	sample := func(x []float64) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(x), &benchmath.DefaultThresholds)
	}
	return benchmath.AssumeNothing.Compare(sample(a), sample(b)).P
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

func mean(samples []float64) float64 {
	sum := 0.0
	for _, x := range samples {
		sum += x
	}
	return sum / float64(len(samples))
}

func standardDeviation(samples []float64) float64 {
	if len(samples) < 2 {
		return 0
	}
	middle, squares := mean(samples), 0.0
	for _, x := range samples {
		squares += (x - middle) * (x - middle)
	}
	return math.Sqrt(squares / float64(len(samples)-1))
}
