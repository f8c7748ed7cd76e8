package oracle

import (
	"math"
	"testing"

	"attune/internal/tensor"
)

// study is a reference of ones with a model that is off by 0.01 in every element, alternately high
// and low.
func study(rows, dims int) (*Reference, *Model) {
	ref := &Reference{Shape: tensor.Shape{Batch: 1, Heads: 1, SeqQ: rows, SeqK: rows, HeadDim: dims}, Out: make([]float64, rows*dims)}
	out := make([]float64, len(ref.Out))
	for i := range out {
		ref.Out[i] = 1
		out[i] = 1 + 0.01*float64(1-2*(i%2))
	}
	return ref, &Model{Outs: [][]float64{out}}
}

// off returns the reference with an error in every element.
func off(ref *Reference, of func(row, dim int) float64) []float64 {
	got := make([]float64, len(ref.Out))
	for i, x := range ref.Out {
		got[i] = x + of(i/ref.Shape.HeadDim, i%ref.Shape.HeadDim)
	}
	return got
}

func TestCompareModel(t *testing.T) {
	ref, model := study(64, 8)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-3 { // a truncation beside the error of the model
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	sign := func(dim int) float64 { return float64(1 - 2*(dim%2)) }
	e := CompareModel(off(ref, func(_, dim int) float64 { return 0.02 * sign(dim) }), ref, model, false)
	near("the mean", e.Mean.Ratio, 2)
	near("the worst row", e.WorstRow.Ratio, 2)
	near("its slack", e.WorstRow.Slack, 3*math.Sqrt2*math.Sqrt((math.Pi/2-1)/8))
	if e.Rows != 64 || e.KeyClass != nil || e.Mean.Slack > 1e-6 {
		t.Errorf("got %+v", e)
	}
	// Rows of one class, and half of a fragment.
	e = CompareModel(off(ref, func(row, dim int) float64 { return 0.01 * sign(dim) * float64(1+row%16/15) }), ref, model, false)
	near("one class", e.RowClass.Ratio, 2)
	near("the mean with one class", e.Mean.Ratio, 1+1.0/16)
	if e.RowClass.Where != "15 mod 16" {
		t.Errorf("the class is %q", e.RowClass.Where)
	}
	for class, want := range map[int]string{3: "3 mod 16", 16: "0 to 7 mod 16", 17: "8 to 15 mod 16"} {
		if got := classText(class); got != want {
			t.Errorf("class %d is %q, want %q", class, got, want)
		}
	}
	// The nearest of several models counts.
	double := off(ref, func(_, dim int) float64 { return 0.02 * sign(dim) })
	model.Outs = append(model.Outs, double)
	near("the mean over two models", CompareModel(double, ref, model, false).Mean.Ratio, 1)
	// Only the rows of the model are compared.
	some := &Model{Rows: Rows{1, 18}, Outs: [][]float64{model.Outs[0][:16]}}
	e = CompareModel(off(ref, func(row, dim int) float64 { return 0.01 * sign(dim) * float64(row%3) }), ref, some, false)
	near("the mean of two rows", e.Mean.Ratio, 0.5)
	if e.Rows != 2 || e.RowClass.Where != "1 mod 16" {
		t.Errorf("got %+v", e)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		if e := CompareModel(off(ref, func(int, int) float64 { return bad }), ref, model, true); e != nil {
			t.Errorf("an output of %g is compared: %+v", bad, e)
		}
	}
}

// A class of keys that gains what the others lose stands out, in the sum over all rows.
func TestCompareKeys(t *testing.T) {
	ref, model := study(64, 8)
	e := CompareModel(off(ref, func(_, dim int) float64 {
		if dim == 5 {
			return -0.02
		}
		return 0.02 / 7
	}), ref, model, true)
	if k := e.KeyClass; k.Class != 5 || math.Abs(k.Deviation-0.02) > 1e-9 || math.Abs(k.Slack-5*0.026/8/math.Sqrt(8)) > 1e-9 {
		t.Errorf("got %+v", k)
	}
	// A class without a key has no weight.
	for i := 3; i < len(ref.Out); i += 8 {
		ref.Out[i], model.Outs[0][i] = 0, 0
	}
	if e := CompareModel(ref.Out, ref, model, true); e.KeyClass.Deviation != 0 {
		t.Errorf("got %+v", e.KeyClass)
	}
	if e := CompareModel(off(ref, func(int, int) float64 { return 0.1 }), ref, model, true); e.KeyClass.Class != 3 || e.KeyClass.Deviation < 1e9 {
		t.Errorf("weight of a class without a key: got %+v", e.KeyClass)
	}
}

// Where the model is exact, a kernel may be off by a truncation.
func TestExactModelAllowsTruncation(t *testing.T) {
	ref, model := study(64, 8)
	model.Outs[0] = ref.Out
	e := CompareModel(off(ref, func(int, int) float64 { return 0x1p-12 }), ref, model, false)
	if math.Abs(e.Mean.Ratio-1) > 1e-9 || math.Abs(e.WorstRow.Ratio-1) > 1e-9 {
		t.Errorf("got %+v", e)
	}
}

// The largest error of rows that differ much is a matter of chance: on peaked scores it is the
// rounding of a single exponential.
func TestSlackOfTheWorstRow(t *testing.T) {
	ref, model := study(64, 8)
	for i := range model.Outs[0] {
		model.Outs[0][i] = 1 + 0.01*float64(i/8%4/3) // one row of four
	}
	e := CompareModel(ref.Out, ref, model, false)
	if want := 3 * math.Sqrt2 * math.Sqrt(3.0/16); math.Abs(e.WorstRow.Slack-want) > 0.05 {
		t.Errorf("the slack is %g, want %g", e.WorstRow.Slack, want)
	}
}

// Under a mask the first keys have their weight in few rows, so that chance counts more.
func TestCompareKeysUnderAMask(t *testing.T) {
	ref, model := study(64, 64)
	ref.Shape.Causal = true
	for i := range ref.Out {
		ref.Out[i] = 0
		if row, key := i/64, i%64; key <= row {
			ref.Out[i] = 1 / float64(row+1)
		}
	}
	model.Outs[0] = ref.Out
	slack := func(class int) float64 {
		k := CompareModel(off(ref, func(_, dim int) float64 {
			if dim == class {
				return 1
			}
			return 0
		}), ref, model, true).KeyClass
		if k.Class != class {
			t.Fatalf("class %d stands out, want %d", k.Class, class)
		}
		return k.Slack
	}
	if first, last := slack(0), slack(60); first < 5*0.026/5 || last < 5*0.026/2.1 {
		t.Errorf("slacks of %g and %g", first, last)
	}
}
