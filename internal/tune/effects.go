package tune

import (
	"cmp"
	"math"
	"slices"

	"attune/internal/rule"
	"attune/internal/spec"
)

// KnobEffect is what the evaluations of a search say about one knob.
type KnobEffect struct {
	Knob  string     `json:"knob"`
	Layer spec.Layer `json:"layer"`
	// Spread is the largest ratio of two values over their neighbours, 1 without neighbours: how much
	// the knob matters by itself.
	Spread float64       `json:"spread"`
	Values []ValueEffect `json:"values"`
}

// ValueEffect is what the evaluations say about one value of a knob. A figure without an evaluation
// behind it is nil.
type ValueEffect struct {
	Value       rule.Value `json:"value"`
	Evaluations int        `json:"evaluations"` // failures included
	Failures    int        `json:"failures"`
	Best        *float64   `json:"best_cost"`        // the lowest cost with the value
	Median      *float64   `json:"median_over_best"` // the median cost with the value, over the best of the search
	// Ratio is the median cost over that of neighbours: variants that differ in this knob alone. Below 1
	// the value is better than the others.
	Ratio      *float64 `json:"neighbour_ratio"`
	Neighbours int      `json:"neighbours"` // pairs behind the ratio
}

// Effects returns the effect of each knob that has more than one value among the evaluations, the
// largest spread first. Evaluations without a point, of patched kernels, say nothing about knobs.
func Effects(s *Space, evaluations []Evaluation) []KnobEffect {
	evaluations = slices.DeleteFunc(slices.Clone(evaluations), func(e Evaluation) bool { return e.Point == nil })
	best := math.Inf(1)
	for _, e := range evaluations {
		if e.OK() {
			best = min(best, e.Cost)
		}
	}
	var effects []KnobEffect
	for knob, k := range s.Knobs {
		e := KnobEffect{Knob: k.Name, Layer: cmp.Or(k.Layer, spec.Micro), Spread: 1}
		ratios := neighbourRatios(knob, evaluations)
		for v, value := range k.Values {
			if effect := valueEffect(knob, uint16(v), evaluations, best); effect.Evaluations > 0 {
				effect.Value = value
				effect.Neighbours = len(ratios[uint16(v)])
				effect.Ratio = medianOf(ratios[uint16(v)])
				e.Values = append(e.Values, effect)
			}
		}
		if len(e.Values) < 2 {
			continue
		}
		e.Spread = spread(e.Values)
		effects = append(effects, e)
	}
	slices.SortStableFunc(effects, func(a, b KnobEffect) int { return cmp.Compare(b.Spread, a.Spread) })
	return effects
}

// spread is the largest ratio over the smallest.
func spread(values []ValueEffect) float64 {
	low, high := math.Inf(1), 0.0
	for _, v := range values {
		if v.Ratio != nil {
			low, high = min(low, *v.Ratio), max(high, *v.Ratio)
		}
	}
	if high == 0 {
		return 1
	}
	return high / low
}

// valueEffect counts the evaluations with a value.
func valueEffect(knob int, value uint16, evaluations []Evaluation, best float64) ValueEffect {
	var v ValueEffect
	var over []float64
	for _, e := range evaluations {
		if e.Point[knob] != value {
			continue
		}
		v.Evaluations++
		if !e.OK() {
			v.Failures++
			continue
		}
		if v.Best == nil || e.Cost < *v.Best {
			v.Best = new(e.Cost)
		}
		over = appendRatio(over, e.Cost, best)
	}
	v.Median = medianOf(over)
	return v
}

// neighbourRatios returns, for each value of a knob, its costs over those of variants that differ in
// the knob alone.
func neighbourRatios(knob int, evaluations []Evaluation) map[uint16][]float64 {
	like := map[string][]Evaluation{} // by the other knobs
	var keys []string
	for _, e := range evaluations {
		if !e.OK() {
			continue
		}
		key := e.Point.with(knob, 0).Key()
		if like[key] == nil {
			keys = append(keys, key)
		}
		like[key] = append(like[key], e)
	}
	ratios := map[uint16][]float64{}
	for _, key := range keys {
		for _, a := range like[key] {
			for _, b := range like[key] {
				if value := a.Point[knob]; value != b.Point[knob] {
					ratios[value] = appendRatio(ratios[value], a.Cost, b.Cost)
				}
			}
		}
	}
	return ratios
}

// appendRatio appends how much worse one cost is than another. Of a maximised objective costs are
// negative: the larger a rate, the better, so the ratio turns over. Costs of zero have no ratio.
func appendRatio(ratios []float64, cost, other float64) []float64 {
	if cost < 0 && other < 0 {
		cost, other = other, cost
	}
	if cost*other > 0 {
		return append(ratios, cost/other)
	}
	return ratios
}

func medianOf(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	return quantile(values, 0.5)
}
