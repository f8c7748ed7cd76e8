package attention

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/fp8"
	"attune/internal/gate"
	"attune/internal/half"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
)

// A wrong log-sum-exp is an error even if O is right.
func TestLSEIsChecked(t *testing.T) {
	in := tensor.Draw(parse(t, "1x2x33x64:kv=20:causal"), 0, tensor.Options{})
	answer, err := oracle.Compute(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	launch := toolchain.Launch{LSE: toolchain.LSEInFP32}
	tolerance := spec.Tolerance{MaxErr: 0.06, MeanErr: 0.02, Atol: 0.06, Rtol: 0.06, BadFraction: 0.01}
	check := func(what string, change func(lse []float64), want string) {
		t.Helper()
		lse := slices.Clone(answer.LSE)
		change(lse)
		outcome := &device.Outcome{Outputs: make([][]byte, 2)}
		for _, x := range answer.Out {
			outcome.Outputs[0] = binary.LittleEndian.AppendUint16(outcome.Outputs[0], uint16(half.Float16FromFloat64(x)))
		}
		for _, x := range lse {
			outcome.Outputs[1] = binary.LittleEndian.AppendUint32(outcome.Outputs[1], math.Float32bits(float32(x)))
		}
		ref := &reference{problem: New(&spec.Kernel{Tolerance: tolerance}), inputs: in, want: answer}
		off, err := ref.Compare(problem.Build{Image: &toolchain.Image{Record: toolchain.Record{Launch: launch}}}, outcome.Outputs)
		if err != nil {
			t.Fatal(err)
		}
		_, wrong := ref.limits(launch, off, 1)
		if got := strings.Join(wrong, "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("right", func([]float64) {}, "")
	check("one is off", func(lse []float64) { lse[65] += 0.2 }, "at batch 0 head 1 row 32: got")
	check("all in another base", func(lse []float64) {
		for i := range lse {
			lse[i] /= math.Ln2
		}
	}, "lse: max_err")
	check("rows that see no key have zeros", func(lse []float64) { clear(lse[:13]) }, "lse: 13 rows are not finite, or are finite instead of minus infinity")
}

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
	if testing.Short() {
		t.Skip("takes a second or more")
	}
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
	p := New(&spec.Kernel{Tolerance: spec.Tolerance{MaxErr: 0.06, MeanErr: 0.02, Atol: 0.06, Rtol: 0.06, BadFraction: 0.01}})
	refs := p.References(problem.Options{MaxWork: math.Inf(1)})
	v := newExact(t)
	all := append(p.Instances(shape, []uint64{0}), p.Studies(v, shape, []uint64{0})...)
	if len(all) != 8 {
		t.Fatalf("%d problems, want 8: three kinds of inputs and five that study exponentials", len(all))
	}
	for _, kind := range kinds {
		var exact, approximate, errs []string
		for _, i := range all {
			ref := model(t, p, refs, i, v)
			off, err := ref.Compare(problem.Build{Variant: v, Image: &toolchain.Image{}}, [][]byte{kind.kernel.output(ref.inputs)})
			if err != nil {
				t.Fatal(err)
			}
			e := off.Exponentials
			collect := func(into *[]string, wrong []string) {
				for _, text := range wrong {
					*into = append(*into, i.Inputs+": "+strings.TrimPrefix(text, "exponentials: "))
				}
			}
			collect(&exact, gate.ExponentialErrors(e, gate.LimitsOfExponentials(spec.ExactExponentials, false)))
			collect(&approximate, gate.ExponentialErrors(e, gate.LimitsOfExponentials(spec.ApproximateExponentials, false)))
			_, wrong := ref.limits(toolchain.Launch{}, off, 1)
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

// A selection may approximate half of the exponentials: 1.10x of the error of exact ones, and 1.2x
// on near-uniform rows.
func TestSelectionsMayApproximateHalf(t *testing.T) {
	p := New(&spec.Kernel{Tolerance: spec.Tolerance{MaxErr: 0.06, MeanErr: 0.02, Atol: 0.06, Rtol: 0.06, BadFraction: 0.01}})
	refs := p.References(problem.Options{MaxWork: math.Inf(1)})
	v := variant(t, "stage7b")
	if v.Exponentials() != spec.ApproximateExponentials {
		t.Fatalf("stage7b has %q exponentials, want approximate ones", v.Exponentials())
	}
	half := modelled{exp2: mix(linear, func(row, key int) bool { return (row/8+key/8)%2 == 0 })}
	all := modelled{exp2: mix(linear, func(int, int) bool { return true })}
	for _, test := range []struct {
		inputs string
		kernel modelled
		want   string
	}{
		{"normal", half, ""},
		{"uniform", half, ""},
		{"normal", all, "1.100x is allowed"},
	} {
		ref := model(t, p, refs, problem.Instance{Shape: parse(t, "1x4x256x64"), Inputs: test.inputs}, v)
		b := problem.Build{Variant: v, Selected: true, Image: &toolchain.Image{}}
		off, err := ref.Compare(b, [][]byte{test.kernel.output(ref.inputs)})
		if err != nil {
			t.Fatal(err)
		}
		_, wrong := ref.Judge(b, off, 1)
		if got := strings.Join(wrong, "; "); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", test.inputs, got, test.want)
		}
	}
}

// newExact is a variant with exact exponentials.
func newExact(t *testing.T) spec.Variant {
	t.Helper()
	v := variant(t, "stage6")
	if v.Exponentials() != spec.ExactExponentials {
		t.Fatalf("stage6 has %q exponentials, want exact ones", v.Exponentials())
	}
	return v
}

// model computes a reference with the model of a variant.
func model(t *testing.T, p *Problem, refs problem.References, i problem.Instance, v spec.Variant) *reference {
	t.Helper()
	ref, err := refs.Get(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Model(t.Context(), ref, v); err != nil {
		t.Fatal(err)
	}
	return ref.(*reference)
}

// A reference of a large shape has a sample of the rows. The model has some of these, and an
// approximation of a few rows is found in it too.
func TestModelOfASample(t *testing.T) {
	if testing.Short() {
		t.Skip("computes references of 2,048 keys")
	}
	p := New(&spec.Kernel{Tolerance: spec.Tolerance{MaxErr: 0.06, MeanErr: 0.02, Atol: 0.06, Rtol: 0.06, BadFraction: 0.01}})
	v := newExact(t)
	i := problem.Instance{Shape: parse(t, "1x1x2048x64"), Inputs: "uniform"}
	ref := model(t, p, p.References(problem.Options{MaxWork: 5e8, Secret: 7}), i, v)
	if whole, some := len(ref.want.Rows), len(ref.exactRows); some == 0 || some >= whole {
		t.Fatalf("the model has %d of the %d sampled rows, want some of them", some, whole)
	}
	for want, kernel := range map[string]modelled{
		"":                                 {},
		"the error of rows 8 to 15 mod 16": {exp2: mix(linear, func(row, _ int) bool { return row%16 >= 8 })},
	} {
		off, err := ref.Compare(problem.Build{Variant: v, Image: &toolchain.Image{}}, [][]byte{kernel.output(ref.inputs)})
		if err != nil {
			t.Fatal(err)
		}
		wrong := strings.Join(gate.ExponentialErrors(off.Exponentials, gate.LimitsOfExponentials(spec.ExactExponentials, false)), "; ")
		if (wrong == "") != (want == "") || !strings.Contains(wrong, want) {
			t.Errorf("got %q, want %q", wrong, want)
		}
		if _, errs := ref.limits(toolchain.Launch{}, off, 1); len(errs) > 0 {
			t.Errorf("over the limits of the errors: %v", errs)
		}
	}
}

// BF16 outputs are compared with a model that rounds to BF16.
func TestExponentialsOfBF16(t *testing.T) {
	p := New(&spec.Kernel{})
	refs := p.References(problem.Options{MaxWork: math.Inf(1)})
	ref := model(t, p, refs, problem.Instance{Shape: parse(t, "1x1x64x64"), Inputs: "peaked"}, newExact(t))
	var out []byte
	for _, x := range ref.want.Out {
		out = binary.LittleEndian.AppendUint16(out, uint16(half.BFloat16FromFloat32(float32(x))))
	}
	e := ref.compareExponentials(toolchain.Launch{Output: toolchain.BF16}, [][]byte{out})
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
