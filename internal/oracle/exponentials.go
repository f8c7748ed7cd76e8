package oracle

import (
	"fmt"
	"math"
)

// Model is what exact exponentials give whose only error is that P is rounded to E4M3, on all or
// some of the rows of a reference.
type Model struct {
	Rows Rows // of the whole problem; a subset of those of the reference
	// Outs are the outputs of the kernels that the model stands for, [row, dim] each. A kernel has
	// the errors of one of them.
	Outs [][]float64
}

// Exponentials compares the error of an output with that of a model. It shows how a kernel computes
// exponentials: an approximation raises the mean error, or that of the rows that it approximates.
type Exponentials struct {
	Rows     int       `json:"rows"` // that were compared
	Mean     Ratio     `json:"mean"`
	WorstRow Ratio     `json:"worst_row"` // the largest mean error of a row
	RowClass Ratio     `json:"row_class"` // the class of rows with the largest mean error
	KeyClass *KeyClass `json:"key_class,omitempty"`
}

// Ratio is an error over that of the model. Slack is by how much the ratio may exceed its limit by
// chance, because a kernel that rounds the same exponentials relative to another row max has other
// errors of the same size.
type Ratio struct {
	Ratio float64 `json:"ratio"`
	Slack float64 `json:"slack"`
	Where string  `json:"where,omitempty"` // the class of rows
}

// KeyClass is the class of key positions whose total weight is furthest from that of float64.
type KeyClass struct {
	Class     int     `json:"class"`     // key position modulo the head dim
	Deviation float64 `json:"deviation"` // relative to float64's weight
	Slack     float64 `json:"slack"`     // what rounding P causes by chance
}

const (
	// rowClasses is the number of rows of a fragment of the tensor cores: a thread has rows r and
	// r + 8 of 16.
	rowClasses = 16
	// The slacks are this many standard errors: five where the largest of many classes is taken.
	sigmas, classSigmas = 4, 5
	// truncation is the relative error of two sums on Hopper's tensor cores: of P·V and of the row.
	// A kernel that adds in another order than the model, or by several warps, truncates other sums.
	// It counts only where rounding P costs nothing, as on rising scores.
	truncation = 0x1p-12
	// worstRowSigmas is lower because the largest error of many rows fluctuates less than one row.
	worstRowSigmas = 3
)

// CompareModel compares the errors of an output, [row, dim] on the rows of the reference, with those
// of a model. byKey says that the values are one-hot by key position. It returns nil if an element
// is not finite.
func CompareModel(got []float64, ref *Reference, model *Model, byKey bool) *Exponentials {
	dims := ref.Shape.HeadDim
	positions := model.Rows.Positions(ref.Rows)
	selected := func(values []float64) []float64 { return SelectRows(positions, values, dims) }
	own, want := selected(got), selected(ref.Out)
	errs := rowErrors(own, want, dims, 0)
	best := &Exponentials{}
	for i, out := range model.Outs {
		e := &Exponentials{Rows: len(errs)}
		e.compareRows(ref, model, errs, rowErrors(out, want, dims, truncation))
		if i == 0 {
			best = e
			continue
		}
		best.Mean, best.WorstRow, best.RowClass = best.Mean.less(e.Mean), best.WorstRow.less(e.WorstRow), best.RowClass.less(e.RowClass)
	}
	if math.IsNaN(best.Mean.Ratio) || math.IsInf(best.Mean.Ratio, 0) {
		return nil
	}
	if byKey {
		best.KeyClass = compareKeys(own, want, ref, model.Rows)
	}
	return best
}

// less returns the ratio that exceeds its slack by less.
func (r Ratio) less(o Ratio) Ratio {
	if o.Ratio-o.Slack < r.Ratio-r.Slack {
		return o
	}
	return r
}

// rowErrors returns the mean error of each row, and with it a relative error that is independent of
// it.
func rowErrors(got, want []float64, dims int, relative float64) []float64 {
	errs := make([]float64, len(want)/dims)
	for row := range errs {
		size := 0.0
		for i := row * dims; i < (row+1)*dims; i++ {
			errs[row] += math.Abs(got[i]-want[i]) / float64(dims)
			size += math.Abs(want[i]) / float64(dims)
		}
		errs[row] = math.Hypot(errs[row], relative*size)
	}
	return errs
}

// compareRows compares the errors of rows with those of a model.
func (e *Exponentials) compareRows(ref *Reference, model *Model, errs, modelled []float64) {
	all, allModelled := newMoments(errs), newMoments(modelled)
	// Rounding in the kernel and in the model are two draws.
	deviation := math.Sqrt2 * allModelled.deviation()
	e.Mean = Ratio{Ratio: quotient(all.mean(), allModelled.mean()), Slack: quotient(sigmas*deviation/math.Sqrt(all.n), allModelled.mean())}
	// The mean of |x| over independent normal elements of a row fluctuates by this share of itself.
	// Where one or two keys have the weight of a row, their rounding is the error of all elements, and
	// the rows differ by more.
	fluctuation := math.Sqrt((math.Pi/2 - 1) / float64(ref.Shape.HeadDim))
	fluctuation = max(math.Sqrt2*fluctuation, quotient(deviation, allModelled.largest))
	e.WorstRow = Ratio{Ratio: quotient(all.largest, allModelled.largest), Slack: worstRowSigmas * fluctuation}
	var classes, classesModelled [rowClasses + 2]moments // the last two are the halves of a fragment
	for i, err := range errs {
		class := model.Rows.At(i) % ref.Shape.SeqQ % rowClasses
		for _, c := range []int{class, rowClasses + class/(rowClasses/2)} {
			classes[c].add(err)
			classesModelled[c].add(modelled[i])
		}
	}
	for c, own := range classes {
		if own.n == 0 {
			continue
		}
		mean := classesModelled[c].mean()
		r := Ratio{quotient(own.mean(), mean), quotient(classSigmas*deviation/math.Sqrt(own.n), mean), classText(c)}
		if e.RowClass.Where == "" || r.Ratio-r.Slack > e.RowClass.Ratio-e.RowClass.Slack {
			e.RowClass = r
		}
	}
}

func classText(class int) string {
	switch class {
	case rowClasses:
		return "0 to 7 mod 16"
	case rowClasses + 1:
		return "8 to 15 mod 16"
	}
	return fmt.Sprintf("%d mod 16", class)
}

// compareKeys compares the total weight of each class of keys, a channel of the output, with
// float64. E4M3 rounds a weight by 2.6 % root mean square, independently from key to key and from
// row to row.
func compareKeys(got, want []float64, ref *Reference, rows Rows) *KeyClass {
	const rounding = 0.026
	dims := ref.Shape.HeadDim
	worst := &KeyClass{}
	for class := range dims {
		own, weight, variance := 0.0, 0.0, 0.0
		for i := range len(want) / dims {
			w := want[i*dims+class]
			keys := max(1, ref.Shape.Visible(rows.At(i)%ref.Shape.SeqQ)/dims) // of the class
			own += got[i*dims+class]
			weight += w
			variance += rounding * w * rounding * w / float64(keys)
		}
		k := &KeyClass{Class: class, Deviation: math.Abs(quotient(own-weight, weight))}
		if weight != 0 { // otherwise the class has no key, and chance gives it no weight
			k.Slack = classSigmas * math.Sqrt(variance) / weight
		}
		if class == 0 || k.Deviation-k.Slack > worst.Deviation-worst.Slack {
			worst = k
		}
	}
	return worst
}

// moments are sums over the errors of rows.
type moments struct{ n, sum, squares, largest float64 }

func newMoments(values []float64) moments {
	var m moments
	for _, x := range values {
		m.add(x)
	}
	return m
}

func (m *moments) add(x float64) {
	m.n++
	m.sum += x
	m.squares += x * x
	m.largest = max(m.largest, x)
}

func (m moments) mean() float64 { return m.sum / m.n }

func (m moments) deviation() float64 {
	return math.Sqrt(max(0, m.squares/m.n-m.mean()*m.mean()))
}

// quotient is a/b, and 0 for 0/0. It stays finite where only b is 0.
func quotient(a, b float64) float64 {
	switch {
	case a == 0:
		return 0
	case b == 0:
		return math.Copysign(math.MaxFloat64, a)
	}
	return a / b
}
