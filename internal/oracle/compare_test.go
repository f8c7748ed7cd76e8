package oracle

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/fp8"
	"attune/internal/tensor"
)

func TestComputeUsesQuantisedInputs(t *testing.T) {
	shape := mustShape(t, "2x2x33x16:kv=50:causal")
	in := tensor.Draw(shape, 0, tensor.Options{})
	ref, err := Compute(context.Background(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	widen := func(tensor tensor.Tensor) (codes, originals []float64) {
		heads := len(tensor.Descale)
		for i, code := range tensor.Codes {
			descale := float64(tensor.Descale[i*heads/len(tensor.Codes)])
			codes = append(codes, float64(fp8.E4M3(code).Float32())*descale)
			originals = append(originals, float64(tensor.Original[i]))
		}
		return codes, originals
	}
	quantised, original := problem{shape: shape}, problem{shape: shape}
	quantised.q, original.q = widen(in.Q)
	quantised.k, original.k = widen(in.K)
	quantised.v, original.v = widen(in.V)
	want := quantised.naive()
	if diff := difference(ref.Out, want, 1e-13); diff != "" {
		t.Errorf("out: %s", diff)
	}
	if ref.Shape != shape {
		t.Errorf("shape %v, want %v", ref.Shape, shape)
	}
	largest, sum := 0.0, 0.0
	for i, exact := range original.naive() {
		largest = math.Max(largest, math.Abs(want[i]-exact))
		sum += math.Abs(want[i] - exact)
	}
	wantCost := ErrorSize{Max: largest, Mean: sum / float64(len(want))}
	if diff := cmp.Diff(wantCost, ref.InputError, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("input cost (-want +got):\n%s", diff)
	}
	if ref.InputError.Mean < 1e-3 || ref.InputError.Max > 0.5 {
		t.Errorf("input cost %+v is implausible for three mantissa bits", ref.InputError)
	}
}

// Inputs that E4M3 represents exactly have no quantisation error.
func TestExactInputsHaveNoError(t *testing.T) {
	in := &tensor.Inputs{Shape: mustShape(t, "1x1x2x2")}
	for _, into := range []*tensor.Tensor{&in.Q, &in.K, &in.V} {
		*into = tensor.Quantize([]float32{448, -1, 0.5, 13}, 1, fp8.PerHead)
	}
	ref, err := Compute(context.Background(), in, nil)
	if err != nil || ref.InputError != (ErrorSize{}) {
		t.Errorf("input cost %+v, %v", ref.InputError, err)
	}
}

// stopAfter is a context that is cancelled after a number of calls to Err.
type stopAfter struct {
	context.Context
	calls int
}

func (s *stopAfter) Err() error {
	if s.calls--; s.calls < 0 {
		return context.Canceled
	}
	return nil
}

func (s *stopAfter) Value(any) any { return nil }

func TestComputeStopsWhenCancelled(t *testing.T) {
	in := tensor.Draw(mustShape(t, "1x1x8x8"), 0, tensor.Options{})
	// With one task, Compute calls Err before the task, for its block of keys and at the end; then
	// the same again for the original values.
	for calls := range 6 {
		if _, err := Compute(&stopAfter{context.Background(), calls}, in, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled after %d calls: error %v", calls, err)
		}
	}
	if _, err := Compute(&stopAfter{context.Background(), 6}, in, nil); err != nil {
		t.Errorf("cancelled after the last call: error %v", err)
	}
}

func reference(t *testing.T) *Reference {
	shape := mustShape(t, "2x3x4x5")
	ref := &Reference{Shape: shape, Out: make([]float64, 120)}
	for i := range ref.Out {
		ref.Out[i] = math.Sin(float64(i)) * 2
	}
	return ref
}

func TestCompareEqual(t *testing.T) {
	ref := reference(t)
	got, err := Compare(ref.Out, ref, Tolerance{})
	want := Errors{Cosine: 1, Worst: Worst{Got: ref.Out[0], Want: ref.Out[0]}}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-15)); err != nil || diff != "" {
		t.Errorf("errors (-want +got):\n%s%v", diff, err)
	}
}

func TestComparePlantedErrors(t *testing.T) {
	ref := reference(t)
	out := slices.Clone(ref.Out)
	at := ((1*3+2)*4+3)*5 + 1 // batch 1 head 2 row 3 dim 1
	out[at] += 0.5
	out[7] -= 0.25
	out[9] += 0.001 // within the tolerance
	got, err := Compare(out, ref, Tolerance{Abs: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	want := Errors{
		MaxErr: 0.5, MeanErr: 0.751 / 120, Bad: 2, BadFraction: 2.0 / 120,
		Cosine: got.Cosine,
		Worst:  Worst{Place: Place{Batch: 1, Head: 2, Row: 3, Dim: 1}, Got: out[at], Want: ref.Out[at]},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if got.Worst.String() != "batch 1 head 2 row 3 dim 1" {
		t.Errorf("place %q", got.Worst)
	}
	if !(got.Cosine < 0.9999 && got.Cosine > 0.99) {
		t.Errorf("cosine %v", got.Cosine)
	}
}

// An element is bad if its error exceeds abs + rel·|want|, not if it equals that.
func TestCompareTolerance(t *testing.T) {
	ref := &Reference{Shape: mustShape(t, "1x1x1x4"), Out: []float64{0, -8, 0, -8}}
	got, err := Compare([]float64{0.5, -9.5, 0.50001, -6.49}, ref, Tolerance{Abs: 0.5, Rel: 0.125})
	if err != nil || got.Bad != 2 || got.BadFraction != 0.5 {
		t.Errorf("%d bad, fraction %v, %v; want the last two", got.Bad, got.BadFraction, err)
	}
}

func TestCompareNonFinite(t *testing.T) {
	ref := reference(t)
	out := slices.Clone(ref.Out)
	out[23], out[24], out[25] = math.NaN(), math.Inf(1), math.Inf(-1)
	out[60] += 0.5
	got, err := Compare(out, ref, Tolerance{Abs: 1, Rel: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := Errors{
		MaxErr: 0.5, MeanErr: 0.5 / 117, Bad: 3, BadFraction: 3.0 / 120, NonFinite: 3,
		Cosine:         got.Cosine,
		Worst:          Worst{Place: Place{Batch: 1}, Got: out[60], Want: ref.Out[60]},
		FirstNonFinite: &Place{Head: 1, Dim: 3},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `"non_finite":3,"worst":{"batch":1,"head":0,"row":0,"dim":0,"got":`) {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}

func TestCompareNothingFinite(t *testing.T) {
	ref := &Reference{Shape: mustShape(t, "1x1x1x2"), Out: []float64{1, math.NaN()}}
	got, err := Compare([]float64{math.NaN(), 1}, ref, Tolerance{})
	want := Errors{Bad: 2, BadFraction: 1, NonFinite: 2, FirstNonFinite: &Place{}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("errors (-want +got):\n%s%v", diff, err)
	}
}

func TestCompareCosine(t *testing.T) {
	shape := mustShape(t, "1x1x1x2")
	for _, test := range []struct {
		got, want []float64
		cosine    float64
	}{
		{[]float64{2, 0}, []float64{1, 0}, 1},
		{[]float64{-2, -4}, []float64{1, 2}, -1},
		{[]float64{0, 3}, []float64{5, 0}, 0},
		{[]float64{1, 1}, []float64{1, 0}, math.Sqrt2 / 2},
		{[]float64{0, 0}, []float64{0, 0}, 1},
		{[]float64{0, 0}, []float64{1, 0}, 0},
		{[]float64{1, 0}, []float64{0, 0}, 0},
	} {
		got, err := Compare(test.got, &Reference{Shape: shape, Out: test.want}, Tolerance{})
		if err != nil || math.Abs(got.Cosine-test.cosine) > 1e-15 || math.Abs(got.Cosine) > 1 {
			t.Errorf("cosine of %v and %v is %v, want %v", test.got, test.want, got.Cosine, test.cosine)
		}
	}
}

// Rounding must not make a cosine exceed 1.
func TestCompareCosineIsAtMostOne(t *testing.T) {
	shape := mustShape(t, "1x1x1x2")
	for i := range 1000 {
		same := []float64{float64(i) / 7, 1.0 / 3}
		got, err := Compare(same, &Reference{Shape: shape, Out: same}, Tolerance{})
		if err != nil || got.Cosine > 1 {
			t.Fatalf("cosine of %v and itself is %v, %v", same, got.Cosine, err)
		}
	}
}

func TestCompareLength(t *testing.T) {
	ref := reference(t)
	_, err := Compare(ref.Out[1:], ref, Tolerance{})
	if err == nil || !strings.Contains(err.Error(), "output for 2x3x4x5 has 119 elements, want 120") {
		t.Errorf("error %v", err)
	}
}

func TestCompareLSE(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	ref := &Reference{Shape: mustShape(t, "2x1x3x8"), LSE: []float64{1, 2, 3, -inf, 5, 6}}
	check := func(what string, got []float64, want LSEErrors) {
		t.Helper()
		found, err := CompareLSE(got, ref)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if _, err := json.Marshal(found); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	first := Worst{Got: 1, Want: 1}
	check("equal", []float64{1, 2, 3, -inf, 5, 6}, LSEErrors{Worst: first})
	check("with errors", []float64{1, 2.25, 3, -inf, 4, 6}, LSEErrors{
		MaxErr: 1, MeanErr: 0.25, Worst: Worst{Place: Place{Batch: 1, Row: 1}, Got: 4, Want: 5},
	})
	check("finite where no key is seen", []float64{1, 2, 3, 4, 5, 6}, LSEErrors{Worst: first, NonFinite: 1, FirstNonFinite: &Place{Batch: 1}})
	check("wrong sign of infinity", []float64{1, 2, 3, inf, 5, 6}, LSEErrors{Worst: first, NonFinite: 1, FirstNonFinite: &Place{Batch: 1}})
	check("infinite where keys are seen", []float64{1, -inf, nan, -inf, 5, 6}, LSEErrors{Worst: first, NonFinite: 2, FirstNonFinite: &Place{Row: 1}})
	check("nothing but NaN", []float64{nan, nan, nan, nan, nan, nan}, LSEErrors{NonFinite: 6, FirstNonFinite: &Place{}})
	if _, err := CompareLSE([]float64{1}, ref); err == nil || err.Error() != "lse for 2x1x3x8 has 1 elements, want 6" {
		t.Errorf("error %v", err)
	}
}

// Reach is the largest product of the lengths of a query and a key of the same group.
func TestReach(t *testing.T) {
	in := tensor.Draw(mustShape(t, "1x2x3x4:kv=2:kvheads=1"), 0, tensor.Options{})
	ref, err := Compute(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	q, k := make([]float64, 3*4), make([]float64, 2*4)
	longest := func(values []float64) (length float64) {
		for row := range slices.Chunk(values, 4) {
			length = max(length, math.Hypot(math.Hypot(row[0], row[1]), math.Hypot(row[2], row[3])))
		}
		return length
	}
	in.K.Dequantize(k, 0, 0)
	want := 0.0
	for head := range 2 {
		in.Q.Dequantize(q, head, 0)
		want = max(want, longest(q)*longest(k)/2)
	}
	if math.Abs(ref.ScoreBound-want) > 1e-12 {
		t.Errorf("reach %v, want %v", ref.ScoreBound, want)
	}
}
