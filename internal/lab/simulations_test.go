package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	simdevice "attune/internal/device/sim"
	"attune/internal/finding"
	"attune/internal/form"
	"attune/internal/oracle"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
)

// simulator is the one beside a GPU.
func simulator(o simdevice.Options) Device {
	open := func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	return Simulator(simdevice.Open(o).Facts(), open, run.Simulation{Checks: true, Tensor: run.ExactTensor})
}

// provenBy are the options of that simulator.
var provenBy = simdevice.Options{Checks: true, Least: 4, Limit: time.Minute}

// newProven is the kernel of newBroken on a fake GPU, on which all of its defects but one go unseen,
// with the real simulator beside it.
func newProven(t *testing.T, o simdevice.Options, variants ...string) *setup {
	t.Helper()
	s := newBroken(t)
	s.gpu.Facts.Arch = "sm_90"
	s.Device = GPU(s.gpu.Facts, s.gpu.Open).Beside(simulator(o))
	for _, v := range variants {
		s.declare(v, behaviour{})
	}
	return s
}

func (s *setup) tiny(variants ...string) Request {
	r := s.request(variants...)
	r.Shapes, r.Benchmark, r.Seeds = shapes(s.t, "1x2x8x64"), nil, []uint64{0}
	return r
}

// A kernel whose outputs are right on a GPU is not merged if the simulator finds it wrong.
func TestSimulatorDecidesOnGPU(t *testing.T) {
	t.Parallel()
	for variant, reason := range map[string]string{
		"racy":    "on the simulator, 1x2x8x64 seed 0 and 1 more: race at broken.cu:",
		"outside": "out-of-bounds at broken.cu:",
		"illegal": "out-of-bounds at broken.cu:",
		"zeros":   "on the simulator, 1x2x8x64 seed 0: max_err",
		"lazy":    "unwritten: argument 3",
		"hang":    "deadlock",
	} {
		t.Run(variant, func(t *testing.T) {
			t.Parallel()
			s := newProven(t, provenBy, variant)
			r := s.runOne(s.tiny(variant))
			expectOutcome(t, r, incorrect)
			expectReason(t, r.Reasons.Correctness, reason)
			if len(r.Performance) != 0 || len(r.Samples) != 0 || r.Headline != nil || r.Speedup != nil || r.Simulated == nil || len(r.Simulated.Wrong) == 0 {
				t.Errorf("the record is %+v, simulated %+v", r, r.Simulated)
			}
			if !r.Correctness[0].Pass {
				t.Error("the fake GPU did not compute the right output")
			}
			for _, f := range r.Simulated.Findings { // the record has the source lines
				if _, known := f.Where.Own(); known && f.Where.Excerpt == "" {
					t.Errorf("no source line of %s", f)
				}
			}
		})
	}
}

// A right kernel is merged, and its record says on what it was simulated.
func TestSimulatedBesideGPU(t *testing.T) {
	t.Parallel()
	s := newProven(t, provenBy, "good", "padded")
	if err := s.run(s.tiny("good", "padded")); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.runs {
		expectOutcome(t, r, merged)
		if p := r.Simulated; p == nil || p.Instances != 2 || p.Schedules != 4 || len(p.Shapes) != 2 || len(p.Findings) != 0 || p.Refused != "" || r.NotSimulated() != "" {
			t.Errorf("simulated %+v", p)
		}
	}
}

// The record of a run on a GPU has the lines that its simulation has executed, as one on the simulator:
// what no shape reaches, and for a single variant a shape that does.
func TestLinesOfSimulationBesideGPU(t *testing.T) {
	t.Parallel()
	s := newProven(t, provenBy, "good")
	one := s.runOne(s.tiny("good"))
	expectOutcome(t, one, merged)
	alone := newBroken(t)
	alone.Device = simulator(provenBy)
	request := alone.tiny("good")
	request.Shapes = shapes(t, one.Simulated.Shapes...)
	want := alone.runOne(request)
	if one.Lines == nil || want.Lines == nil || one.Lines.Lines == 0 {
		t.Fatalf("lines %+v; want %+v", one.Lines, want.Lines)
	}
	if diff := cmp.Diff(want.Lines.Never, one.Lines.Never); diff != "" {
		t.Errorf("lines never executed (-simulator +GPU):\n%s", diff)
	}
	racy := newProven(t, provenBy, "racy")
	if r := racy.runOne(racy.tiny("racy")); r.Lines != nil {
		t.Errorf("a wrong kernel has lines: %+v", r.Lines)
	}
}

// What the simulator refuses is decided by the GPU, and the record says what it refused.
func TestSimulatorRefuses(t *testing.T) {
	t.Parallel()
	s := newProven(t, provenBy, "hopper")
	r := s.runOne(s.tiny("hopper"))
	expectOutcome(t, r, merged)
	if p := r.Simulated; p.Refused != "multimem" || p.Instances != 0 || r.NotSimulated() != "multimem" || len(p.Sanitized) != 0 {
		t.Errorf("simulated %+v", p)
	}
}

// A refused kernel runs under compute-sanitizer if the request asks for it.
func TestRefusedKernelIsSanitized(t *testing.T) {
	t.Parallel()
	s := newProven(t, provenBy, "hopper")
	found := []finding.Finding{finding.New("memcheck", "Invalid __global__ write of size 2 bytes")}
	tool := func(d *sanitizedDevice) Opener {
		return func(context.Context) (device.Device, error) {
			d.Device = &devicetest.Device{GPU: s.gpu}
			return d, nil
		}
	}
	broken := func(context.Context) (device.Device, error) {
		return nil, errors.New("compute-sanitizer is not in PATH")
	}
	s.Device = GPU(s.gpu.Facts, s.gpu.Open).Beside(simulator(provenBy), tool(&sanitizedDevice{}), broken)
	r := s.runOne(s.tiny("hopper"))
	expectOutcome(t, r, merged)
	if p := r.Simulated; len(p.Sanitized) != 1 || p.Sanitized[0] != "memcheck" {
		t.Errorf("simulated %+v", p)
	}
	expectReason(t, []string{r.Simulated.Why}, "compute-sanitizer is not in PATH")

	s.runs = nil
	s.Device = GPU(s.gpu.Facts, s.gpu.Open).Beside(simulator(provenBy), tool(&sanitizedDevice{findings: found}))
	r = s.runOne(s.tiny("hopper"))
	expectOutcome(t, r, incorrect)
	expectReason(t, r.Reasons.Correctness, "under compute-sanitizer, memcheck: Invalid")
}

// A simulator that finishes nothing proves nothing.
func TestSimulatorFinishesNothing(t *testing.T) {
	t.Parallel()
	short := provenBy
	short.Limit = 50 * time.Millisecond
	s := newProven(t, short, "endless")
	r := s.runOne(s.tiny("endless"))
	expectOutcome(t, r, "not-measured pass/not-measured/not-measured/not-measured")
	expectReason(t, r.Reasons.Correctness, "the simulator finished no shape: 1x2x8x64 seed 0: no result within 50ms")
}

// watched is a simulator that reports each run of an image.
type watched struct {
	*simdevice.Device
	image string
	ran   chan<- struct{}
}

func (w *watched) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	if string(job.Image) == w.image {
		defer func() { w.ran <- struct{}{} }()
	}
	return w.Device.Run(ctx, job)
}

// A kernel that never ends on the GPU costs its own verdict, and the next variant runs. What the
// simulator knows of it decides.
func TestEndlessOnGPU(t *testing.T) {
	t.Parallel()
	s := newProven(t, provenBy, "hang", "good")
	ran := make(chan struct{}, 100)
	image := string(s.built("hang", "sm_90a").PTX)
	open := func(context.Context) (device.Device, error) {
		return &watched{simdevice.Open(provenBy), image, ran}, nil
	}
	s.Device = s.Device.Beside(Simulator(device.Facts{Kind: "sim"}, open, run.Simulation{}))
	s.gpu.Behaviours["hang"] = behaviour{Launch: func(int) error {
		for range 3 { // the simulator has all shapes before the limit of the GPU
			<-ran
		}
		return &device.Timeout{Limit: time.Second}
	}}
	if err := s.run(s.tiny("hang", "good")); err != nil {
		t.Fatal(err)
	}
	expectOutcome(t, s.runs[0], incorrect)
	expectReason(t, s.runs[0].Reasons.Correctness, "deadlock")
	if !s.runs[0].TimedOut {
		t.Error("the record does not say that it timed out")
	}
	expectOutcome(t, s.runs[1], merged)
}

// If the simulator does not end either, the run goes on all the same. It is not parallel: it shortens the
// time of all simulations.
func TestEndlessEverywhere(t *testing.T) {
	usual := afterTimeout
	t.Cleanup(func() { afterTimeout = usual })
	afterTimeout = time.Second
	s := newProven(t, provenBy, "endless", "good")
	s.gpu.Behaviours["endless"] = behaviour{Launch: func(int) error { return &device.Timeout{Limit: time.Second} }}
	began := time.Now()
	if err := s.run(s.tiny("endless", "good")); err != nil {
		t.Fatal(err)
	}
	expectOutcome(t, s.runs[0], "not-measured pass/not-measured/not-measured/not-measured")
	expectReason(t, s.runs[0].Reasons.Correctness, "no result within 1s")
	expectReason(t, []string{s.runs[0].Simulated.Unfinished}, "did not end either")
	expectOutcome(t, s.runs[1], merged)
	if spent := time.Since(began); spent > provenBy.Limit {
		t.Errorf("it took %s", spent)
	}
}

// sumOfNeighbours computes what the kernel of testdata/planted does.
func sumOfNeighbours(_ context.Context, job device.Job) ([]byte, error) {
	in := job.Args[0].Input
	at := func(i int) float32 {
		if 4*i >= len(in) {
			return 0
		}
		return math.Float32frombits(binary.LittleEndian.Uint32(in[4*i:]))
	}
	var out []byte
	for i := range len(in) / 4 {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(at(i)+at(i&^31|(i+1)&31)))
	}
	return out, nil
}

// Defects that no output of an H200 showed (2026-11-18) are not merged, and the right kernel is.
func TestPlantedDefects(t *testing.T) {
	t.Parallel()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	if err := numpy(); err != nil {
		t.Skipf("needs python3 with numpy: %v", err)
	}
	const dir = "testdata/planted"
	s := newSetupOf(t, os.DirFS(dir), c, cacheDir)
	s.Builder.Dir = dir
	s.gpu.Facts.Arch, s.gpu.Compute = "sm_90", sumOfNeighbours
	s.Device = GPU(s.gpu.Facts, s.gpu.Open).Beside(simulator(provenBy))
	defects := []string{"", "out-of-bounds", "uninitialized", "race", "missing-fence", "missing-wait", "deadlock"}
	small, err := s.Kernel.Shapes("small")
	if err != nil {
		t.Fatal(err)
	}
	r := Request{Shapes: small, Seeds: []uint64{0}, Samples: 4}
	for i := range defects {
		v := s.variant(fmt.Sprintf("planted+DEFECT=%d", i))
		s.declare(v.String(), behaviour{})
		r.Variants = append(r.Variants, v)
	}
	if err := s.run(r); err != nil {
		t.Fatal(err)
	}
	for i, kind := range defects {
		if kind == "" {
			expectOutcome(t, s.runs[i], merged)
			continue
		}
		expectOutcome(t, s.runs[i], incorrect)
		expectReason(t, s.runs[i].Reasons.Correctness, ": "+kind)
	}
}

// A run without the simulator says so, and cannot be promoted.
func TestRunWithoutSimulator(t *testing.T) {
	t.Parallel()
	s := newProven(t, provenBy, "good")
	s.Device = GPU(s.gpu.Facts, s.gpu.Open).WithoutSimulator()
	r := s.runOne(s.tiny("good"))
	expectOutcome(t, r, merged)
	if r.Simulated != nil || !r.Requested.NoSim || r.NotSimulated() != "--no-sim" {
		t.Errorf("asked %+v, simulated %+v", r.Requested, r.Simulated)
	}
	expectReason(t, []string{r.Command()}, " --no-sim")
	var refused *Refusal
	if err := s.CheckPromotion(t.Context(), r); !errors.As(err, &refused) || refused.Evidence != missing {
		t.Errorf("the promotion: %v", err)
	} else {
		expectReason(t, []string{refused.Why}, "--no-sim")
	}
}

// The shapes of the simulator get the head dim that a variant is built for. A variant that takes none
// of them is simulated on the smallest that it takes.
func TestShapesOfSimulation(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.Device = s.Device.Beside(simulator(provenBy))
	of := func(variant string, quick bool, requested ...string) []spec.Shape {
		sims := s.startSimulations(t.Context(), quick, shapes(t, requested...))
		defer sims.stop()
		return sims.shapesOf(s.variant(variant))
	}
	for _, c := range []struct {
		variant string
		quick   bool
		count   int
		first   string
	}{
		{"stage2", false, len(s.Kernel.Run.SimShapes), "2x3x1x64"},
		{"stage2", true, len(s.Kernel.Run.SimQuick), "1x1x32x64"},
		{"stage7a+HEAD_DIM=128+TILE_M=16+TILE_N=128+KEY_GROUPS=1+EXP2_CUBIC_EIGHTHS=0", true, len(s.Kernel.Run.SimQuick), "1x1x32x128"},
	} {
		got := of(c.variant, c.quick, "1x8x512x64")
		if len(got) != c.count || got[0].String() != c.first {
			t.Errorf("%s: %v", c.variant, got)
		}
	}
}

// Of a shape that is too large for the simulator some blocks run, the last among them.
func TestSampleOfLargeShape(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ more, wrong string }{
		"right":          {"", ""},
		"behind the end": {"if (n > 100000 && i == n - 1) y[n + 2000] = 1;", "on the simulator, n=200001 seed 0: out-of-bounds at add.cu:4"},
		"communicating":  {"if (n > 100000 && i == n - 1) y[n + 2000] = 1;\n  __threadfence();", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(declaredKernels, "add"))); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "add.cu")
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Replace(string(source), "+ z[i];\n", "+ z[i];\n  "+c.more+"\n", 1)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := newDeclared(t, dir)
			s.Device = GPU(device.Facts{Arch: "sm_90"}, nil).Beside(s.Device)
			requested, err := s.Kernel.Shapes("n=1000,n=200001")
			if err != nil {
				t.Fatal(err)
			}
			sims := s.startSimulations(t.Context(), false, requested)
			defer sims.stop()
			image, _, err := s.Builder.Build(t.Context(), form.Target(s.Kernel, s.variant("add"), "sm_90"))
			if err != nil {
				t.Fatal(err)
			}
			found, err := sims.result(t.Context(), problem.Build{Variant: s.variant("add"), Image: image})
			if err != nil || found.Instances != 1 {
				t.Fatalf("%+v, %v", found, err)
			}
			if sampled := name != "communicating"; sampled != (len(found.Sampled) == 1) {
				t.Errorf("sampled %v", found.Sampled)
			}
			if got := strings.Join(found.Wrong, "\n"); !strings.HasPrefix(got, c.wrong) || c.wrong == "" && got != "" {
				t.Errorf("wrong %q, want %q", got, c.wrong)
			}
		})
	}
}

// A comparison refuses a variant that the simulator finds wrong, and records what was simulated.
func TestCompareIsSimulated(t *testing.T) {
	t.Parallel()
	s := newProven(t, provenBy, "good", "racy", "padded")
	request := CompareRequest{
		A: Candidate{Variant: s.variant("good")}, B: Candidate{Variant: s.variant("padded")}, Shapes: shapes(t, "1x2x8x64"),
		Rounds: 4, MaxRounds: 4, MaxWork: oracle.MaxWork,
	}
	c, err := s.Compare(t.Context(), request)
	if err != nil || c.A.Simulated == nil || c.A.Simulated.Instances != 2 || c.B.Simulated == nil || c.NoSim {
		t.Fatalf("%+v, %v", c, err)
	}
	request.B = Candidate{Variant: s.variant("racy")}
	var wrong *WrongError
	if _, err := s.Compare(t.Context(), request); !errors.As(err, &wrong) || wrong.Variant != "racy" {
		t.Errorf("with a race: %v", err)
	} else {
		expectReason(t, []string{wrong.Wrong}, "on the simulator, 1x2x8x64 seed 0 and 1 more: race")
	}
	s.Device = s.Device.WithoutSimulator()
	if c, err := s.Compare(t.Context(), request); err != nil || !c.NoSim || c.B.Simulated != nil {
		t.Errorf("without the simulator: %+v, %v", c, err)
	}
}

// A bench does not time a variant that the simulator finds wrong.
func TestBenchIsSimulated(t *testing.T) {
	t.Parallel()
	s := newProven(t, provenBy, "good", "racy")
	b := s.benched(BenchRequest{
		Variants: []spec.Variant{s.variant("good"), s.variant("racy")}, Shapes: shapes(t, "1x2x8x64"), Rounds: 4, MaxWork: oracle.MaxWork,
	})
	if b.Rows[0].P50US == nil || b.Rows[0].Wrong != "" || b.Rows[1].P50US != nil {
		t.Errorf("the rows are %+v", b.Rows)
	}
	expectReason(t, []string{b.Rows[1].Wrong}, "on the simulator, 1x2x8x64 seed 0 and 1 more: race")
	if len(b.Simulated) != 2 || b.Simulated["good"].Instances != 2 {
		t.Errorf("simulated %+v", b.Simulated)
	}
}

// A selection is incorrect if the simulator finds one of its parts wrong.
func TestJoinSimulated(t *testing.T) {
	t.Parallel()
	clean := &run.Simulated{Instances: 2, Schedules: 4, Shapes: []string{"a", "b"}}
	refused := &run.Simulated{Refused: "tcgen05", Why: "PTX line 1"}
	joined := (*run.Simulated)(nil).Add(clean).Add(refused).Add(nil).Add(&run.Simulated{Instances: 1, Schedules: 2, Shapes: []string{"b", "c"}})
	if joined.Instances != 3 || joined.Schedules != 4 || len(joined.Shapes) != 3 || joined.Refused != "tcgen05" || clean.Instances != 2 {
		t.Errorf("joined %+v", joined)
	}
}
