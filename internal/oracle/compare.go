package oracle

import (
	"fmt"
	"math"
)

// Tolerance says when an element is bad: when it is off by more than Abs + Rel·|want|.
type Tolerance struct {
	Abs float64 `json:"abs"`
	Rel float64 `json:"rel"`
}

// Errors are how far an output is from its reference. Every figure is finite and can be written as JSON: MaxErr,
// MeanErr, Cosine and Worst speak of the elements whose error is finite, and the others are counted in NonFinite. A
// gate must look at both; one NaN or infinity is a failure whatever the rest looks like.
type Errors struct {
	MaxErr      float64 `json:"max_err"`
	MeanErr     float64 `json:"mean_err"`
	Bad         int     `json:"bad"` // beyond the tolerance, or not finite
	BadFraction float64 `json:"bad_fraction"`
	Cosine      float64 `json:"cosine"` // of output and reference, each as one long vector
	NonFinite   int     `json:"non_finite"`
	Worst       Worst   `json:"worst"`
	// FirstNonFinite is nil where NonFinite is 0.
	FirstNonFinite *Place `json:"first_non_finite,omitempty"`
}

// Place is where an element is.
type Place struct {
	Batch int `json:"batch"`
	Head  int `json:"head"`
	Row   int `json:"row"`
	Dim   int `json:"dim"`
}

// Worst is the first element with the largest error.
type Worst struct {
	Place
	Got  float64 `json:"got"`
	Want float64 `json:"want"`
}

func (p Place) String() string {
	return fmt.Sprintf("batch %d head %d row %d dim %d", p.Batch, p.Head, p.Row, p.Dim)
}

// Compare measures an output against its reference, on the rows that the reference has: [row, dim].
func Compare(got []float64, ref *Reference, tolerance Tolerance) (Errors, error) {
	if len(got) != len(ref.Out) {
		return Errors{}, fmt.Errorf("output for %v has %d elements, want %d", ref.Shape, len(got), len(ref.Out))
	}
	var e Errors
	worst := -1
	var sum, gotGot, wantWant, gotWant float64
	for i, want := range ref.Out {
		off := math.Abs(got[i] - want)
		if !(off <= math.MaxFloat64) { // also true of a NaN
			if e.NonFinite++; e.NonFinite == 1 {
				place := ref.place(i)
				e.FirstNonFinite = &place
			}
			continue
		}
		if off > e.MaxErr || worst < 0 {
			e.MaxErr, worst = off, i
		}
		if off > tolerance.Abs+tolerance.Rel*math.Abs(want) {
			e.Bad++
		}
		sum += off
		gotGot += got[i] * got[i]
		wantWant += want * want
		gotWant += got[i] * want
	}
	if worst >= 0 {
		e.Worst = Worst{Place: ref.place(worst), Got: got[worst], Want: ref.Out[worst]}
		e.MeanErr = sum / float64(len(got)-e.NonFinite)
		e.Cosine = cosine(gotGot, wantWant, gotWant)
	}
	e.Bad += e.NonFinite
	e.BadFraction = float64(e.Bad) / float64(len(got))
	return e, nil
}

// LSEErrors are how far logarithms of sums are from their reference. All figures are finite and speak of the rows whose error is; the others are
// counted in Lost: those of which only one of the two is finite, or that are infinities of two kinds.
type LSEErrors struct {
	MaxErr  float64 `json:"max_err"`
	MeanErr float64 `json:"mean_err"`
	Worst   Worst   `json:"worst"`
	Lost    int     `json:"lost,omitempty"`
	// FirstLost is nil where Lost is 0.
	FirstLost *Place `json:"first_lost,omitempty"`
}

// CompareLSE measures logarithms of sums against their reference, on the rows that the reference has. A row that sees no key must
// have minus infinity.
func CompareLSE(got []float64, ref *Reference) (LSEErrors, error) {
	if len(got) != len(ref.LSE) {
		return LSEErrors{}, fmt.Errorf("lse for %v has %d elements, want %d", ref.Shape, len(got), len(ref.LSE))
	}
	var e LSEErrors
	worst, finite, sum := -1, 0, 0.0
	for i, want := range ref.LSE {
		if math.IsInf(want, -1) && math.IsInf(got[i], -1) {
			continue
		}
		off := math.Abs(got[i] - want)
		if !(off <= math.MaxFloat64) { // also true of a NaN
			if e.Lost++; e.Lost == 1 {
				place := ref.place(i * ref.Shape.HeadDim)
				e.FirstLost = &place
			}
			continue
		}
		finite++
		sum += off
		if off > e.MaxErr || worst < 0 {
			e.MaxErr, worst = off, i
		}
	}
	if worst >= 0 {
		e.Worst = Worst{Place: ref.place(worst * ref.Shape.HeadDim), Got: got[worst], Want: ref.LSE[worst]}
		e.MeanErr = sum / float64(finite)
	}
	return e, nil
}

// cosine of two vectors, of which zero is like itself and unlike all others.
func cosine(aa, bb, ab float64) float64 {
	switch {
	case aa == 0 && bb == 0:
		return 1
	case aa == 0 || bb == 0:
		return 0
	}
	// Rounding may carry the quotient past the end.
	return min(1, max(-1, ab/(math.Sqrt(aa)*math.Sqrt(bb))))
}

// place is where an element of Out is in the whole output.
func (ref *Reference) place(index int) Place {
	shape := ref.Shape
	row := ref.Rows.At(index / shape.HeadDim)
	head := row / shape.SeqQ
	return Place{
		Batch: head / shape.Heads,
		Head:  head % shape.Heads,
		Row:   row % shape.SeqQ,
		Dim:   index % shape.HeadDim,
	}
}
