package oracle

import (
	"math"
	"testing"

	"attune/internal/tensor"
)

// The inputs that study exponentials have their defining property in float64.
func TestStudiedInputs(t *testing.T) {
	shape, err := tensor.ParseShape("1x2x64x64:kv=256")
	if err != nil {
		t.Fatal(err)
	}
	compute := func(d tensor.Distribution) *Reference {
		t.Helper()
		ref, err := Compute(t.Context(), tensor.Draw(shape, 1, tensor.Options{Distribution: d}), nil)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	for i, x := range compute(tensor.Ones).Out {
		if math.Abs(x-1) > 1e-6 {
			t.Fatalf("ones: element %d is %g, want 1", i, x)
		}
	}
	// The others of 256 keys have e^(1/8)·255 of the sum, the sink has e^6 or e^9.
	for d, sink := range map[tensor.Distribution]float64{tensor.Sink6: math.Exp(6), tensor.Sink9: math.Exp(9)} {
		others := 255 * math.Exp(0.125)
		want := math.Sqrt(2/math.Pi) * others / (others + sink) // |V| is 0.8 in the mean
		mean := 0.0
		ref := compute(d)
		for _, x := range ref.Out {
			mean += x / float64(len(ref.Out))
		}
		if math.Abs(mean/want-1) > 0.05 {
			t.Errorf("%v: outputs are %g in the mean, want %g", d, mean, want)
		}
	}
	// A dominating key has a score of about 10, so the log-sum-exp is hardly more.
	for i, lse := range compute(tensor.Dominant).LSE {
		if lse < 5 || lse > 16 {
			t.Errorf("dominant: the log-sum-exp of row %d is %g, want about 10", i, lse)
		}
	}
	for i, x := range compute(tensor.Uniform).Out {
		if math.Abs(x*64-1) > 0.5 {
			t.Errorf("uniform: a class of four keys has the weight %g in row %d, want 1/64", x, i/64)
		}
	}
}
