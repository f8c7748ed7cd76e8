package accuracy

import "math"

// Errors are the errors of outputs against their references, over all problems of a tally.
type Errors struct {
	RMSE float64 `json:"rmse"`
	// Relative is RMSE divided by the root mean square of the references. It is comparable between
	// lengths, because outputs shrink as more keys are averaged.
	Relative float64 `json:"relative_rmse"`
	MaxErr   float64 `json:"max_err"`
	Cosine   float64 `json:"cosine"` // of outputs and references, each as one long vector
	// WorstRow is the smallest cosine of a query row. A single wrong row does not show in the
	// figures above.
	WorstRow  float64 `json:"worst_row_cosine"`
	NonFinite int     `json:"non_finite"` // excluded from the other figures
}

// tally accumulates the terms of Errors. The zero value is empty.
type tally struct {
	elements  int
	squared   float64 // sum of squared errors
	whole     products
	maxErr    float64
	apart     float64 // the largest 1 - cosine of a row
	nonFinite int
}

// products are the dot products of outputs and references.
type products struct{ gotGot, wantWant, gotWant float64 }

func (p *products) add(got, want float64) {
	p.gotGot += got * got
	p.wantWant += want * want
	p.gotWant += got * want
}

// cosine is 1 for two zero vectors and 0 if only one is zero.
func (p products) cosine() float64 {
	switch {
	case p.gotGot == 0 && p.wantWant == 0:
		return 1
	case p.gotGot == 0 || p.wantWant == 0:
		return 0
	}
	// Rounding may push the quotient past ±1.
	return min(1, max(-1, p.gotWant/math.Sqrt(p.gotGot)/math.Sqrt(p.wantWant)))
}

// add includes the output of one problem, in rows of dims elements.
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
			t.squared += off * off
			t.maxErr = max(t.maxErr, math.Abs(off))
			row.add(got[i], want[i])
			t.whole.add(got[i], want[i])
		}
		t.apart = max(t.apart, 1-row.cosine())
	}
}

func (t *tally) errors() Errors {
	e := Errors{
		RMSE: math.Sqrt(t.squared / float64(max(t.elements, 1))), MaxErr: t.maxErr,
		Cosine: t.whole.cosine(), WorstRow: 1 - t.apart, NonFinite: t.nonFinite,
	}
	if t.whole.wantWant > 0 {
		e.Relative = math.Sqrt(t.squared / t.whole.wantWant)
	}
	return e
}
