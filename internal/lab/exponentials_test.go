package lab

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/fp8"
	"attune/internal/gate"
	"attune/internal/half"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// modelled is a kernel on the host that rounds P to E4M3.
type modelled struct {
	step     int                                   // keys of a step; 0 for all
	exp2     func(x float64, row, key int) float64 // nil for exact ones
	exactSum bool                                  // the row sum adds P before it is rounded
}

// linear is the chord of 2^x between two powers of two, shifted to be unbiased.
func linear(x float64) float64 {
	y := x - 0.0575
	floor := math.Floor(y)
	return math.Ldexp(1+y-floor, int(floor))
}

// twoSegments is the sum of two such chords, half an octave apart.
func twoSegments(x float64) float64 { return linear(x-1) + math.Sqrt2/2*linear(x-0.5) }

// output is the output in FP16.
func (m modelled) output(in *tensor.Inputs) []byte {
	s := in.Shape
	q, k, v := make([]float64, s.SeqQ*s.HeadDim), make([]float64, s.SeqK*s.HeadDim), make([]float64, s.SeqK*s.HeadDim)
	var out []byte
	for head := range s.HeadCount() {
		in.Q.Dequantize(q, head, 0)
		in.K.Dequantize(k, head/s.Group(), 0)
		in.V.Dequantize(v, head/s.Group(), 0)
		for row := range s.SeqQ {
			for _, x := range m.row(row, q[row*s.HeadDim:][:s.HeadDim], k[:s.Visible(row)*s.HeadDim], v) {
				out = binary.LittleEndian.AppendUint16(out, uint16(half.Float16FromFloat64(x)))
			}
		}
	}
	return out
}

// row computes one row by online softmax.
func (m modelled) row(row int, q, k, v []float64) []float64 {
	dims, keys := len(q), len(k)/len(q)
	out, sum, rowMax := make([]float64, dims), 0.0, math.Inf(-1)
	step := m.step
	if step == 0 {
		step = keys
	}
	for first := 0; first < keys; first += step {
		scores, before := make([]float64, min(step, keys-first)), rowMax
		for i := range scores {
			for dim, x := range q {
				scores[i] += x * k[(first+i)*dims+dim]
			}
			scores[i] *= math.Log2E / math.Sqrt(float64(dims))
			rowMax = max(rowMax, scores[i])
		}
		rescale := math.Exp2(before - rowMax)
		sum *= rescale
		for dim := range out {
			out[dim] *= rescale
		}
		for i, score := range scores {
			p := math.Exp2(score - rowMax)
			if m.exp2 != nil {
				p = m.exp2(score-rowMax, row, first+i)
			}
			rounded := float64(fp8.E4M3FromFloat64(256 * p).Float32())
			if m.exactSum {
				sum += 256 * p
			} else {
				sum += rounded
			}
			for dim := range out {
				out[dim] += rounded * v[(first+i)*dims+dim]
			}
		}
	}
	for dim := range out {
		out[dim] /= sum
	}
	return out
}

// mix is one approximation where it applies and exact elsewhere.
func mix(approximation func(float64) float64, applies func(row, key int) bool) func(float64, int, int) float64 {
	return func(x float64, row, key int) float64 {
		if applies(row, key) {
			return approximation(x)
		}
		return math.Exp2(x)
	}
}

// The gate tells exact exponentials from approximated ones, and from those of some rows, of some
// keys, or above a threshold. The limits of the errors alone find the last of them on the inputs
// that study exponentials, and none on other inputs.
func TestGateTellsExponentials(t *testing.T) {
	shape := shapes(t, "1x4x128x64")
	everywhere := func(int, int) bool { return true }
	checkerboard := func(row, key int) bool { return (row/8+key/8)%2 == 0 }
	drop := func(below float64) func(float64) float64 {
		return func(x float64) float64 {
			if p := math.Exp2(x); p >= below {
				return p
			}
			return 0
		}
	}
	kinds := []struct {
		name        string
		kernel      modelled
		exact       string // inputs and part of what is wrong with it as an exact kernel; empty if nothing is
		approximate bool   // it passes as an approximate one
	}{
		{"exact", modelled{}, "", true},
		{"exact in steps", modelled{step: 64}, "", true},
		{"exact with the sum before rounding", modelled{exactSum: true}, "", true},
		{"two segments in a checkerboard", modelled{exp2: mix(twoSegments, checkerboard)}, "", true},
		{"linear", modelled{exp2: mix(linear, everywhere)}, "normal: the error of all rows", true},
		{"linear in a checkerboard", modelled{exp2: mix(linear, checkerboard), step: 64}, "uniform: the error of all rows", true},
		{"linear in half of the rows", modelled{exp2: mix(linear, func(row, _ int) bool { return row%16 >= 8 })}, "normal: the error of rows 8 to 15 mod 16", true},
		{"linear in a quarter of the keys", modelled{exp2: mix(linear, func(_, key int) bool { return key/8%4 == 0 }), step: 64}, "uniform: the weight of keys", true},
		{"nothing below 2^-9", modelled{exp2: mix(drop(0x1p-9), everywhere)}, "sink9: the error of all rows", false},
		{"nothing below 2^-12", modelled{exp2: mix(drop(0x1p-12), everywhere)}, "sink9: the error of all rows", false},
	}
	refs := newReferences()
	v := newExact(t)
	all := append(problems(shape, []uint64{0}), studies(shape, []uint64{0})...)
	if len(all) != 8 {
		t.Fatalf("%d problems, want 8: three kinds of inputs and five that study exponentials", len(all))
	}
	for _, kind := range kinds {
		var exact, approximate, errs []string
		for _, p := range all {
			ref, err := refs.get(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if err := refs.model(t.Context(), ref, v); err != nil {
				t.Fatal(err)
			}
			written := [][]byte{kind.kernel.output(ref.inputs)}
			off, err := compareOutputs(ref, toolchain.Launch{}, written, spec.Tolerance{Atol: 0.06, Rtol: 0.06})
			if err != nil {
				t.Fatal(err)
			}
			e := compareExponentials(ref, toolchain.Launch{}, written)
			collect := func(into *[]string, wrong []string) {
				for _, text := range wrong {
					*into = append(*into, p.inputs.String()+": "+strings.TrimPrefix(text, "exponentials: "))
				}
			}
			collect(&exact, gate.ExponentialErrors(e, gate.LimitsOfExponentials(spec.ExactExponentials, false)))
			collect(&approximate, gate.ExponentialErrors(e, gate.LimitsOfExponentials(spec.ApproximateExponentials, false)))
			_, wrong := applyLimits(ref, toolchain.Launch{}, off, nil, 1, spec.Tolerance{MaxErr: 0.06, MeanErr: 0.02, BadFraction: 0.01})
			collect(&errs, wrong)
		}
		found := strings.Join(exact, "\n  ")
		if kind.exact == "" && found != "" || !strings.Contains(found, kind.exact) {
			t.Errorf("%s: want %q as exact exponentials, got\n  %s", kind.name, kind.exact, found)
		}
		if kind.approximate != (len(approximate) == 0) {
			t.Errorf("%s: passes as approximate: want %t, got\n  %s", kind.name, kind.approximate, strings.Join(approximate, "\n  "))
		}
		if kind.approximate != (len(errs) == 0) {
			t.Errorf("%s: within the limits of the errors: want %t, got\n  %s", kind.name, kind.approximate, strings.Join(errs, "\n  "))
		}
		for _, text := range errs {
			if inputs, _, _ := strings.Cut(text, ":"); inputs == "normal" || inputs == "outliers" || inputs == "peaked" {
				t.Errorf("%s: the errors on other inputs find it too: %s", kind.name, text)
			}
		}
	}
}

// newExact is a variant with exact exponentials.
func newExact(t *testing.T) spec.Variant {
	t.Helper()
	v := newSetup(t).variant("stage6")
	if v.Exponentials() != spec.ExactExponentials {
		t.Fatalf("stage6 has %q exponentials, want exact ones", v.Exponentials())
	}
	return v
}

// BF16 outputs are compared with a model that rounds to BF16.
func TestExponentialsOfBF16(t *testing.T) {
	refs := newReferences()
	ref, err := refs.get(t.Context(), problem{shapes(t, "1x1x64x64")[0], 0, tensor.Peaked})
	if err != nil {
		t.Fatal(err)
	}
	if err := refs.model(t.Context(), ref, newExact(t)); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, x := range ref.want.Out {
		out = binary.LittleEndian.AppendUint16(out, uint16(half.BFloat16FromFloat32(float32(x))))
	}
	e := compareExponentials(ref, toolchain.Launch{Output: toolchain.BF16}, [][]byte{out})
	if e.Mean.Ratio > 1 || e.Mean.Ratio < 0.3 {
		t.Errorf("the error of rounding to BF16 alone is %.2f of that of the model, which rounds P too", e.Mean.Ratio)
	}
}

// A study takes the requested shape with the most rows that is not too large, or one of its own.
func TestStudyShape(t *testing.T) {
	check := func(want string, requested ...string) {
		t.Helper()
		got := "none"
		if shape, ok := studyShape(shapes(t, requested...)); ok {
			got = shape.String()
		}
		if got != want {
			t.Errorf("%v: studied on %s, want %s", requested, got, want)
		}
	}
	check("none", "1x1x32x64", "1x1x33x64", "1x2x64x64:kv=33")
	check("1x1x72x64:causal", "1x1x33x64", "1x1x72x64:causal")
	check("1x8x128x64", "1x1x72x64:causal", "1x8x128x64", "1x1x128x64", "1x8x512x64")
	check("1x1x512x64", "1x8x512x64")
	check("1x1x512x128", "1x1x40x128", "2x8x2048x128:causal")
	check("1x1x64x64", "1x8x512x64", "1x1x64x64")
}

// The study of a part with a shape of its own comes behind the part's last shape.
func TestRowsOfStudies(t *testing.T) {
	part := &run.Run{
		Requested:   run.Requested{Shapes: []string{"1x8x512x64", "2x8x512x64"}},
		Correctness: []run.Correctness{{Shape: "1x8x512x64"}, {Shape: "2x8x512x64"}, {Shape: "1x1x512x64"}},
	}
	for shape, want := range map[string][]string{"1x8x512x64": {"1x8x512x64"}, "2x8x512x64": {"2x8x512x64", "1x1x512x64"}} {
		var got []string
		for _, row := range rowsOf(part, shape) {
			got = append(got, row.Shape)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the rows of %v, want %v", shape, got, want)
		}
	}
}

// A systematic error of half a percent is within the limits of the errors, and more than exact
// exponentials have where one key has all the weight. The same code in another variant is judged by
// the same comparison.
func TestRunComparesExponentials(t *testing.T) {
	s := newSetup(t)
	s.declare("stage6", behaviour{output: func(out []byte) {
		for ; len(out) > 0; out = out[2:] {
			x := half.DecodeFloat16(out[:2])[0]
			binary.LittleEndian.PutUint16(out, uint16(half.Float16FromFloat64(1.005*x)))
		}
	}})
	s.declare("stage3b", behaviour{})
	s.declare("stage2", behaviour{})
	r := s.request("stage6", "stage3b")
	r.Shapes, r.Seeds = shapes(t, "1x1x72x64:causal"), []uint64{0}
	if err := s.run(r); err != nil {
		t.Fatal(err)
	}
	first, second := s.runs[0], s.runs[1]
	expectOutcome(t, first, incorrect)
	expectReason(t, first.Reasons.Correctness, "1x1x72x64:causal seed 0 rising: exponentials: the error of all rows is ")
	if first.Requested.Problems != 10 || len(first.Correctness) != 10 || len(second.Correctness) != 5 {
		t.Errorf("%d and %d outputs; want five more for the kernel that rounds P to E4M3", len(first.Correctness), len(second.Correctness))
	}
	for _, row := range first.Correctness {
		if row.Exponentials == nil || row.Exponentials.Rows != 72 || (row.Exponentials.KeyClass != nil) != (row.Inputs == "uniform") {
			t.Errorf("%s: %+v", row.Inputs, row.Exponentials)
		}
	}
	for _, row := range second.Correctness {
		if row.Exponentials != nil {
			t.Errorf("%s of stage3b: %+v", row.Inputs, row.Exponentials)
		}
	}
}
