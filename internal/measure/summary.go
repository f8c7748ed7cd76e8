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
	Std float64 `json:"std"` // sample standard deviation
	CV  float64 `json:"cv"`  // coefficient of variation: Std / mean

	Median *Interval `json:"p50_interval,omitempty"` // nil with fewer than 6 samples
}

// Interval is a confidence interval of the median, at 95 % or slightly more. It is benchstat's and
// assumes no distribution of the samples.
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

// Spread is the larger distance between the median and the ends of its interval, as a share of the
// median. It is +Inf without an interval.
func (s Summary) Spread() float64 {
	if s.Median == nil {
		return math.Inf(1)
	}
	if s.P50 == 0 {
		return 0
	}
	return max(s.Median.High/s.P50-1, 1-s.Median.Low/s.P50)
}

// PValue is the p-value of benchstat's Mann-Whitney U test: the probability of samples at least
// this far apart if both series had the same distribution. It is 1 if all samples are equal. Both
// series need at least one sample.
func PValue(a, b []float64) float64 {
	sample := func(x []float64) *benchmath.Sample {
		return benchmath.NewSample(slices.Clone(x), &benchmath.DefaultThresholds)
	}
	return benchmath.AssumeNothing.Compare(sample(a), sample(b)).P
}

// quantile interpolates linearly between samples (type 7 of Hyndman and Fan, the default of R and
// NumPy).
func quantile(sorted []float64, q float64) float64 {
	position := q * float64(len(sorted)-1)
	below := int(position)
	if below+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (position-float64(below))*(sorted[below+1]-sorted[below])
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
	average, squares := mean(samples), 0.0
	for _, x := range samples {
		squares += (x - average) * (x - average)
	}
	return math.Sqrt(squares / float64(len(samples)-1))
}
