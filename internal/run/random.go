package run

import (
	"cmp"
	"math"
	"slices"
)

// Random is what a bench on random problems found. Its rows have the times of every problem.
type Random struct {
	Count      int     `json:"count"` // problems that were requested
	Seed       uint64  `json:"seed"`  // that they were drawn from
	Refused    int     `json:"refused,omitempty"`
	RefusedWhy string  `json:"refused_why,omitempty"` // of the first draw that a variant does not take
	Against    string  `json:"against"`               // spec.AgainstPeers or spec.AgainstCopy
	OverheadUS float64 `json:"overhead_us,omitempty"` // of a launch besides the copy
	Required   float64 `json:"required_ratio"`        // from which on a problem is fast enough

	Results []RandomResult `json:"results,omitempty"` // of each variant and selection
}

// WorstProblems is how many problems a RandomResult lists.
const WorstProblems = 10

// RandomResult is one variant or selection on random problems. A ratio is the time of the fastest
// peer, or of a copy, over ours. The means are geometric, and over the problems with a ratio.
type RandomResult struct {
	Name        string   `json:"name"`
	Problems    int      `json:"problems"`   // that were compared, including the failed ones
	Held        int      `json:"held"`       // those of them with the required ratio
	Share       *float64 `json:"share"`      // of held ones; nil if no problem was compared
	Failed      int      `json:"failed"`     // those of them with a wrong or unchecked output
	Uncompared  int      `json:"uncompared"` // problems without a peer to compare with
	Mean        *float64 `json:"mean"`
	Median      *float64 `json:"median"`
	LowestTenth *float64 `json:"lowest_tenth"` // mean of the lowest tenth of the ratios, at least one

	Worst []RandomProblem `json:"worst"` // failed ones first, then those of the lowest ratios
}

// RandomProblem is one random problem.
type RandomProblem struct {
	Shape     string   `json:"shape"`
	Variant   string   `json:"variant,omitempty"` // that the selection chose
	Ratio     *float64 `json:"ratio"`             // nil for a failed problem
	P50US     *float64 `json:"p50_us"`
	Against   string   `json:"against,omitempty"` // the fastest peer, or the copy
	AgainstUS *float64 `json:"against_us"`
	MaxErr    *float64 `json:"max_err"`
	Wrong     string   `json:"wrong,omitempty"`
}

// SummarizeRandom computes the figures of a variant from its problems.
func SummarizeRandom(name string, problems []RandomProblem, required float64) RandomResult {
	result := RandomResult{Name: name, Worst: []RandomProblem{}}
	compared := slices.DeleteFunc(slices.Clone(problems), func(p RandomProblem) bool { return p.Wrong == "" && p.Ratio == nil })
	result.Problems, result.Uncompared = len(compared), len(problems)-len(compared)
	if len(compared) == 0 {
		return result
	}
	slices.SortStableFunc(compared, func(a, b RandomProblem) int { return cmp.Compare(a.order(), b.order()) })
	result.Worst = compared[:min(WorstProblems, len(compared))]
	var ratios []float64
	for _, p := range compared {
		switch {
		case p.Ratio == nil:
			result.Failed++
			continue
		case *p.Ratio >= required:
			result.Held++
		}
		ratios = append(ratios, *p.Ratio)
	}
	share := float64(result.Held) / float64(len(compared))
	result.Share = &share
	if n := len(ratios); n > 0 {
		middle := (ratios[(n-1)/2] + ratios[n/2]) / 2
		result.Mean, result.Median, result.LowestTenth = geometric(ratios), &middle, geometric(ratios[:(n+9)/10])
	}
	return result
}

// order is the ratio, with failed problems first.
func (p RandomProblem) order() float64 {
	if p.Ratio == nil {
		return -1
	}
	return *p.Ratio
}

// geometric is the geometric mean of ratios.
func geometric(ratios []float64) *float64 {
	sum := 0.0
	for _, r := range ratios {
		sum += math.Log(r)
	}
	mean := math.Exp(sum / float64(len(ratios)))
	return &mean
}
