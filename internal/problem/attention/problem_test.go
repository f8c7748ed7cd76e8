package attention

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

func TestNames(t *testing.T) {
	p := New(nil)
	if p.Name() != "attention" || p.DType(spec.Variant{}) != "e4m3" || p.Allowed() != nil || p.Hints() == nil || !strings.Contains(p.ParameterHelp(), "ATTUNE_OUTPUTS") {
		t.Errorf("%s, %s, %v, %v, %s", p.Name(), p.DType(spec.Variant{}), p.Allowed(), p.Hints(), p.ParameterHelp())
	}
}

func TestCheckShapes(t *testing.T) {
	check := func(v, shape, want string) {
		t.Helper()
		if got := fmt.Sprint(New(nil).CheckShapes(variant(t, v), shapes(t, "1x1x8x64", shape))); !strings.Contains(got, want) {
			t.Errorf("%s on %s: %s, want %s", v, shape, got, want)
		}
	}
	check("stage2", "1x1x9x64", "<nil>")
	check("stage2", "1x1x8x128", "shape 1x1x8x128 has head dim 128, and stage2 is built for 64")
	check("stage2", "70000x2x1x64:kvheads=1", "a grid of grouped heads holds at most 65535 of either")
}

// A variant of twice the head dim has twice the shared memory, and no shape in common.
func TestHeadDimOfVariants(t *testing.T) {
	p, own, wide := New(nil), variant(t, "stage2"), variant(t, "stage6+HEAD_DIM=128+TILE_M=16")
	if !p.Common(own, variant(t, "stage1")) || p.Common(own, wide) {
		t.Error("stage1 and stage2 have head dim 64")
	}
	if got, want := p.Budget(wide).SharedBytes, 2*variant(t, "stage6").Stage().Budget.SharedBytes; got != want {
		t.Errorf("head dim 128 may have %d bytes of shared memory, want %d", got, want)
	}
	if got := p.Budget(own); got != own.Stage().Budget {
		t.Errorf("%+v", got)
	}
}

func TestInstances(t *testing.T) {
	check := func(shape string, want ...string) {
		t.Helper()
		var got []string
		for _, i := range New(nil).Instances(shapes(t, shape), []uint64{3, 4}) {
			got = append(got, fmt.Sprintf("%d %s", i.Seed, i.Inputs))
		}
		if !slices.Equal(got, append([]string{"3 normal", "4 normal", "3 outliers", "3 peaked"}, want...)) {
			t.Errorf("%s: %q", shape, got)
		}
	}
	check("1x1x64x64")
	check("1x1x64x64:causal", "3 rising")
	check("1x1x33x64", "3 rising", "3 low")
	if got := New(nil).Studies(variant(t, "stage2"), shapes(t, "1x1x64x64"), []uint64{0}); got != nil {
		t.Errorf("stage2 does not round P to E4M3: %v", got)
	}
}

func TestWork(t *testing.T) {
	shape := parse(t, "1x2x4x64:kv=8")
	for dtype, want := range map[string]float64{"e4m3": 64 * (8 + 2*16 + 2*8), "fp16": 64 * (2*(8+2*16) + 2*8)} {
		got, err := New(nil).Work(spec.Variant{}, shape, dtype)
		if err != nil || got != (problem.Work{FLOPs: shape.FLOPs(), Bytes: want}) || New(nil).Size(shape) != shape.FLOPs() {
			t.Errorf("%s: %+v, %v; want %g bytes", dtype, got, err, want)
		}
	}
}

// The launch contract is what a launch depends on besides the code.
func TestLaunchContract(t *testing.T) {
	build := func(threads int) problem.Build {
		return problem.Build{Image: &toolchain.Image{Record: toolchain.Record{Launch: toolchain.Launch{Threads: threads, DynamicSharedBytes: 512}}}}
	}
	p := New(nil)
	if narrow, same, wide := p.LaunchKey(build(64)), p.LaunchKey(build(64)), p.LaunchKey(build(128)); narrow != same || narrow == wide {
		t.Error("the key is not that of the contract")
	}
	if bytes, err := p.SharedBytes(build(64), nil); err != nil || bytes != 512 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
}

// A relaunch has inputs of its own, with another softmax scale.
func TestRelaunch(t *testing.T) {
	p := New(&spec.Kernel{})
	refs := p.References(problem.Options{MaxWork: math.Inf(1), Secret: 9})
	plain := p.Plain(parse(t, "1x1x8x64"), refs.Secret())
	relaunch := plain
	relaunch.Relaunch = true
	for i, want := range map[problem.Instance]float64{plain: 0, relaunch: secretScale(9)} {
		ref, err := refs.Get(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		again, err := refs.Get(t.Context(), i)
		if in := ref.Peer().Attention; err != nil || again != ref || in.ScaleFactor != want || ref.Instance() != i || ref.InputCost().Max == 0 || !ref.Coverage().Whole() {
			t.Errorf("%s: %g times the scale, want %g; %v", i, in.ScaleFactor, want, err)
		}
	}
	for seed := range uint64(64) {
		if scale := secretScale(seed); scale < 0.59 || scale > 1.5 || math.Abs(scale-1) < 0.2 {
			t.Errorf("seed %d has %g times the scale", seed, scale)
		}
	}
	if refs.Facts() != nil || refs.Close() != nil {
		t.Error("attention has no process")
	}
	if _, err := refs.Get(t.Context(), problem.Instance{Shape: plain.Shape, Inputs: "odd"}); err == nil || !strings.Contains(err.Error(), `unknown inputs "odd"`) {
		t.Errorf("unknown inputs: %v", err)
	}
}

// A peer has the limits of variants with E4M3 products; the slack widens those of a variant.
func TestJudge(t *testing.T) {
	kernel := &spec.Kernel{Tolerance: spec.Tolerance{MaxErr: 1, MeanErr: 1, Atol: 1, Rtol: 1, BadFraction: 1}}
	p := New(kernel)
	ref, err := p.References(problem.Options{MaxWork: math.Inf(1)}).Get(t.Context(), p.Plain(parse(t, "1x1x8x64"), 0))
	if err != nil {
		t.Fatal(err)
	}
	want := ref.(*reference).want
	same, err := ref.CompareValues(map[string][]float64{"o": want.Out})
	limits, wrong := ref.Judge(problem.Build{}, same, 1)
	if err != nil || same.MaxErr != 0 || len(wrong) > 0 || limits.MaxErr != want.InputError.Max {
		t.Errorf("a peer: %+v, %+v, %v, %v", same.Errors, limits, wrong, err)
	}
	b := problem.Build{Variant: variant(t, "stage6"), Image: &toolchain.Image{}}
	share := b.Variant.Stage().ErrorShare
	for _, slack := range []float64{1, problem.TimedSlack} {
		if limits, _ := ref.Judge(b, same, slack); math.Abs(limits.MaxErr-slack*share*want.InputError.Max) > 1e-12 {
			t.Errorf("slack %g: %+v", slack, limits)
		}
	}
	worse := &oracle.Exponentials{Mean: oracle.Ratio{Ratio: 1.15}, RowClass: oracle.Ratio{Ratio: 1}, WorstRow: oracle.Ratio{Ratio: 1}}
	if _, wrong := ref.Judge(b, problem.Result{Exponentials: worse}, 1); len(wrong) != 1 || !strings.Contains(wrong[0], "exponentials: the error of all rows") {
		t.Errorf("exponentials that are no more exact: %q", wrong)
	}
}

// The reference of a timed launch is that of its rotated inputs.
func TestTimed(t *testing.T) {
	p := New(&spec.Kernel{})
	ref, err := p.References(problem.Options{MaxWork: math.Inf(1)}).Get(t.Context(), p.Plain(parse(t, "1x1x16x64"), 0))
	if err != nil {
		t.Fatal(err)
	}
	b := problem.Build{Image: &toolchain.Image{Record: toolchain.Record{Launch: toolchain.Launch{Threads: 32, QueryRows: 16, LSE: toolchain.LSEInFP32}}}}
	job, err := ref.Job(b, device.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	rotation := device.Rotation{Secret: 5, Count: 3, Step: 1}
	timed, err := ref.Timed(t.Context(), b, job, rotation)
	if err != nil {
		t.Fatal(err)
	}
	in := timed.Peer().Attention
	if !slices.Equal(in.K.Codes, job.Rotate(rotation).Args[1].Input) || slices.Equal(in.K.Codes, ref.Peer().Attention.K.Codes) {
		t.Error("K is not rotated")
	}
	fresh, err := oracle.Quantized(t.Context(), in, nil)
	if got := timed.(*reference).want; err != nil || !slices.Equal(got.Out, fresh) {
		t.Errorf("another output than that of the rotated inputs; %v", err)
	}
}

func TestHeadDim(t *testing.T) {
	if got := HeadDim(variant(t, "stage2")); got != 64 {
		t.Errorf("stage2 is for head dim %d, want 64", got)
	}
	if got := HeadDim(spec.Variant{}); got != 0 {
		t.Errorf("a kernel without that knob is for head dim %d, want 0", got)
	}
}
