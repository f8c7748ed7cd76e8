package measure

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Verdict is what a comparison comes to.
type Verdict string

// The verdicts, as told of the second series.
const (
	Faster    Verdict = "faster"
	Slower    Verdict = "slower"
	Same      Verdict = "same"      // any difference is below the least floor
	Ambiguous Verdict = "ambiguous" // the samples do not say; more may
)

// Turns are the series of one shape, taken in turns: sample i of each belongs to round i, and the order within a round is turned round from one to the
// next. Control is a again, under another name: what it seems to differ from a by is what this session can make up.
type Turns struct {
	A       []float64 `json:"a"`
	B       []float64 `json:"b"`
	Control []float64 `json:"control"`
}

// Comparison is how many times as fast as a the other is on one shape.
type Comparison struct {
	Ratio   float64 `json:"ratio"`      // median, over pairs of rounds, of the time of a over the time of b
	Low     float64 `json:"ratio_low"`  // the interval that holds the true ratio at the level of the comparison
	High    float64 `json:"ratio_high"` //
	Medians float64 `json:"median_ratio"`
	P       float64 `json:"p_value"` // benchstat's, of the samples as two heaps: it knows of no turns, no control and no floor
	Control Speedup `json:"control"` // a over a
	Floor   float64 `json:"floor"`   // differences up to this share are none that this session could tell
	Verdict Verdict `json:"verdict"`
}

const (
	// leastFloor is the difference that nobody should act upon, and that no session is quiet enough for.
	leastFloor = 0.01
	// wrongVerdicts is how many comparisons in a hundred may call equal kernels different, over all shapes of one comparison.
	wrongVerdicts = 0.01
)

// Compare holds the series of each shape against each other. The level of the intervals grows with the number of shapes, so that many shapes do not make
// a wrong verdict more likely (Bonferroni's correction). All series of a shape are equally long, with two samples at least.
func Compare(shapes []Turns) []Comparison {
	tail := wrongVerdicts / 2 / float64(max(len(shapes), 1))
	all := make([]Comparison, len(shapes))
	for i, t := range shapes {
		all[i] = compareTurns(t, tail)
	}
	return all
}

func compareTurns(t Turns, tail float64) Comparison {
	ratio := pairedRatio(t.A, t.B, tail)
	c := Comparison{
		Ratio: ratio.Ratio, Low: ratio.Low, High: ratio.High,
		Medians: median(t.A) / median(t.B), P: PValue(t.A, t.B),
		Control: pairedRatio(t.A, t.Control, tail),
	}
	// Where the control is not 1 for certain, the session is not quiet, and what it makes up of nothing is taken off every verdict.
	c.Floor = max(leastFloor, c.Control.High-1, 1/c.Control.Low-1)
	c.Verdict = verdict(c.Low, c.High, c.Floor, leastFloor)
	return c
}

// verdict needs the whole interval on one side: beyond the floor for a difference, within a share of 1 for none. A session that is not quiet raises
// the floor, and not that share: it cannot tell, which is not to say that there is nothing to tell.
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

// Overall is the verdict on all shapes together: what every shape that is not the same says. Shapes that contradict each other, or one that does not
// say, make it ambiguous.
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

// pairedRatio is the median of the ratios of a to b. Two rounds that follow each other make one ratio: in the first a came before b and in the second b
// before a, so that a steady drift cancels.
func pairedRatio(a, b []float64, tail float64) Speedup {
	var logs []float64
	for i := 0; i+1 < len(a); i += 2 {
		logs = append(logs, (math.Log(a[i]/b[i])+math.Log(a[i+1]/b[i+1]))/2)
	}
	medians := resampledMedian(logs)
	return Speedup{Ratio: math.Exp(median(logs)), Low: math.Exp(quantile(medians, tail)), High: math.Exp(quantile(medians, 1-tail))}
}

// resampledMedian draws as many values as there are, with replacement, again and again, and gives the medians, sorted. A draw is counted at its rank, so that none
// of them needs to be sorted.
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
		at := func(place int) float64 { // of those drawn, in their order
			for seen+drawn[r] <= place {
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

// CompareRecorded holds two series against each other that were not taken in turns, such as those of two sessions.
func CompareRecorded(a, b []float64, floor float64) Comparison {
	ratio := CompareApart([]Pair{{Parent: a, Variant: b}})
	return Comparison{
		Ratio: ratio.Ratio, Low: ratio.Low, High: ratio.High, Medians: ratio.Ratio, P: PValue(a, b),
		Control: Speedup{Ratio: 1, Low: 1, High: 1}, Floor: floor, Verdict: verdict(ratio.Low, ratio.High, floor, floor),
	}
}
