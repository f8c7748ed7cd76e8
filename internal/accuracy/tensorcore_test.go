package accuracy

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"attune/internal/oracle"
	"attune/internal/tensor"
)

// An instruction keeps 13 bits below the largest addend of each of its addends, and a step ends
// after 256 keys.
func TestTensorCoreSum(t *testing.T) {
	weights := func(first float32, rest ...float32) []float32 { return append([]float32{first}, rest...) }
	for _, test := range []struct {
		name    string
		weights []float32
		want    float32
	}{
		{"nothing", nil, 0},
		{"zeros", make([]float32, 40), 0},
		{"exact", weights(256, 1, 0.5), 257.5},
		{"the last bit that stays", weights(256, 0x1p-5), 256 + 0x1p-5},
		{"the first that is lost", weights(256, 0x1p-6, 0x1p-6), 256},
		{"each addend by itself", weights(256, slices.Repeat([]float32{0x3p-6}, 31)...), 256 + 31*0x1p-5},
		{"relative to the accumulator", weights(256, slices.Repeat([]float32{0x1p-6}, 40)...), 256},
		{"a new step", append(weights(256, make([]float32, 255)...), 0x1p-6), 256 + 0x1p-6},
	} {
		if got := tensorCoreSum(test.weights); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
	sums := make([]float32, 2)
	newAccumulator(2).add(sums, []float32{2, 0x1p-13}, []float32{-1, 1, -1, 1})
	if want := []float32{-2, 2}; !slices.Equal(sums, want) {
		t.Errorf("two columns give %v, want %v", sums, want)
	}
}

func TestPowersOfTwo(t *testing.T) {
	for n, want := range map[int]float32{0: 1, -3: 0.125, 140: 0x1p127, -140: 0x1p-126} {
		if got := powerOfTwo(n); got != want {
			t.Errorf("2^%d is %v, want %v", n, got, want)
		}
	}
}

// The three row sums: on ones, a sum of the rounded P gives 1; a sum before rounding does not. A
// row that sees no key is zero.
func TestExactExponentials(t *testing.T) {
	shape := mustShape(t, "1x2x40x64:kv=33:causal")
	in := tensor.Draw(shape, 1, tensor.Options{Distribution: tensor.Ones})
	outs, err := ExactExponentials(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	largest := make([]float64, len(outs))
	for kind, out := range outs {
		for i, x := range out {
			if shape.Visible(i/64%40) == 0 {
				if x != 0 {
					t.Fatalf("row %d sees no key and is %g", i/64, x)
				}
				continue
			}
			largest[kind] = max(largest[kind], math.Abs(x-1))
		}
	}
	if largest[0] > 1e-3 || largest[1] > 1e-3 || largest[2] < 0.01 || largest[2] > 0.0625 {
		t.Errorf("errors of %v; want nearly none for sums of the rounded P, and that of E4M3 for the other", largest)
	}
	// On other inputs it is the model of E4M3, whose sums are exact.
	in = tensor.Draw(shape, 1, tensor.Options{})
	rows := oracle.Rows{8, 20, 50}
	if outs, err = ExactExponentials(t.Context(), in, rows); err != nil {
		t.Fatal(err)
	}
	ideal, err := E4M3(t.Context(), in, rows)
	if err != nil {
		t.Fatal(err)
	}
	if e := errorsOf(outs[1], ideal, 64); e.MaxErr > 2e-3 {
		t.Errorf("the model with tensor cores differs by %g from that without", e.MaxErr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ExactExponentials(ctx, in, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
