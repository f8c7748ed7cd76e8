package measure

import (
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// Samples of one process agree within a tenth of a percent, yet the medians of several processes of
// one program on one GPU differ by up to 1 %: each has its own context, allocations and clocks. An
// interval from the samples of one process says nothing about that. The intervals of this file have
// two levels. The median of each process is one observation, and Student's t-distribution of these
// observations gives the interval.

const (
	// minSpread is the least half-width of the interval of a time, as a share of it. Medians of a
	// few processes can agree by chance.
	minSpread = 0.003
	// SingleSpread is the least half-width for a single process: the largest difference between the
	// medians of processes that was measured on an H200.
	SingleSpread = 0.01
)

// SummarizeProcesses describes samples by process; there must be at least one sample. Its interval
// covers what differs between processes.
func SummarizeProcesses(processes [][]float64) Summary {
	s := Summarize(slices.Concat(processes...))
	if len(processes) < 2 {
		if s.Median != nil {
			s.Median = &Interval{min(s.Median.Low, s.P50*(1-SingleSpread)), max(s.Median.High, s.P50*(1+SingleSpread))}
		}
		return s
	}
	medians := mediansOf(processes)
	center, half := studentInterval(medians, (1-confidence)/2)
	half = max(half, minSpread*s.P50)
	s.Median = &Interval{min(s.P50, center) - half, max(s.P50, center) + half}
	return s
}

func mediansOf(processes [][]float64) []float64 {
	medians := make([]float64, len(processes))
	for i, samples := range processes {
		medians[i] = median(samples)
	}
	return medians
}

// studentInterval is the mean of at least two observations and the half-width of its confidence
// interval, with the given probability beyond each end.
func studentInterval(observations []float64, tail float64) (center, half float64) {
	n := float64(len(observations))
	return mean(observations), student(n-1, tail) * standardDeviation(observations) / math.Sqrt(n)
}

// student is the quantile of Student's t-distribution that leaves tail above it.
func student(degrees, tail float64) float64 {
	return stats.InvCDF(stats.TDist{V: degrees})(1 - tail)
}

// ProcessPair is two series of one shape, interleaved in each of several processes: list i of both
// belongs to process i.
type ProcessPair struct {
	Parent, Variant [][]float64
}

// CompareProcesses computes the geometric mean over pairs of median(parent)/median(variant). The
// interval covers what differs between processes. All pairs have at least one process; with only
// one, the interval is that of its rounds.
func CompareProcesses(pairs []ProcessPair) Speedup {
	processes := len(pairs[0].Parent)
	for _, p := range pairs {
		processes = min(processes, len(p.Parent))
	}
	if processes < 2 {
		var flat []Pair
		for _, p := range pairs {
			flat = append(flat, Pair{slices.Concat(p.Parent...), slices.Concat(p.Variant...)})
		}
		return CompareSpeed(flat)
	}
	logs := make([]float64, processes)
	for i := range logs {
		for _, p := range pairs {
			logs[i] += math.Log(median(p.Parent[i])/median(p.Variant[i])) / float64(len(pairs))
		}
	}
	center, half := studentInterval(logs, (1-confidence)/2)
	return Speedup{Ratio: math.Exp(center), Low: math.Exp(center - half), High: math.Exp(center + half)}
}

// CompareRecordedProcesses is CompareRecorded for series by process. The processes of the two are
// independent, so the interval is Welch's.
func CompareRecordedProcesses(a, b [][]float64, floor float64) Comparison {
	flatA, flatB := slices.Concat(a...), slices.Concat(b...)
	if len(a) < 2 || len(b) < 2 {
		c := CompareRecorded(flatA, flatB, floor)
		c.Low, c.High = min(c.Low, c.Ratio*(1-2*SingleSpread)), max(c.High, c.Ratio*(1+2*SingleSpread))
		c.Verdict = verdict(c.Low, c.High, floor, floor)
		return c
	}
	center, half := welchInterval(logarithms(mediansOf(a)), logarithms(mediansOf(b)), (1-confidence)/2)
	c := Comparison{
		Ratio: math.Exp(center), Low: math.Exp(center - half), High: math.Exp(center + half),
		Medians: median(flatA) / median(flatB), P: PValue(flatA, flatB), Control: Speedup{Ratio: 1, Low: 1, High: 1}, Floor: floor,
	}
	c.Verdict = verdict(c.Low, c.High, floor, floor)
	return c
}

// welchInterval is the difference of the means of two sets of observations and the half-width of
// its confidence interval, by Welch's approximation of the degrees of freedom.
func welchInterval(a, b []float64, tail float64) (center, half float64) {
	share := func(x []float64) float64 { d := standardDeviation(x); return d * d / float64(len(x)) }
	va, vb := share(a), share(b)
	center = mean(a) - mean(b)
	if va+vb == 0 {
		return center, 0
	}
	degrees := (va + vb) * (va + vb) / (va*va/float64(len(a)-1) + vb*vb/float64(len(b)-1))
	return center, student(degrees, tail) * math.Sqrt(va+vb)
}

func logarithms(values []float64) []float64 {
	logs := make([]float64, len(values))
	for i, x := range values {
		logs[i] = math.Log(x)
	}
	return logs
}

// Between describes how the medians of processes differ from each other.
type Between struct {
	Processes int     `json:"processes"`
	Mean      float64 `json:"mean"` // of the medians
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	CV        float64 `json:"cv"` // their standard deviation over their mean
}

// BetweenProcesses compares the medians of at least one process.
func BetweenProcesses(processes [][]float64) Between {
	medians := mediansOf(processes)
	center := mean(medians)
	return Between{len(medians), center, slices.Min(medians), slices.Max(medians), standardDeviation(medians) / center}
}

// SplitProcesses splits the samples of a series by the number of samples of each process.
func SplitProcesses(samples []float64, processes []int) [][]float64 {
	if len(processes) == 0 {
		return [][]float64{samples}
	}
	var all [][]float64
	for _, n := range processes {
		all = append(all, samples[:n])
		samples = samples[n:]
	}
	return all
}
