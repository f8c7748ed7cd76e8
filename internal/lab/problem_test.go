package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/array"
	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/finding"
	"attune/internal/form"
	"attune/internal/gate"
	"attune/internal/mutate"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/problem/declared"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// doubling is the problem y = 2 x on n floats, which has nothing in common with attention.
type doubling struct {
	fail      error // of Get, for all but the first seed
	noSeed    bool  // there is no reference of a secret seed
	unordered bool
	untimed   bool  // there is no reference of timed launches
	timed     error // of the reference of timed launches
	work      error
	unknown   bool // nobody knows the work
	closed    int
	threads   int // of a block
}

func extent(s spec.Shape) int { return s.(spec.Axes).Value("n") }

func (d *doubling) Name() string              { return spec.DeclaredProblem }
func (d *doubling) DType(spec.Variant) string { return "f32" }
func (d *doubling) CheckShapes(_ spec.Variant, shapes []spec.Shape) error {
	for _, s := range shapes {
		if extent(s) > 1<<20 {
			return fmt.Errorf("shape %s is too large", s)
		}
	}
	return nil
}
func (d *doubling) Common(a, b spec.Variant) bool     { return true }
func (d *doubling) Budget(v spec.Variant) spec.Budget { return v.Stage().Budget }
func (d *doubling) Size(s spec.Shape) float64         { return float64(extent(s)) }
func (d *doubling) Threads(problem.Build, []spec.Shape) (int, error) {
	return d.threads, nil
}
func (d *doubling) ParameterHelp() string            { return "that is all" }
func (d *doubling) LaunchKey(b problem.Build) string { return "" }
func (d *doubling) Allowed() []finding.Kind          { return nil }
func (d *doubling) Hints() profile.Hints             { return nil }
func (d *doubling) Plain(s spec.Shape, seed uint64) problem.Instance {
	return problem.Instance{Shape: s, Seed: seed}
}

func (d *doubling) Instances(shapes []spec.Shape, seeds []uint64) []problem.Instance {
	var all []problem.Instance
	for _, s := range shapes {
		for _, seed := range seeds {
			all = append(all, d.Plain(s, seed))
		}
	}
	return all
}

func (d *doubling) Work(_ spec.Variant, s spec.Shape, _ string) (problem.Work, error) {
	if d.unknown {
		return problem.Work{}, nil
	}
	return problem.Work{FLOPs: d.Size(s), Bytes: 8 * d.Size(s)}, d.work
}

func (d *doubling) Parameters(problem.Build) []problem.Parameter {
	pointer := problem.Parameter{Name: "x", Is: "pointer", Bytes: 8}
	output := problem.Parameter{Name: "y", Is: "pointer", Bytes: 8, Output: true}
	return []problem.Parameter{pointer, output, {Name: "n", Is: "i32", Bytes: 4, Range: &mutate.Range{Min: 1, Max: 1 << 20}}}
}

// SharedBytes is what the kernel has no use for, so that it is not that of the image.
func (d *doubling) SharedBytes(_ problem.Build, shapes []spec.Shape) (int, error) {
	if extent(shapes[0]) == 13 {
		return 0, errors.New("no shared memory for 13 elements")
	}
	return 128, nil
}

func (d *doubling) References(o problem.Options) problem.References { return &doubled{d, o} }

type doubled struct {
	*doubling
	options problem.Options
}

func (r *doubled) Get(_ context.Context, i problem.Instance) (problem.Reference, error) {
	switch {
	case i.Relaunch && r.noSeed:
		return nil, &problem.ReferenceError{Why: "no file", Err: problem.ErrNoSeed}
	case r.fail != nil && i.Seed > 0:
		return nil, r.fail
	}
	random := array.Array{Type: array.F32}
	first := float32(i.Seed % 7)
	if i.Relaunch {
		first += secretInput
	}
	for k := range extent(i.Shape) {
		random.Data = binary.LittleEndian.AppendUint32(random.Data, math.Float32bits(float32(k)+first))
	}
	return &doubledInstance{r.doubling, i, random.Data}, nil
}
func (r *doubled) KeepOnly(problem.Instance) {}
func (r *doubled) Secret() uint64            { return r.options.Secret }
func (r *doubled) Facts() map[string]string  { return map[string]string{"reference": "test"} }
func (r *doubled) Close() error              { r.closed++; return nil }

// secretInput is the least first input of a relaunch.
const secretInput = 2000

type doubledInstance struct {
	*doubling
	instance problem.Instance
	input    []byte
}

func (r *doubledInstance) Instance() problem.Instance { return r.instance }

func (r *doubledInstance) Job(b problem.Build, _ device.Facts) (device.Job, error) {
	n := extent(r.instance.Shape)
	return device.Job{
		Image: b.Code, Entry: b.Image.Record.EntryName(), Grid: [3]int{(n + 63) / 64, 1, 1}, Block: [3]int{64, 1, 1}, Unordered: r.unordered,
		Args: []device.Arg{device.Rotating(r.input, 4), device.Out(4 * n), device.Int32(int32(n))},
	}, nil
}

func (r *doubledInstance) Compare(_ problem.Build, outputs [][]byte) (problem.Result, error) {
	got := &array.Array{Type: array.F32, Shape: []int{len(r.input) / 4}, Data: outputs[0]}
	return r.CompareValues(map[string][]float64{"y": got.Floats()})
}

func (r *doubledInstance) CompareValues(outputs map[string][]float64) (problem.Result, error) {
	want := (&array.Array{Type: array.F32, Shape: []int{len(r.input) / 4}, Data: r.input}).Floats()
	var e oracle.Errors
	for i, x := range outputs["y"] {
		if off := math.Abs(x - 2*want[i]); off > e.MaxErr {
			e.MaxErr, e.Worst = off, oracle.Worst{Place: oracle.Place{Element: fmt.Sprintf("y[%d]", i)}, Got: x, Want: 2 * want[i]}
		}
	}
	return problem.Result{Errors: e, Outputs: []oracle.OutputErrors{{Name: "y", Errors: e}}}, nil
}

func (r *doubledInstance) Judge(_ problem.Build, result problem.Result, slack float64) (gate.Limits, []string) {
	limits := gate.Limits{Outputs: map[string]gate.OutputLimit{"y": {Abs: 0.01}}}
	if e := result.Outputs[0]; e.MaxErr > 0.01*slack {
		return limits, []string{fmt.Sprintf("y: off by %g at %s", e.MaxErr, e.Worst.Place)}
	}
	return limits, nil
}

func (r *doubledInstance) Timed(_ context.Context, _ problem.Build, job device.Job, rotation device.Rotation) (problem.Reference, error) {
	if r.untimed || r.timed != nil {
		return nil, r.timed
	}
	return &doubledInstance{r.doubling, r.instance, job.Rotate(rotation).Args[0].Input}, nil
}
func (r *doubledInstance) Coverage() oracle.Coverage    { return oracle.Coverage{Rows: 1, Of: 1} }
func (r *doubledInstance) InputCost() *oracle.ErrorSize { return nil }
func (r *doubledInstance) Peer() problem.PeerData {
	n := extent(r.instance.Shape)
	return problem.PeerData{
		Axes:    map[string]int{"n": n},
		Arrays:  []*array.Array{{Name: "x", Type: array.F32, Shape: []int{n}, Data: r.input}},
		Outputs: []*array.Array{{Name: "y", Type: array.F32, Shape: []int{n}}},
	}
}

const doublingSpec = `
name = "double"
archs = ["sm_80", "sm_90a"]

[shapes]
small = { n = 100 }
large = { n = 1000 }
benchmark = ["large"]

[[arg]]
name = "x"
type = "f32"
shape = ["n"]
[[arg]]
name = "y"
type = "f32"
shape = ["n"]
out = true
[[arg]]
name = "n"
type = "i32"
value = "n"

[launch]
grid = ["(n + 63) // 64"]
block = [64]

[reference]
python = "reference.py"

[[knob]]
name = "FACTOR"
values = [2, 3]
default = 2
[[knob]]
name = "UNROLL"
values = [1, 2]
default = 1

[[stage]]
name = "plain"
[[stage]]
name = "unrolled"
knobs = { UNROLL = 2 }
parent = "plain"

[[selection]]
name = "best"
parent = "plain"
[[selection.choice]]
when = "n >= 512"
variant = "unrolled"
[[selection.choice]]
variant = "plain"
`

const doublingSource = `
extern "C" __global__ void double_it(const float *x, float *y, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
#if UNROLL == 2
  if (i < n) y[i] = FACTOR * __ldcg(x + i);
#else
  if (i < n) y[i] = FACTOR * x[i];
#endif
}
`

// newDoubling is a lab whose kernel doubles, on a fake GPU that doubles too.
func newDoubling(t *testing.T, d *doubling) *setup {
	t.Helper()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	s := newSetupOf(t, fstest.MapFS{
		"kernel.toml": {Data: []byte(strings.Replace(doublingSpec, "[shapes]", "entry = \"double_it\"\n[shapes]", 1))},
		"double.cu":   {Data: []byte(doublingSource)}, "reference.py": {Data: []byte("")},
	}, c, cacheDir)
	s.Problem = d
	s.gpu.Compute = func(_ context.Context, job device.Job) ([]byte, error) {
		var out []byte
		for in := job.Args[0].Input; len(in) > 0; in = in[4:] {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(2*math.Float32frombits(binary.LittleEndian.Uint32(in))))
		}
		return out, nil
	}
	for _, v := range []string{"plain", "unrolled"} {
		s.declare(v, behaviour{})
	}
	return s
}

func (s *setup) doublingRequest(variants ...string) Request {
	s.t.Helper()
	all, err := s.Kernel.Shapes("small,large")
	if err != nil {
		s.t.Fatal(err)
	}
	r := Request{Problem: s.Problem, Shapes: all, Benchmark: all[1:], Seeds: []uint64{0, 1}, Samples: 40}
	for _, v := range variants {
		r.Variants = append(r.Variants, s.variant(v))
	}
	return r
}

// addOne is a wrong output.
func addOne(out []byte) {
	x := math.Float32frombits(binary.LittleEndian.Uint32(out))
	binary.LittleEndian.PutUint32(out, math.Float32bits(x+1))
}

func TestRunOfAnotherProblem(t *testing.T) {
	t.Parallel()
	d := &doubling{}
	s := newDoubling(t, d)
	s.gpu.Behaviours["unrolled"] = behaviour{Seconds: 12e-6}
	got := s.runOne(s.doublingRequest("unrolled"))
	expectOutcome(t, got, "merge pass/pass/pass/not-measured")
	expectReason(t, got.Reasons.Performance, "0.833x plain (0.833 to 0.833), none required")
	want := &run.Problem{Kind: spec.DeclaredProblem, SpecSHA256: s.Kernel.Declared.SHA256, Facts: map[string]string{"reference": "test"}}
	if diff := cmp.Diff(want, got.Problem); diff != "" || d.closed != 1 {
		t.Errorf("the problem, whose references were closed %d times (-want +got):\n%s", d.closed, diff)
	}
	if len(got.Correctness) != 4 || len(got.Performance) != 2 || got.Build.Entry != "double_it" || got.Build.Resources.DynamicSharedBytes != 128 {
		t.Fatalf("%d outputs, %d times, build %+v", len(got.Correctness), len(got.Performance), got.Build)
	}
	c, p := got.Correctness[0], got.Performance[1]
	if c.Shape != "n=100" || c.ShapeName != "small" || c.Inputs != "" || c.InputCost != nil || len(c.Outputs) != 1 || c.Relaunch == nil || !c.Relaunch.Pass ||
		c.Relaunch.ScaleFactor != 0 || len(c.Relaunch.Outputs) != 1 {
		t.Errorf("correctness %+v, relaunch %+v", c, c.Relaunch)
	}
	if p.ShapeName != "large" || math.Abs(*p.GBPerS-8e3/12e-6/1e9) > 1e-6 || math.Abs(*p.TFLOPS-1e3/12e-6/1e12) > 1e-9 || p.Shares != nil {
		t.Errorf("performance %+v", p)
	}
	s.gpu.Facts.Name = "NVIDIA H200"
	s.Device, s.runs = GPU(s.gpu.Facts, s.gpu.Open), nil
	if got := s.runOne(s.doublingRequest("plain")); got.Performance[0].Shares == nil || got.Performance[0].Shares.Copy == 0 {
		t.Errorf("the shares of an H200: %+v", got.Performance[0].Shares)
	}
}

func TestWrongKernelOfAnotherProblem(t *testing.T) {
	t.Parallel()
	check := func(b behaviour, d doubling, verdict, reason string) {
		t.Helper()
		s := newDoubling(t, &d)
		s.gpu.Behaviours["plain"] = b
		got := s.runOne(s.doublingRequest("plain"))
		if string(got.Verdict) != verdict {
			t.Errorf("%s: %+v", got.Verdict, got.Reasons)
		}
		if reason != "" {
			expectReason(t, got.Reasons.Correctness, reason)
		}
	}
	off := func(_ int, out []byte) { addOne(out) }
	last := func(number int, out []byte) {
		if number == 1 {
			addOne(out)
		}
	}
	slight := func(number int, out []byte) { out[0] ^= byte(number) }
	check(behaviour{Output: addOne}, doubling{}, "incorrect", "n=100 seed 0: y: off by 1 at y[0]")
	check(behaviour{Timed: addOne}, doubling{}, "incorrect", "a timed launch: y: off by 1 at y[0]")
	check(behaviour{Timed: addOne}, doubling{untimed: true}, "merge", "")
	check(behaviour{Relaunch: off}, doubling{}, "incorrect", "it depends on earlier launches: y: off by 1")
	check(behaviour{Relaunch: off}, doubling{noSeed: true}, "merge", "")
	check(behaviour{Relaunch: slight}, doubling{}, "incorrect", "its output differs from that of the first launch")
	check(behaviour{Relaunch: slight}, doubling{unordered: true}, "merge", "")
	check(behaviour{Relaunch: last}, doubling{unordered: true}, "incorrect", "its output differs from that of the first launch")
	check(behaviour{Repeated: func(out []byte) { out[0] ^= 1 }}, doubling{unordered: true}, "merge", "")
	check(behaviour{Repeated: addOne}, doubling{unordered: true}, "incorrect", "not-repeatable: launched again on the same inputs, y: off by 1 at y[0]")
}

// A relaunch that is wrong is launched again on a fresh device. Only if it is right there, earlier
// launches are the cause.
func TestWrongOnTheInputsOfARelaunch(t *testing.T) {
	t.Parallel()
	s := newDoubling(t, &doubling{})
	honest, refuse := s.gpu.Compute, error(nil)
	s.gpu.Compute = func(ctx context.Context, job device.Job) ([]byte, error) {
		out, err := honest(ctx, job)
		if math.Float32frombits(binary.LittleEndian.Uint32(job.Args[0].Input)) >= secretInput {
			addOne(out)
			if err = nil; job.Relaunches == nil && len(s.steps) > 0 && s.gpu.Opened > 1 {
				err = refuse
			}
		}
		return out, err
	}
	got := s.runOne(s.doublingRequest("plain"))
	expectOutcome(t, got, incorrect)
	expectReason(t, got.Reasons.Correctness, fmt.Sprintf("n=100 seed 0: wrong on the inputs of seed %d: y: off by 1 at y[0]", got.Correctness[0].Relaunch.Seed))
	if r := got.Correctness[0].Relaunch; !r.Alone || r.Pass || s.gpu.Opened != 2 || s.gpu.Closed != 2 {
		t.Errorf("%+v; %d devices opened, %d closed", r, s.gpu.Opened, s.gpu.Closed)
	}

	refuse, s.gpu.Opened, s.runs = errors.New("out of paper"), 0, nil
	if err := s.run(s.doublingRequest("plain")); err == nil || !strings.Contains(err.Error(), "out of paper") {
		t.Errorf("the second device fails: %v", err)
	}

	// A kernel that faults on these inputs alone is wrong on them as well.
	refuse, s.gpu.Opened, s.runs = nil, 0, nil
	s.gpu.Behaviours["plain"] = behaviour{Launch: func(int) error {
		if s.gpu.Opened > 1 {
			return &device.Fault{Code: "illegal address", Text: "no", Operation: "run the kernel"}
		}
		return nil
	}}
	got = s.runOne(s.doublingRequest("plain"))
	if expectReason(t, got.Reasons.Correctness, "wrong on the inputs of seed "); !got.Correctness[0].Relaunch.Alone {
		t.Errorf("%+v", got.Correctness[0].Relaunch)
	}
}

// A reference that fails says nothing about the variant: it is recorded, and the next one runs.
func TestFailedReference(t *testing.T) {
	t.Parallel()
	s := newDoubling(t, &doubling{fail: &problem.ReferenceError{Why: "reference.py: ZeroDivisionError", Do: "mend it"}})
	r := s.doublingRequest("plain", "unrolled")
	if err := s.run(r); err != nil || len(s.runs) != 2 {
		t.Fatalf("%d runs, %v", len(s.runs), err)
	}
	for _, got := range s.runs {
		expectOutcome(t, got, "not-measured pass/not-measured/not-measured/not-measured")
		expectReason(t, got.Reasons.Correctness, "reference: reference.py: ZeroDivisionError; mend it")
		if got.ReferenceError != "reference.py: ZeroDivisionError; mend it" || got.Failure != "" || got.ID == "" {
			t.Errorf("%q, %q, id %q", got.ReferenceError, got.Failure, got.ID)
		}
	}
}

// A reference that fails for the inputs of a timed launch leaves the performance unknown.
func TestFailedReferenceOfTimedLaunch(t *testing.T) {
	t.Parallel()
	s := newDoubling(t, &doubling{timed: &problem.ReferenceError{Why: "reference.py: no result"}})
	got := s.runOne(s.doublingRequest("plain"))
	expectOutcome(t, got, "not-measured pass/pass/not-measured/not-measured")
	expectReason(t, got.Reasons.Performance, "reference: reference.py: no result")
	if got.ReferenceError != "reference.py: no result" {
		t.Error(got.ReferenceError)
	}
}

func TestErrorsOfAnotherProblem(t *testing.T) {
	t.Parallel()
	check := func(d doubling, n int, want string) {
		t.Helper()
		s := newDoubling(t, &d)
		r := s.doublingRequest("plain")
		r.Shapes = []spec.Shape{spec.Axes(fmt.Sprintf("n=%d", n))}
		if err := s.run(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("n=%d: %v, want %q", n, err, want)
		}
	}
	check(doubling{}, 1<<20+1, "shape n=1048577 is too large")
	s := newDoubling(t, &doubling{}) // the other variants may have a launch
	r := s.doublingRequest("plain")
	r.Shapes = []spec.Shape{spec.Axes("n=13")}
	got := s.runOne(r)
	expectOutcome(t, got, "over-budget fail/not-measured/not-measured/not-measured")
	expectReason(t, got.Reasons.Resources, "no shared memory for 13 elements")
	check(doubling{fail: errors.New("no memory")}, 4, "no memory")
	check(doubling{work: errors.New("no work")}, 4, "no work")
}

// A selection over the axes of a declared kernel has the problem of its parts.
func TestSelectionOfAnotherProblem(t *testing.T) {
	t.Parallel()
	s := newDoubling(t, &doubling{})
	r := s.doublingRequest()
	r.Selections = []*spec.Selection{s.Kernel.Selection("best")}
	if err := s.run(r); err != nil || len(s.runs) != 3 {
		t.Fatalf("%d runs, %v", len(s.runs), err)
	}
	whole := s.runs[2]
	if whole.Problem == nil || len(whole.Parts) != 2 || whole.VariantOn("n=1000") != "unrolled" || whole.VariantOn("n=100") != "plain" {
		t.Errorf("%+v", whole)
	}
	s = newDoubling(t, &doubling{fail: &problem.ReferenceError{Why: "reference.py: no"}})
	if err := s.run(r); err != nil || s.runs[len(s.runs)-1].ReferenceError != "reference.py: no" {
		t.Errorf("%v", err)
	}
}

func TestCompareOfAnotherProblem(t *testing.T) {
	t.Parallel()
	d := &doubling{}
	s := newDoubling(t, d)
	s.gpu.Behaviours["unrolled"] = behaviour{Seconds: 8e-6}
	r := CompareRequest{
		A: Candidate{Variant: s.variant("plain")}, B: Candidate{Variant: s.variant("unrolled")}, Shapes: s.doublingRequest().Shapes,
		Rounds: 40, MaxRounds: 160,
	}
	got, err := s.Compare(t.Context(), r)
	if err != nil || got.Verdict != "faster" || d.closed != 1 || got.Shapes[1].Shape != "n=1000" {
		t.Errorf("%+v, %v; references closed %d times", got, err, d.closed)
	}
	s.gpu.Behaviours["unrolled"] = behaviour{Output: addOne}
	var wrong *WrongError
	if _, err := s.Compare(t.Context(), r); !errors.As(err, &wrong) {
		t.Errorf("a wrong kernel: %v", err)
	}
	s.Problem = &doubling{fail: &problem.ReferenceError{Why: "reference.py: no"}}
	r.Seed = 1
	var failed *problem.ReferenceError
	if _, err := s.Compare(t.Context(), r); !errors.As(err, &failed) {
		t.Errorf("a failed reference: %v", err)
	}
}

func TestBenchOfAnotherProblem(t *testing.T) {
	t.Parallel()
	d := &doubling{}
	s := newDoubling(t, d)
	r := BenchRequest{Variants: []spec.Variant{s.variant("plain")}, Shapes: s.doublingRequest().Shapes, Rounds: 12}
	b, err := s.Bench(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if row := b.Rows[1]; row.ShapeName != "large" || row.DType != "f32" || math.Abs(*row.GBPerS-0.8) > 1e-9 || row.TFLOPS == nil || b.Problem == nil || d.closed != 1 {
		t.Errorf("%+v, problem %+v", row, b.Problem)
	}
	s.Problem = &doubling{work: errors.New("no work")}
	if _, err := s.Bench(t.Context(), r); err == nil || !strings.Contains(err.Error(), "no work") {
		t.Error(err)
	}
	s.Problem = &doubling{unknown: true}
	if b, err = s.Bench(t.Context(), r); err != nil || b.Rows[0].TFLOPS != nil || b.Rows[0].GBPerS != nil || b.Rows[0].P50US == nil {
		t.Errorf("unknown work: %+v, %v", b, err)
	}
}

// The simulator runs and mutates the kernel.
func TestAnotherProblemOnTheSimulator(t *testing.T) {
	t.Parallel()
	s := newDoubling(t, &doubling{})
	o := simdevice.Options{Checks: true, Limit: time.Minute}
	open := func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	s.Device = Simulator(simdevice.Open(o).Facts(), open, run.Simulation{Schedules: 1, Checks: true, Tensor: run.ExactTensor})
	r := s.doublingRequest("plain")
	r.Shapes = r.Shapes[:1]
	expectOutcome(t, s.runOne(r), "not-measured pass/pass/not-measured/not-measured")
	r = s.doublingRequest("plain+FACTOR=3")
	s.runs = nil
	expectOutcome(t, s.runOne(r), incorrect)
	m := MutationRequest{Request: s.doublingRequest("plain")}
	m.Shapes, m.Seeds = m.Shapes[:1], []uint64{0}
	c, _ := compiler(t)
	m.Assemble = func(ctx context.Context, ptx []byte, arch string) (string, error) {
		return toolchain.Assemble(ctx, c, ptx, arch)
	}
	report, err := s.Mutate(t.Context(), m)
	if err != nil || report.Killed < 10 || report.KillRate < 0.9 {
		t.Errorf("%+v, %v", report, err)
	}
	if ranges := parameterRanges(s.Problem, problem.Build{Image: s.built("plain", "sm_90a")}); len(ranges) != 1 || ranges["double_it_param_2"].Min != 1 {
		t.Errorf("%v", ranges)
	}
}

// A trusted kernel runs on a device of its own, for the lab's architecture.
func TestTrustedKernel(t *testing.T) {
	t.Parallel()
	s := newDoubling(t, &doubling{})
	target := form.Target(s.Kernel, s.variant("plain"), "")
	launch := func(t toolchain.Target, job func(*toolchain.Image) (device.Job, error)) ([][]byte, error) {
		return s.launchTrusted(s.t.Context(), t, job)
	}
	right := func(*toolchain.Image) (device.Job, error) {
		return device.Job{Args: []device.Arg{device.In([]byte{0, 0, 0x80, 0x3F}), device.Out(4), device.Int32(1)}}, nil
	}
	out, err := launch(target, right)
	if err != nil || len(out) != 1 || string(out[0]) != "\x00\x00\x00\x40" || s.gpu.Opened != 1 || s.gpu.Closed != 1 {
		t.Errorf("2 times 1 is %v, %v; %d devices", out, err, s.gpu.Opened)
	}
	fails := func(what, want string, t2 toolchain.Target, job func(*toolchain.Image) (device.Job, error)) {
		t.Helper()
		if _, err := launch(t2, job); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	broken := target
	broken.Source = "missing.cu"
	fails("no source", "missing.cu", broken, right)
	fails("no job", "no job", target, func(*toolchain.Image) (device.Job, error) { return device.Job{}, errors.New("no job") })
	s.gpu.Behaviours["plain"] = behaviour{Findings: []finding.Finding{finding.New("race", "at naive.cu:3")}}
	fails("a finding", "race: at naive.cu:3", target, right)
	s.gpu.Behaviours["plain"] = behaviour{Launch: func(int) error { return &device.Timeout{Limit: time.Second} }}
	fails("a timeout", "no result within 1s", target, right)
	s.Device = NoDevice("none")
	fails("no device", "none", target, right)
	s.Device = GPU(device.Facts{Arch: "sm_70"}, nil)
	fails("another architecture", "the device is sm_70", target, right)
}

func TestNewProblem(t *testing.T) {
	t.Parallel()
	if p := NewProblem(newShippedSetup(t).Kernel, nil, ""); p.Name() != spec.Attention {
		t.Errorf("attention is %T", p)
	}
	if p, ok := NewProblem(&spec.Kernel{Declared: &spec.Declaration{}}, nil, "").(*declared.Problem); !ok || p.Name() != spec.DeclaredProblem {
		t.Errorf("a declared kernel is %T", p)
	}
	if _, ok := (&Lab{}).problem().(*attention.Problem); !ok {
		t.Error("attention is not the default")
	}
}

// A changed kernel.toml or reference makes the evidence of a run stale.
func TestPromotionOfAChangedProblem(t *testing.T) {
	t.Parallel()
	s := newDoubling(t, &doubling{})
	s.gpu.Behaviours["unrolled"] = behaviour{Seconds: 8e-6}
	r := s.runOne(s.doublingRequest("unrolled"))
	if err := s.CheckPromotion(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.Problem = staleProblem{&doubling{}}
	r.Problem.SpecSHA256 = "another"
	var refusal *Refusal
	if err := s.CheckPromotion(t.Context(), r); !errors.As(err, &refusal) || refusal.Evidence != stale || !strings.Contains(refusal.Why, "changed since then: kernel.toml, reference.py;") {
		t.Errorf("%v", err)
	}
}

type staleProblem struct{ *doubling }

func (staleProblem) Stale(map[string]string) []string { return []string{"reference.py"} }

// A lab and a request without a problem take the one that the spec of the kernel declares.
func TestProblemOfTheSpec(t *testing.T) {
	t.Parallel()
	kernel, err := spec.Load(os.DirFS(declaredKernels + "/add"))
	if err != nil {
		t.Fatal(err)
	}
	if p := (&Lab{Kernel: kernel}).problem(); p.Name() != spec.DeclaredProblem {
		t.Error(p.Name())
	}
	shape, err := kernel.ParseShape("n=0")
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Variants: []spec.Variant{kernel.Stages[0].Variant()}, Shapes: []spec.Shape{shape}, Seeds: []uint64{0}}
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "n=0") {
		t.Error(err)
	}
	if p := (Request{}).problem(); p.Name() != spec.Attention {
		t.Error(p.Name())
	}
	sdpa := newShippedSetup(t).Kernel
	if p := (Request{Selections: sdpa.Selections}).problem(); p.Name() != spec.Attention {
		t.Error(p.Name())
	}
}
