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
	"attune/internal/half"
	"attune/internal/ledger"
	"attune/internal/oracle"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
	"attune/kernels"
)

// gpu is a double of a machine with a GPU. Its devices compute attention on the CPU, from nothing but the arguments of a job, and take
// times that a test knows beforehand.
type gpu struct {
	facts     device.Facts
	variants  map[string]string    // whose an image is
	behaviour map[string]behaviour // of variants; those that have none are right and take 10 us
	opened    int
	closed    int
	planned   []device.Plan // of each timing
}

// behaviour is what the kernel of a variant does.
type behaviour struct {
	seconds  float64 // a launch, or 10 us
	causal   float64 // the same with a causal mask, where it is another time
	noise    float64 // standard deviation of that, as a share
	answers  func(out []byte)
	findings []device.Finding
	launch   func(number int) error // is asked before each problem, counted from 0
	timing   error

	throttled []int // samples of each timing that something held the clocks down in: they take twice as long
}

func newGPU(arch string) *gpu {
	return &gpu{
		facts:    device.Facts{Kind: "cuda", Name: "a double", Arch: arch, Multiprocessors: 1},
		variants: map[string]string{}, behaviour: map[string]behaviour{},
	}
}

func (g *gpu) open(context.Context) (device.Device, error) {
	g.opened++
	return &opened{gpu: g}, nil
}

// opened is a device for one variant.
type opened struct {
	*gpu
	launches int
	lost     bool
	shut     bool
}

func (d *opened) Facts() device.Facts { return d.facts }

func (d *opened) Close() error {
	if !d.shut {
		d.shut = true
		d.closed++
	}
	return nil
}

// usable refuses what a lost device can no longer do.
func (d *opened) usable(err error) error {
	if d.lost || d.shut {
		return isolate.ErrUsedUp
	}
	d.lost = err != nil && !errors.Is(err, device.ErrNoClock)
	return err
}

func (d *opened) of(job device.Job) behaviour {
	name, known := d.variants[string(job.Image)]
	if !known {
		panic("BUG: a test ran an image that it has not declared")
	}
	return d.behaviour[name]
}

func (d *opened) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	b := d.of(job)
	if b.launch != nil {
		if err := d.usable(b.launch(d.launches)); err != nil {
			return nil, err
		}
	}
	d.launches++
	if err := errors.Join(d.usable(nil), ctx.Err()); err != nil {
		return nil, err
	}
	out, err := attend(ctx, job)
	if err != nil {
		return nil, err
	}
	if b.answers != nil {
		b.answers(out)
	}
	return &device.Outcome{Outputs: [][]byte{out}, Findings: b.findings, Loaded: device.Attributes{Registers: 42, MaxThreads: 256}}, nil
}

func (d *opened) Time(ctx context.Context, jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	d.planned = append(d.planned, plan)
	var all []device.Series
	for i, job := range jobs {
		b := d.of(job)
		if err := errors.Join(d.usable(b.timing), ctx.Err()); err != nil {
			return nil, err
		}
		if b.seconds == 0 {
			b.seconds = 10e-6
		}
		if isCausal := job.Args[11].Scalar[0] != 0; isCausal && b.causal != 0 {
			b.seconds = b.causal
		}
		random := rand.New(rand.NewPCG(7, uint64(i)))
		series := device.Series{LaunchesPerSample: plan.MostLaunches(), Copies: 4}
		for i := range plan.Samples {
			seconds, reading := b.seconds*(1+b.noise*random.NormFloat64()), device.Reading{ClockMHz: 1980, MemoryClockMHz: 3201, PowerWatts: 300, Celsius: 40}
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
		all = append(all, series)
	}
	return all, nil
}

// attend computes what a job asks for: the arguments are all it knows of the problem.
func attend(ctx context.Context, job device.Job) ([]byte, error) {
	if len(job.Args) != 13 {
		return nil, fmt.Errorf("%d arguments", len(job.Args))
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
	if scale := math.Float32frombits(scalar(12)); scale != float32(1/math.Sqrt(float64(shape.HeadDim))) {
		return nil, fmt.Errorf("a softmax scale of %g", scale)
	}
	out, err := oracle.Attention(ctx, values(0, 4), values(1, 5), values(2, 6), shape)
	if err != nil {
		return nil, err
	}
	var memory []byte
	for _, x := range out {
		memory = binary.LittleEndian.AppendUint16(memory, uint16(half.Float16FromFloat64(x)))
	}
	if len(memory) != job.Args[3].Output {
		return nil, fmt.Errorf("an output of %d bytes for %d", job.Args[3].Output, len(memory))
	}
	return memory, nil
}

// watched is a device under a sanitizer.
type watched struct {
	*opened
	findings []device.Finding
	err      error
}

func (*watched) Tool() string { return "memcheck" }

func (w *watched) Findings() ([]device.Finding, error) {
	return w.findings, errors.Join(w.err, w.Close())
}

// setup is a lab around a double, with a ledger of its own, and the runs that it has told of.
type setup struct {
	*Lab
	t      *testing.T
	gpu    *gpu
	dir    string // of the ledger
	runs   []*run.Run
	events []Event
}

// compiler is the pinned one, or nil where it is not installed.
func compiler(t *testing.T) (*toolchain.Compiler, string) {
	t.Helper()
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	c, err := toolchain.Installed(t.Context(), cacheDir)
	if err != nil {
		return nil, cacheDir
	}
	return c, cacheDir
}

// newSetup makes a lab for the shipped kernel on a double of an sm_89.
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
		Kernel: kernel, Builder: toolchain.NewBuilder(folder, c, cacheDir), Ledger: kept, Open: s.gpu.open, Facts: s.gpu.facts,
		Git: toolchain.Git{SHA: "0123abc", Branch: "main"}, Version: "0.0.0", Watch: func(e Event) { s.events = append(s.events, e) },
		Render: report.Markdown, RenderBench: report.BenchMarkdown,
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

// knows declares a variant to the double, with what its kernel does.
func (s *setup) knows(text string, b behaviour) {
	s.t.Helper()
	target, err := s.target(Request{}, s.variant(text))
	if err != nil {
		s.t.Fatal(err)
	}
	image, _, err := s.Builder.Build(s.t.Context(), target)
	if err != nil {
		s.t.Fatal(err)
	}
	s.gpu.variants[string(image.PTX)] = text
	s.gpu.variants[string(image.Cubin)] = text
	s.gpu.behaviour[text] = b
}

// request asks for variants on two small shapes, the first of which is judged.
func (s *setup) request(variants ...string) Request {
	s.t.Helper()
	r := Request{Shapes: shapes(s.t, "1x2x40x64", "1x1x33x64:causal"), Judged: shapes(s.t, "1x2x40x64"), Seeds: []uint64{0, 1}, Samples: 40}
	for _, text := range variants {
		r.Variants = append(r.Variants, s.variant(text))
	}
	return r
}

func shapes(t *testing.T, texts ...string) []tensor.Shape {
	t.Helper()
	var all []tensor.Shape
	for _, text := range texts {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, shape)
	}
	return all
}

// run does a request, and keeps the records.
func (s *setup) run(r Request) error {
	s.t.Helper()
	return s.Run(s.t.Context(), r, func(r *run.Run) { s.runs = append(s.runs, r) })
}

// one does a request for one variant, which the lab must manage, and gives its record.
func (s *setup) one(r Request) *run.Run {
	s.t.Helper()
	if err := s.run(r); err != nil {
		s.t.Fatal(err)
	}
	if len(s.runs) != 1 {
		s.t.Fatalf("%d runs", len(s.runs))
	}
	return s.runs[0]
}

// recorded lists the variants in the ledger, the oldest first.
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

// expect holds the outcome of a run against "verdict resources/correctness/performance/profile".
func expect(t *testing.T, r *run.Run, want string) {
	t.Helper()
	got := fmt.Sprintf("%s %s/%s/%s/%s", r.Verdict, r.Gates.Resources, r.Gates.Correctness, r.Gates.Performance, r.Gates.Profile)
	if got != want {
		t.Errorf("%s: got %s, want %s\nreasons: %+v", r.Variant, got, want, r.Reasons)
	}
}

// says looks for a text among reasons.
func says(t *testing.T, reasons []string, want string) {
	t.Helper()
	if !slices.ContainsFunc(reasons, func(reason string) bool { return strings.Contains(reason, want) }) {
		t.Errorf("no reason says %q: %q", want, reasons)
	}
}
