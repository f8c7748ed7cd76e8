package accuracy

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/fp8"
	"attune/internal/oracle"
	"attune/internal/tensor"
)

func mustShape(t testing.TB, text string) tensor.Shape {
	t.Helper()
	shape, err := tensor.ParseShape(text)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

func errorsOf(got, want []float64, dims int) Errors {
	var sum tally
	sum.add(got, want, dims)
	return sum.errors()
}

// Without rounding the model matches the oracle to float32 precision: every mask, more and fewer
// keys than queries, odd dims.
func TestUnroundedModelMatchesOracle(t *testing.T) {
	same := func(x float32) float32 { return x }
	for _, text := range []string{"2x3x33x64", "1x2x17x7:kv=40", "1x1x40x64:causal", "1x2x20x64:kv=50:causal", "1x1x50x64:kv=20:causal", "2x4x20x64:kvheads=2"} {
		in := tensor.Draw(mustShape(t, text), 1, tensor.Options{Distribution: tensor.Peaked})
		part := func(values []float32) func([]float32, int) {
			return func(into []float32, head int) { copy(into, values[head*len(into):]) }
		}
		one, both := func(int) float32 { return 1 }, func(int, int) float32 { return 1 }
		a := arithmetic{roundP: same, roundOut: same, scaleP: 4}
		got, _, err := a.attention(t.Context(), in.Shape, nil, operands{part(in.Q.Original), part(in.K.Original), part(in.V.Original), both, one})
		if err != nil {
			t.Fatal(err)
		}
		want, err := oracle.Original(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e := errorsOf(got, want, in.Shape.HeadDim); e.MaxErr > 1e-4 || e.NonFinite > 0 {
			t.Errorf("%s: errors %+v", text, e)
		}
	}
}

// Two keys with equal scores: the output is the mean of two values that BF16 has rounded first.
func TestBF16RoundsInputsAndOutput(t *testing.T) {
	in := &tensor.Inputs{Shape: mustShape(t, "1x1x1x2:kv=2")}
	in.Q.Original = []float32{0, 0}
	in.K.Original = []float32{1, 2, 3, 4}
	// The first value rounds to 1; the mean in the second dim needs one bit too many.
	in.V.Original = []float32{1 + 0x1p-9, 1 + 0x1p-7, 1, 1}
	got, err := BF16(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{1, 1}; !slices.Equal(got, want) {
		t.Errorf("BF16 gives %v, want %v", got, want)
	}
}

// The weights 1 and exp(-x) are scaled by 256 and rounded to E4M3, for P·V and for the row sum.
func TestE4M3RoundsWeights(t *testing.T) {
	in := &tensor.Inputs{Shape: mustShape(t, "1x1x1x1:kv=2")}
	in.Q = tensor.Quantize([]float32{1}, 1, fp8.PerHead)
	// 446 rounds to 448 in E4M3, so that the weights are equal.
	in.K = tensor.Quantize([]float32{448, 446}, 1, fp8.PerHead)
	in.V = tensor.Quantize([]float32{448, 0}, 1, fp8.PerHead)
	got, err := E4M3(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got[0] != 224 {
		t.Errorf("equal weights give %v, want 224", got[0])
	}
	in.K = tensor.Quantize([]float32{448, 416}, 1, fp8.PerHead) // scores 1 apart with this scale
	in.Q.Descale[0] = 1.0 / (448 * 32)
	if got, err = E4M3(t.Context(), in, nil); err != nil {
		t.Fatal(err)
	}
	second := float64(fp8.E4M3FromFloat64(256 * math.Exp(-1)).Float32())
	if want := 448 * 256 / (256 + second); math.Abs(got[0]-want) > 0.2 || second == 256*math.Exp(-1) {
		t.Errorf("weights 256 and %v give %v, want %v", second, got[0], want)
	}
}

// The relative error of each arithmetic: about 2 % for three mantissa bits of P, about 0.4 % for
// seven bits of everything.
func TestRelativeErrors(t *testing.T) {
	in := tensor.Draw(mustShape(t, "1x2x256x64"), 0, tensor.Options{})
	quantized, err := oracle.Quantized(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	original, err := oracle.Original(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, compute func(context.Context, *tensor.Inputs, oracle.Rows) ([]float64, error), want []float64, least, most float64) {
		t.Helper()
		got, err := compute(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e := errorsOf(got, want, 64); e.Relative < least || e.Relative > most {
			t.Errorf("%s: %+v, want a relative error from %v to %v", name, e, least, most)
		}
	}
	check("E4M3, quantised", E4M3, quantized, 0.015, 0.03)
	check("E4M3, original", E4M3, original, 0.04, 0.06)
	check("BF16, original", BF16, original, 0.003, 0.005)
}

// The output for some rows has the bits of the whole output.
func TestModelsOnSomeRows(t *testing.T) {
	in := tensor.Draw(mustShape(t, "2x4x20x16:kv=30:kvheads=2:causal"), 1, tensor.Options{})
	rows := oracle.Rows{0, 3, 19, 20, 60, 159}
	for _, compute := range []func(context.Context, *tensor.Inputs, oracle.Rows) ([]float64, error){BF16, E4M3} {
		whole, err := compute(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		some, err := compute(t.Context(), in, rows)
		if diff := cmp.Diff(oracle.SelectRows(rows, whole, 16), some); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

func TestModelsStop(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	for _, compute := range []func(context.Context, *tensor.Inputs, oracle.Rows) ([]float64, error){BF16, E4M3} {
		if _, err := compute(ctx, tensor.Draw(mustShape(t, "1x1x64x64"), 0, tensor.Options{}), nil); !errors.Is(err, why) {
			t.Errorf("error %v, want %v", err, why)
		}
	}
}

func BenchmarkBF16(b *testing.B) {
	in := tensor.Draw(mustShape(b, "1x2x512x64"), 0, tensor.Options{})
	for b.Loop() {
		if _, err := BF16(context.Background(), in, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(in.Shape.FLOPs()*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
