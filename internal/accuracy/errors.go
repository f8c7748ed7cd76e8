package accuracy

import "math"

// Errors are how far answers are from their references, over all problems that were added up.
type Errors struct {
	RMSE float64 `json:"rmse"`
	// Relative is RMSE over the root mean square of the references: it can be compared between lengths, because the
	// answers themselves shrink where more keys are averaged.
	Relative float64 `json:"relative_rmse"`
	MaxErr   float64 `json:"max_err"`
	Cosine   float64 `json:"cosine"` // of answers and references, each as one long vector
	// WorstRow is the least cosine of a query row: one that is lost does not show in the figures above.
	WorstRow  float64 `json:"worst_row_cosine"`
	NonFinite int     `json:"non_finite"` // elements that are no number and have no say in the others
}

// tally adds up what Errors are made of. The zero value has seen nothing.
type tally struct {
	elements  int
	offOff    float64 // sum of the squares of the errors
	whole     products
	maxErr    float64
	apart     float64 // the largest 1 - cosine of a row
	nonFinite int
}

// products of answers and references, summed.
type products struct{ gotGot, wantWant, gotWant float64 }

func (p *products) add(got, want float64) {
	p.gotGot += got * got
	p.wantWant += want * want
	p.gotWant += got * want
}

// cosine of two vectors, of which zero is like itself and unlike all others.
func (p products) cosine() float64 {
	switch {
	case p.gotGot == 0 && p.wantWant == 0:
		return 1
	case p.gotGot == 0 || p.wantWant == 0:
		return 0
	}
	return min(1, max(-1, p.gotWant/math.Sqrt(p.gotGot)/math.Sqrt(p.wantWant))) // rounding may carry the quotient past the end
}

// add takes in the answer to one problem, in rows of so many dims.
func (t *tally) add(got, want []float64, dims int) {
	for start := 0; start < len(want); start += dims {
		var row products
		for i := start; i < start+dims; i++ {
			off := got[i] - want[i]
			if math.IsNaN(off) || math.IsInf(off, 0) {
				t.nonFinite++
				continue
			}
			t.elements++
			t.offOff += off * off
			t.maxErr = max(t.maxErr, math.Abs(off))
			row.add(got[i], want[i])
			t.whole.add(got[i], want[i])
		}
		t.apart = max(t.apart, 1-row.cosine())
	}
}

func (t *tally) errors() Errors {
	e := Errors{
		RMSE: math.Sqrt(t.offOff / float64(max(t.elements, 1))), MaxErr: t.maxErr,
		Cosine: t.whole.cosine(), WorstRow: 1 - t.apart, NonFinite: t.nonFinite,
	}
	if t.whole.wantWant > 0 {
		e.Relative = math.Sqrt(t.offOff / t.whole.wantWant)
	}
	return e
}
