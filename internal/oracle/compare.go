package oracle

import (
	"encoding/json"
	"fmt"
	"math"
)

// Tolerance bounds the error of one element: it is bad if |got - want| > Abs + Rel·|want|.
type Tolerance struct {
	Abs float64 `json:"abs"`
	Rel float64 `json:"rel"`
}

// Errors are the errors of an output against its reference. Every figure is finite, so that it can
// be written as JSON. MaxErr, MeanErr, Cosine and Worst cover the elements whose error is finite;
// NonFinite counts the others. A gate must check both: a single NaN or infinity is a failure.
type Errors struct {
	MaxErr      float64 `json:"max_err"`
	MeanErr     float64 `json:"mean_err"`
	Bad         int     `json:"bad"` // beyond the tolerance or not finite
	BadFraction float64 `json:"bad_fraction"`
	Cosine      float64 `json:"cosine"` // of output and reference, each as one long vector
	NonFinite   int     `json:"non_finite"`
	Worst       Worst   `json:"worst"`
	// FirstNonFinite is nil if NonFinite is 0.
	FirstNonFinite *Place `json:"first_non_finite,omitempty"`
	// FirstValues are both values there, such as "got NaN, want 1"; JSON has no such numbers.
	FirstValues string `json:"-"`
}

// OutputErrors are the errors of one output of a declared problem.
type OutputErrors struct {
	Name string `json:"name"`
	Errors
}

// Place is the position of an element in the output.
type Place struct {
	Batch int `json:"batch"`
	Head  int `json:"head"`
	Row   int `json:"row"`
	Dim   int `json:"dim"`

	Element string `json:"element,omitempty"` // of a declared problem, such as y[3, 17]
}

// MarshalJSON writes the name of the element, or the position of an element of attention.
func (p Place) MarshalJSON() ([]byte, error) {
	if p.Element != "" {
		return json.Marshal(struct {
			Element string `json:"element"`
		}{p.Element})
	}
	type plain Place // without this method
	return json.Marshal(plain(p))
}

// Worst is the first element with the largest error.
type Worst struct {
	Place
	Got  float64 `json:"got"`
	Want float64 `json:"want"`

	// GotInteger and WantInteger are the values of integers, with all digits; empty for floats.
	GotInteger  string `json:"-"`
	WantInteger string `json:"-"`
}

// Values are both values, for messages.
func (w Worst) Values() string {
	if w.GotInteger != "" {
		return fmt.Sprintf("got %s, want %s", w.GotInteger, w.WantInteger)
	}
	return fmt.Sprintf("got %.9g, want %.9g", w.Got, w.Want)
}

// MarshalJSON writes the place as that of Place does, and both values. Without it, the method of
// Place would write the place only.
func (w Worst) MarshalJSON() ([]byte, error) {
	if w.Element != "" {
		element := struct {
			Element string `json:"element"`
			Got     any    `json:"got"`
			Want    any    `json:"want"`
		}{w.Element, w.Got, w.Want}
		if w.GotInteger != "" {
			element.Got, element.Want = json.Number(w.GotInteger), json.Number(w.WantInteger)
		}
		return json.Marshal(element)
	}
	type plain Place
	return json.Marshal(struct {
		plain
		Got  float64 `json:"got"`
		Want float64 `json:"want"`
	}{plain(w.Place), w.Got, w.Want})
}

func (p Place) String() string {
	if p.Element != "" {
		return p.Element
	}
	return fmt.Sprintf("batch %d head %d row %d dim %d", p.Batch, p.Head, p.Row, p.Dim)
}

// Compare measures the errors of an output, [row, dim], on the rows of the reference.
func Compare(got []float64, ref *Reference, tolerance Tolerance) (Errors, error) {
	if len(got) != len(ref.Out) {
		return Errors{}, fmt.Errorf("output for %v has %d elements, want %d", ref.Shape, len(got), len(ref.Out))
	}
	var e Errors
	worst := -1
	var sum, gotGot, wantWant, gotWant float64
	for i, want := range ref.Out {
		off := math.Abs(got[i] - want)
		if !(off <= math.MaxFloat64) { // true for NaN too
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

// LSEErrors are the errors of logarithms of sums of exponentials. All figures are finite and cover
// the rows whose error is finite. Lost counts the other rows: only one of the two values is finite,
// or they are infinities of opposite sign.
type LSEErrors struct {
	MaxErr    float64 `json:"max_err"`
	MeanErr   float64 `json:"mean_err"`
	Worst     Worst   `json:"worst"`
	NonFinite int     `json:"lost,omitempty"`
	// FirstNonFinite is nil if Lost is 0.
	FirstNonFinite *Place `json:"first_lost,omitempty"`
}

// CompareLSE measures the errors of logarithms of sums of exponentials, on the rows of the
// reference. A row that sees no key must have -Inf.
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
		if !(off <= math.MaxFloat64) { // true for NaN too
			if e.NonFinite++; e.NonFinite == 1 {
				place := ref.place(i * ref.Shape.HeadDim)
				e.FirstNonFinite = &place
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

// cosine returns the cosine of two vectors from their dot products. It is 1 for two zero vectors
// and 0 if only one is zero.
func cosine(aa, bb, ab float64) float64 {
	switch {
	case aa == 0 && bb == 0:
		return 1
	case aa == 0 || bb == 0:
		return 0
	}
	// Rounding may push the quotient past ±1.
	return min(1, max(-1, ab/(math.Sqrt(aa)*math.Sqrt(bb))))
}

// place returns the position in the whole output of an element of Out.
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
