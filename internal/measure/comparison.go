package measure

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Verdict is the result of a comparison.
type Verdict string

// The verdicts on series B.
const (
	Faster    Verdict = "faster"
	Slower    Verdict = "slower"
	Same      Verdict = "same"      // any difference is below minFloor
	Ambiguous Verdict = "ambiguous" // the samples cannot decide; more samples may
)

// Interleaved are the interleaved series of one shape in ABBA order: sample i of each belongs to round i,
// and the order within a round is reversed in the next. Control is the A/A control, a second series
// of the same kernel as A: its apparent difference from A is noise of this session.
type Interleaved struct {
	A       []float64 `json:"a"`
	B       []float64 `json:"b"`
	Control []float64 `json:"control"`

	// Processes has the number of rounds of each process, in order. It is empty for one process.
	Processes []int `json:"rounds_per_process,omitempty"`
}

// Append adds the samples of further rounds, those of A, of B and of the control. The rounds of
// processes stay as they are.
func (t Interleaved) Append(more [][]float64) Interleaved {
	t.A, t.B, t.Control = append(t.A, more[0]...), append(t.B, more[1]...), append(t.Control, more[2]...)
	return t
}

// Share is the part of a total of rounds that one of several processes takes.
func Share(total, part, parts int) int { return total*(part+1)/parts - total*part/parts }

// Comparison is the ratio of A's time to B's on one shape.
type Comparison struct {
	Ratio   float64 `json:"ratio"`      // median over pairs of rounds; above 1, B is faster
	Low     float64 `json:"ratio_low"`  // confidence interval of Ratio
	High    float64 `json:"ratio_high"` //
	Medians float64 `json:"median_ratio"`
	P       float64 `json:"p_value"` // PValue; it ignores rounds, control and floor
	Control Speedup `json:"control"` // the same ratio for A and its control
	Floor   float64 `json:"floor"`   // noise floor: the session cannot resolve smaller differences
	Verdict Verdict `json:"verdict"`
}

const (
	// minFloor is the smallest noise floor. A difference below 1 % is not worth acting on, and no
	// session is quiet enough to resolve it.
	minFloor = 0.01
	// falsePositiveRate is the probability that one call of Compare reports a difference between
	// equal kernels, over all its shapes.
	falsePositiveRate = 0.01
)

// Compare compares the series of each shape. The confidence level of the intervals grows with the
// number of shapes (Bonferroni correction), so more shapes do not make a wrong verdict more likely.
// All series of a shape have the same length, at least 2.
func Compare(shapes []Interleaved) []Comparison {
	tail := falsePositiveRate / 2 / float64(max(len(shapes), 1))
	all := make([]Comparison, len(shapes))
	for i, t := range shapes {
		all[i] = compareShape(t, tail)
	}
	return all
}

func compareShape(t Interleaved, tail float64) Comparison {
	ratio := t.ratio(t.B, tail)
	c := Comparison{
		Ratio: ratio.Ratio, Low: ratio.Low, High: ratio.High,
		Medians: median(t.A) / median(t.B), P: PValue(t.A, t.B),
		Control: t.ratio(t.Control, tail),
	}
	// The control's interval shows how large a difference the session's noise can produce.
	c.Floor = max(minFloor, c.Control.High-1, 1/c.Control.Low-1)
	c.Verdict = verdict(c.Low, c.High, c.Floor, minFloor)
	return c
}

// verdict decides by the whole interval: beyond the floor it is a difference, within the share same
// of 1 it is none. A noisy session raises the floor but not that share: a session that cannot
// resolve a difference does not show that there is none.
func verdict(low, high, floor, same float64) Verdict {
	switch {
	case low > 1+floor:
		return Faster
	case high < 1/(1+floor):
		return Slower
	case low >= 1/(1+same) && high <= 1+same:
		return Same
	}
	return Ambiguous
}

// Overall is the verdict on all shapes together: the common verdict of all shapes that are not
// Same. Shapes that contradict each other, or an ambiguous shape, make it Ambiguous.
func Overall(all []Comparison) Verdict {
	overall := Same
	for _, c := range all {
		switch {
		case c.Verdict == Same:
		case overall == Same:
			overall = c.Verdict
		case overall != c.Verdict:
			return Ambiguous
		}
	}
	return overall
}

// ratio is the ratio of A to another series. With several processes its interval is that of the
// ratios of the processes.
func (t Interleaved) ratio(b []float64, tail float64) Speedup {
	if len(t.Processes) < 2 {
		return pairedRatio(t.A, b, tail)
	}
	var logs []float64
	others := SplitProcesses(b, t.Processes)
	for i, a := range SplitProcesses(t.A, t.Processes) {
		logs = append(logs, median(pairedLogs(a, others[i])))
	}
	center, half := studentInterval(logs, tail)
	return Speedup{Ratio: math.Exp(center), Low: math.Exp(center - half), High: math.Exp(center + half)}
}

// pairedRatio is the median ratio of a to b with its interval. Two consecutive rounds make one
// ratio: a runs before b in the first and after b in the second, so a steady drift cancels.
func pairedRatio(a, b []float64, tail float64) Speedup {
	logs := pairedLogs(a, b)
	medians := resampledMedian(logs)
	return Speedup{Ratio: math.Exp(median(logs)), Low: math.Exp(quantile(medians, tail)), High: math.Exp(quantile(medians, 1-tail))}
}

func pairedLogs(a, b []float64) []float64 {
	var logs []float64
	for i := 0; i+1 < len(a); i += 2 {
		logs = append(logs, (math.Log(a[i]/b[i])+math.Log(a[i+1]/b[i+1]))/2)
	}
	return logs
}

// resampledMedian returns the sorted medians of all bootstrap resamples. It counts the draws by
// rank, so that no resample needs to be sorted.
func resampledMedian(values []float64) []float64 {
	n := len(values)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	rank := make([]int, n)
	for r, i := range order {
		rank[i] = r
	}
	random := rand.New(rand.NewPCG(1, 2))
	medians, drawn := make([]float64, resamples), make([]int, n)
	for i := range medians {
		clear(drawn)
		for range n {
			drawn[rank[random.IntN(n)]]++
		}
		seen, r := 0, 0
		at := func(position int) float64 { // in the sorted resample
			for seen+drawn[r] <= position {
				seen += drawn[r]
				r++
			}
			return values[order[r]]
		}
		below, above := at((n-1)/2), at(n/2)
		medians[i] = below + 0.5*(above-below)
	}
	slices.Sort(medians)
	return medians
}

// CompareRecorded compares two series that were not interleaved, such as series of two sessions.
func CompareRecorded(a, b []float64, floor float64) Comparison {
	ratio := CompareUnpaired([]Pair{{Parent: a, Variant: b}})
	return Comparison{
		Ratio: ratio.Ratio, Low: ratio.Low, High: ratio.High, Medians: ratio.Ratio, P: PValue(a, b),
		Control: Speedup{Ratio: 1, Low: 1, High: 1}, Floor: floor, Verdict: verdict(ratio.Low, ratio.High, floor, floor),
	}
}
