package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/document"
	"attune/internal/finding"
	"attune/internal/form"
	"attune/internal/half"
	"attune/internal/ledger"
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
	"attune/kernels"
)

// behaviour is what the kernel of a variant does.
type behaviour = devicetest.Behaviour

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
	*devicetest.Device
	findings []finding.Finding
	err      error
}

func (*sanitizedDevice) Tool() string { return "memcheck" }

func (d *sanitizedDevice) Findings() ([]finding.Finding, error) {
	return d.findings, errors.Join(d.err, d.Close())
}

// setup is a lab with a fake GPU and a ledger of its own, and the runs and steps that it reported.
type setup struct {
	*Lab
	t     *testing.T
	gpu   *devicetest.GPU
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
	s := &setup{t: t, gpu: devicetest.NewGPU("sm_89", attend), dir: t.TempDir()}
	kept, err := ledger.Open(t.Context(), s.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	s.Lab = &Lab{
		Kernel: kernel, Builder: toolchain.NewBuilder(folder, c, cacheDir), Ledger: kept, Device: GPU(s.gpu.Facts, s.gpu.Open),
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
	s.gpu.Variants[string(image.PTX)] = text
	s.gpu.Variants[string(image.Cubin)] = text
	s.gpu.Behaviours[text] = b
}

// built is the image of a variant.
func (s *setup) built(variant, arch string) *toolchain.Image {
	s.t.Helper()
	image, _, err := s.Builder.Build(s.t.Context(), form.Target(s.Kernel, s.variant(variant), arch))
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
