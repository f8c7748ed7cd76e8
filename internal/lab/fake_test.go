package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/isolate"
	"attune/internal/document"
	"attune/internal/half"
	"attune/internal/ledger"
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
	"attune/kernels"
)

// fakeGPU stands for a machine with a GPU. Its devices compute attention, or what the test sets, on
// the CPU from the arguments of a job, and take times that the test sets.
type fakeGPU struct {
	facts     device.Facts
	variants  map[string]string    // by image
	behaviour map[string]behaviour // by variant; without an entry it is correct and takes 10 us
	opened    int
	closed    int
	planned   []device.Plan // of each timing
	ran       []string      // variants of each job
	timed     []string      // variants of each timing, with commas
	compute   func(context.Context, device.Job) ([]byte, error)
}

// behaviour is what the kernel of a variant does.
type behaviour struct {
	seconds  float64                      // per launch; 0 for 10 us
	causal   float64                      // per launch with a causal mask; 0 for seconds
	ofJob    func(device.Job) float64     // seconds per launch of a job; may be nil
	noise    float64                      // relative standard deviation of the times
	output   func(out []byte)             // changes the output
	relaunch func(number int, out []byte) // changes the output of a relaunch, counted from 0
	repeated func(out []byte)             // changes the output of the second launch of an unordered job
	findings []device.Finding
	launch   func(number int) error // called before each problem, counted from 0
	timing   error
	timingOf func() error // called for each timing; may be nil

	timed   func(out []byte)         // changes the output of timed launches
	found   []device.Finding         // about timed launches
	process func(number int) float64 // factor of the times in a process, counted from 1
	joules  float64

	throttled []int // samples of each timing in which the GPU is throttled; they take twice as long
}

func newGPU(arch string) *fakeGPU {
	return &fakeGPU{
		facts:    device.Facts{Kind: "cuda", Name: "a fake", Arch: arch, Multiprocessors: 1},
		variants: map[string]string{}, behaviour: map[string]behaviour{}, compute: attend,
	}
}

func (g *fakeGPU) open(context.Context) (device.Device, error) {
	g.opened++
	return &fakeDevice{fakeGPU: g}, nil
}

// fakeDevice is one opened device.
type fakeDevice struct {
	*fakeGPU
	launches int
	lost     bool
	shut     bool
}

func (d *fakeDevice) Facts() device.Facts { return d.facts }

func (d *fakeDevice) Close() error {
	if !d.shut {
		d.shut = true
		d.closed++
	}
	return nil
}

// usable refuses the use of a lost device.
func (d *fakeDevice) usable(err error) error {
	if d.lost || d.shut {
		return isolate.ErrDeviceLost
	}
	d.lost = err != nil && !errors.Is(err, device.ErrNoClock) && device.Classify(err) != device.KernelUnsupported
	return err
}

func (d *fakeDevice) of(job device.Job) behaviour {
	name, known := d.variants[string(job.Image)]
	if !known {
		panic("BUG: a test ran an image that it did not declare")
	}
	return d.behaviour[name]
}

func (d *fakeDevice) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	b := d.of(job)
	d.ran = append(d.ran, d.variants[string(job.Image)])
	if b.launch != nil {
		if err := d.usable(b.launch(d.launches)); err != nil {
			return nil, err
		}
	}
	d.launches++
	if err := errors.Join(d.usable(nil), ctx.Err()); err != nil {
		return nil, err
	}
	out, err := d.compute(ctx, job)
	if err != nil {
		return nil, err
	}
	if b.output != nil {
		b.output(out)
	}
	outcome := &device.Outcome{Outputs: [][]byte{out}, Findings: b.findings, Loaded: device.Attributes{Registers: 42, MaxThreads: 256}}
	if job.Unordered && b.repeated != nil {
		again := slices.Clone(out)
		b.repeated(again)
		outcome.AddRepeated([][]byte{again})
	}
	for i, r := range job.Relaunches {
		next, err := job.Relaunched(r)
		if err != nil {
			return nil, err
		}
		if out, err = d.compute(ctx, next); err != nil {
			return nil, err
		}
		if b.output != nil {
			b.output(out)
		}
		if b.relaunch != nil {
			b.relaunch(i, out)
		}
		outcome.Relaunched = append(outcome.Relaunched, [][]byte{out})
	}
	return outcome, nil
}

func (d *fakeDevice) Time(ctx context.Context, jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	d.planned = append(d.planned, plan)
	var all []device.Series
	var names []string
	for _, job := range jobs {
		names = append(names, d.variants[string(job.Image)])
	}
	d.timed = append(d.timed, strings.Join(names, ","))
	for i, job := range jobs {
		b := d.of(job)
		if b.timingOf != nil {
			b.timing = b.timingOf()
		}
		if err := errors.Join(d.usable(b.timing), ctx.Err()); err != nil {
			return nil, err
		}
		if b.seconds == 0 {
			b.seconds = 10e-6
		}
		if b.causal != 0 && job.Args[11].Scalar[0] != 0 {
			b.seconds = b.causal
		}
		if b.ofJob != nil {
			b.seconds = b.ofJob(job)
		}
		if plan.Estimate {
			all = append(all, device.Series{Single: []float64{b.seconds + 4e-6}})
			continue
		}
		random := rand.New(rand.NewPCG(7, uint64(i)))
		series := device.Series{LaunchesPerSample: plan.LaunchLimit(), Copies: 4}
		for i := range plan.Samples {
			seconds := b.seconds * (1 + b.noise*random.NormFloat64())
			reading := device.Reading{ClockMHz: 1980, MemoryClockMHz: 3201, PowerWatts: 300, Celsius: 40}
			if slices.Contains(b.throttled, i) {
				seconds, reading.ClockMHz, reading.Throttled = 2*seconds, 990, []string{"power cap"}
			}
			series.Seconds, series.Readings = append(series.Seconds, seconds), append(series.Readings, reading)
		}
		empty := 0.6e-6
		series.EmptyNode, series.Single = &empty, []float64{b.seconds + 4e-6}
		if plan.ColdL2 {
			series.Flush = []float64{40e-6}
			series.WithFlush = []float64{40e-6 + b.seconds}
		}
		if b.process != nil {
			for i := range series.Seconds {
				series.Seconds[i] *= b.process(d.opened)
			}
		}
		if plan.Energy {
			series.Joules = b.joules
		}
		var err error
		if series.Check, err = b.check(ctx, d.compute, job, plan); err != nil {
			return nil, err
		}
		all = append(all, series)
	}
	return all, nil
}

// check is what the device reports about the timed launches: one with its output.
func (b behaviour) check(ctx context.Context, compute func(context.Context, device.Job) ([]byte, error), job device.Job, plan device.Plan) (*device.TimedCheck, error) {
	rotation := device.Rotation{Secret: plan.Secret, Count: 3, Step: 1}
	out, err := compute(ctx, job.Rotate(rotation))
	if err != nil {
		return nil, err
	}
	if b.timed != nil {
		b.timed(out)
	}
	return &device.TimedCheck{Outputs: 1, Findings: b.found, Launches: []device.TimedLaunch{{Rotation: rotation, Outputs: [][]byte{out}}}}, nil
}

// attend computes the output of a job from its arguments.
func attend(ctx context.Context, job device.Job) ([]byte, error) {
	if len(job.Args) != 13 {
		return nil, fmt.Errorf("a job with %d arguments", len(job.Args))
	}
	scalar := func(i int) uint32 { return binary.LittleEndian.Uint32(job.Args[i].Scalar) }
	values := func(codes, descale int) []float64 {
		t := tensor.Tensor{Codes: job.Args[codes].Input}
		for factors := job.Args[descale].Input; len(factors) > 0; factors = factors[4:] {
			t.Descale = append(t.Descale, math.Float32frombits(binary.LittleEndian.Uint32(factors)))
		}
		all := make([]float64, len(t.Codes))
		length := len(t.Codes) / len(t.Descale)
		for head := range t.Descale {
			t.Dequantize(all[head*length:][:length], head, 0)
		}
		return all
	}
	heads, group := int(scalar(7)), int(scalar(8))
	shape := tensor.Shape{Batch: 1, Heads: heads, SeqQ: int(scalar(9)), SeqK: int(scalar(10)), Causal: scalar(11) != 0}
	if group > 1 {
		shape.KVHeads = heads / group
	}
	shape.HeadDim = len(job.Args[0].Input) / (heads * shape.SeqQ)
	scale, usual := math.Float32frombits(scalar(12)), math.Sqrt(float64(shape.HeadDim))
	factor := float64(scale) * usual
	if scale != float32(1/usual) && (factor < 0.55 || factor > 1.5 || math.Abs(factor-1) < 0.15) {
		return nil, fmt.Errorf("a softmax scale of %g", scale)
	}
	queries := values(0, 4)
	for i := range queries {
		queries[i] *= factor
	}
	out, err := oracle.Attention(ctx, queries, values(1, 5), values(2, 6), shape)
	if err != nil {
		return nil, err
	}
	var memory []byte
	for _, x := range out {
		memory = binary.LittleEndian.AppendUint16(memory, uint16(half.Float16FromFloat64(x)))
	}
	if len(memory) != job.Args[3].Output {
		return nil, fmt.Errorf("an output buffer of %d bytes for %d", job.Args[3].Output, len(memory))
	}
	return memory, nil
}

// sanitizedDevice is a device under compute-sanitizer.
type sanitizedDevice struct {
	*fakeDevice
	findings []device.Finding
	err      error
}

func (*sanitizedDevice) Tool() string { return "memcheck" }

func (d *sanitizedDevice) Findings() ([]device.Finding, error) {
	return d.findings, errors.Join(d.err, d.Close())
}

// setup is a lab with a fake GPU and a ledger of its own, and the runs and steps that it reported.
type setup struct {
	*Lab
	t     *testing.T
	gpu   *fakeGPU
	dir   string // of the ledger
	runs  []*run.Run
	steps []Progress
}

// needsCompiler is why a test is skipped.
const needsCompiler = "needs the pinned compiler, which is not installed or left out by -short"

// compiler is the pinned one, or nil if it is not installed. Under -short it is nil: the tests that
// need one skip, and the others use the shipped images.
func compiler(t *testing.T) (*toolchain.Compiler, string) {
	t.Helper()
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		return nil, cacheDir
	}
	c, err := toolchain.Installed(t.Context(), cacheDir)
	if err != nil {
		return nil, cacheDir
	}
	return c, cacheDir
}

// newSetup is a lab for the shipped kernel on a fake sm_89.
func newSetup(t *testing.T) *setup {
	c, cacheDir := compiler(t)
	return newSetupOf(t, kernels.SDPA(), c, cacheDir)
}

func newSetupOf(t *testing.T, folder fs.FS, c *toolchain.Compiler, cacheDir string) *setup {
	t.Helper()
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	s := &setup{t: t, gpu: newGPU("sm_89"), dir: t.TempDir()}
	kept, err := ledger.Open(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	s.Lab = &Lab{
		Kernel: kernel, Builder: toolchain.NewBuilder(folder, c, cacheDir), Ledger: kept, Device: GPU(s.gpu.facts, s.gpu.open),
		Git: toolchain.Git{SHA: "0123abc", Branch: "main"}, Version: "0.0.0", Progress: func(p Progress) { s.steps = append(s.steps, p) },
		Describe: document.Describe,
	}
	return s
}

func (s *setup) variant(text string) spec.Variant {
	s.t.Helper()
	v, err := s.Kernel.Variant(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// declare tells the fake GPU what the kernel of a variant does.
func (s *setup) declare(text string, b behaviour) {
	s.t.Helper()
	arch, err := Arch(s.variant(text).Stage(), "", s.Device.facts.Arch)
	if err != nil {
		s.t.Fatal(err)
	}
	image := s.built(text, arch)
	s.gpu.variants[string(image.PTX)] = text
	s.gpu.variants[string(image.Cubin)] = text
	s.gpu.behaviour[text] = b
}

// built is the image of a variant.
func (s *setup) built(variant, arch string) *toolchain.Image {
	s.t.Helper()
	image, _, err := s.Builder.Build(s.t.Context(), Target(s.Kernel, s.variant(variant), arch))
	if err != nil {
		s.t.Fatal(err)
	}
	return image
}

// request is for variants on two small shapes, of which the first is a benchmark shape.
func (s *setup) request(variants ...string) Request {
	s.t.Helper()
	r := Request{
		Shapes: shapes(s.t, "1x2x40x64", "1x1x33x64:causal"), Benchmark: shapes(s.t, "1x2x40x64"),
		Seeds: []uint64{0, 1}, Samples: 40,
	}
	for _, text := range variants {
		r.Variants = append(r.Variants, s.variant(text))
	}
	return r
}

// draw draws inputs of a shape from a seed.
func draw(t *testing.T, shape string, seed uint64, options tensor.Options) *tensor.Inputs {
	t.Helper()
	return tensor.Draw(shapes(t, shape)[0].(tensor.Shape), seed, options)
}

func shapes(t *testing.T, texts ...string) []spec.Shape {
	t.Helper()
	var all []spec.Shape
	for _, text := range texts {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, shape)
	}
	return all
}

// run carries out a request and keeps the records.
func (s *setup) run(r Request) error {
	s.t.Helper()
	return s.Run(s.t.Context(), r, func(r *run.Run) { s.runs = append(s.runs, r) })
}

// runOne carries out a request for one variant and returns its record.
func (s *setup) runOne(r Request) *run.Run {
	s.t.Helper()
	if err := s.run(r); err != nil {
		s.t.Fatal(err)
	}
	if len(s.runs) != 1 {
		s.t.Fatalf("%d runs", len(s.runs))
	}
	return s.runs[0]
}

// recorded lists the variants in the ledger, oldest first.
func (s *setup) recorded() []string {
	s.t.Helper()
	entries, err := s.Ledger.List(context.Background(), ledger.Filter{OldestFirst: true})
	if err != nil {
		s.t.Fatal(err)
	}
	var variants []string
	for _, e := range entries {
		variants = append(variants, e.Variant)
	}
	return variants
}

// expectOutcome compares a run with "verdict resources/correctness/performance/profile".
func expectOutcome(t *testing.T, r *run.Run, want string) {
	t.Helper()
	got := fmt.Sprintf("%s %s/%s/%s/%s", r.Verdict, r.Gates.Resources, r.Gates.Correctness, r.Gates.Performance, r.Gates.Profile)
	if got != want {
		t.Errorf("%s: got %s, want %s\nreasons: %+v", r.Variant, got, want, r.Reasons)
	}
}

// expectReason looks for a text among reasons.
func expectReason(t *testing.T, reasons []string, want string) {
	t.Helper()
	if !slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(reason, want) }) {
		t.Errorf("no reason contains %q: %q", want, reasons)
	}
}
