package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/device"
	"attune/internal/oracle"
	"attune/internal/peer"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/tensor"
)

// fakePeers stands for the process that runs peers. They compute attention in float64 and take
// times that the test sets.
type fakePeers struct {
	t        *testing.T
	facts    peer.Facts
	seconds  map[string]float64         // per launch; without an entry 20 us
	fail     map[string]func(int) error // called with the number of samples so far; errBroken ends the process
	prepare  map[string]error
	output   func(out []float64) // changes the output
	started  int
	closed   int
	startErr error
	log      []string // the sampled peers in their order
	graph    peer.Graph

	inputs  *tensor.Inputs
	ready   map[string]bool
	samples map[string]int
	paced   []peer.Pace
	lost    bool

	joules    float64
	energyErr error
}

var errBroken = &peer.Error{Why: "it ended (signal: killed)", Do: "take another"}

func newPeers(t *testing.T) *fakePeers {
	return &fakePeers{
		t: t, facts: peer.Facts{Torch: "2.11.0", GPU: "a fake"}, seconds: map[string]float64{}, fail: map[string]func(int) error{},
		prepare: map[string]error{}, samples: map[string]int{},
	}
}

func (p *fakePeers) start(context.Context) (Peers, error) {
	if p.startErr != nil {
		return nil, p.startErr
	}
	p.started++
	p.lost, p.ready = false, map[string]bool{}
	return p, nil
}

func (p *fakePeers) Facts() peer.Facts { return p.facts }
func (p *fakePeers) Lost() bool        { return p.lost }
func (p *fakePeers) Close() error      { p.closed++; return nil }

func (p *fakePeers) Missing(who peer.Peer) error {
	if why := p.facts.Missing[who.Kind]; why != "" {
		return &peer.Error{Why: why, Do: "install it"}
	}
	return nil
}

func (p *fakePeers) broken(err error) error {
	p.lost = p.lost || errors.Is(err, errBroken)
	return err
}

func (p *fakePeers) Prepare(_ context.Context, who peer.Peer, data problem.PeerData, g peer.Graph) error {
	in := data.Attention
	if err := who.CheckShape(in.Shape); err != nil {
		return err
	}
	if err := p.broken(p.prepare[who.String()]); err != nil {
		return err
	}
	p.inputs, p.graph, p.ready[who.String()] = in, g, true
	return nil
}

func (p *fakePeers) Output(ctx context.Context, who peer.Peer) (map[string][]float64, error) {
	if !p.ready[who.String()] {
		p.t.Errorf("%s computes an output and is not prepared", who)
	}
	out, err := oracle.Quantized(ctx, p.inputs, nil)
	if p.output != nil {
		p.output(out)
	}
	for i, x := range out {
		out[i] = float64(float32(x))
	}
	return map[string][]float64{"o": out}, err
}

func (p *fakePeers) Energy(_ context.Context, who peer.Peer) (float64, error) {
	if !p.ready[who.String()] {
		p.t.Errorf("the energy of %s is measured and it is not prepared", who)
	}
	return p.joules, p.energyErr
}

func (p *fakePeers) Sample(_ context.Context, who peer.Peer, samples int, pace peer.Pace) ([]float64, error) {
	name := who.String()
	if !p.ready[name] {
		p.t.Errorf("%s is timed and not prepared", who)
	}
	if fail := p.fail[name]; fail != nil {
		if err := p.broken(fail(p.samples[name])); err != nil {
			return nil, err
		}
	}
	p.log = append(p.log, name)
	p.samples[name] += samples
	p.paced = append(p.paced, pace)
	seconds := p.seconds[name]
	if seconds == 0 {
		seconds = 20e-6
	}
	return slices.Repeat([]float64{seconds}, samples), nil
}

func (p *fakePeers) Release(context.Context) error { clear(p.ready); return nil }

// bench is a request for stage1, which takes 16 us, and stage2, which takes 10 us, beside peers.
func (s *setup) bench(p *fakePeers, kinds string, shapeTexts ...string) BenchRequest {
	s.t.Helper()
	s.declare("stage1", behaviour{Seconds: 16e-6})
	s.declare("stage2", behaviour{})
	parsed, err := peer.Parse(kinds, "fp16")
	if err != nil {
		s.t.Fatal(err)
	}
	if len(shapeTexts) == 0 {
		shapeTexts = []string{"1x2x40x64"}
	}
	return BenchRequest{
		Variants: s.request("stage1", "stage2").Variants, Shapes: shapes(s.t, shapeTexts...), Rounds: 26,
		Peers: parsed, StartPeers: p.start, MaxWork: oracle.MaxWork,
	}
}

func (s *setup) benched(r BenchRequest) *run.Bench {
	s.t.Helper()
	b, err := s.Bench(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// brief is the rows in short: name, time, speedup of our best, and whether it is wrong.
func brief(b *run.Bench) string {
	var all []string
	for _, r := range b.Rows {
		text := r.Name
		if r.P50US != nil {
			text += fmt.Sprintf(" %.0f", *r.P50US)
		}
		if r.Speedup != nil {
			text += fmt.Sprintf(" %.2fx", r.Speedup.Ratio)
		}
		if r.Wrong != "" {
			text += " WRONG"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (s *setup) rows(b *run.Bench, want string) {
	s.t.Helper()
	if got := brief(b); got != want {
		s.t.Errorf("rows: %s\nwant: %s\nskipped: %+v", got, want, b.Skipped)
	}
}

func expectSkipped(t *testing.T, b *run.Bench, want ...run.Skipped) {
	t.Helper()
	if len(b.Skipped)+len(want) > 0 && !slices.Equal(b.Skipped, want) {
		t.Errorf("skipped: %+v\nwant: %+v", b.Skipped, want)
	}
}

func TestBench(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	p.seconds["torch-flash"] = 25e-6
	b := s.benched(s.bench(p, "torch-flash,torch-cudnn", "1x2x40x64", "1x1x33x64:causal"))
	one := "stage1 16 1.60x, stage2 10, torch-flash 25 2.50x, torch-cudnn 20 2.00x"
	s.rows(b, one+", "+one)
	expectSkipped(t, b)
	if len(b.Best) != 2 || b.Best[0].Variant != "stage2" || b.Best[0].Peer != "torch-cudnn" || math.Abs(b.Overall().Ratio-2) > 1e-9 {
		t.Errorf("best: %+v", b.Best)
	}
	r := b.Rows[2]
	if r.Shape != "1x2x40x64" || !r.Peer || r.DType != "fp16" || *r.MaxErr > 1e-7 || r.Launches != 50 || math.Abs(*r.TFLOPS-4*2*40*40*64/25e-6/1e12) > 1e-9 {
		t.Errorf("a peer's row: %+v", r)
	}
	if p.graph != (peer.Graph{Launches: 50, Copies: 4}) || p.started != 1 || p.closed != 1 || s.gpu.Opened != 1 || s.gpu.Closed != 1 || b.Peers.Torch != "2.11.0" {
		t.Errorf("%+v in a sample; %d started, %d closed; %d devices, %d closed", p.graph, p.started, p.closed, s.gpu.Opened, s.gpu.Closed)
	}
	for _, r := range b.Rows {
		if n := len(slices.Concat(r.Seconds...)); len(r.Seconds) != 12 || n != 26 {
			t.Errorf("%s has %d samples in %d blocks; want 26 in 12", r.Name, n, len(r.Seconds))
		}
	}
	// ABBA: the last of a block is the first of the next.
	if got := strings.Join(p.log[:6], " "); got != "torch-flash torch-cudnn torch-cudnn torch-flash torch-flash torch-cudnn" {
		t.Errorf("the order of samples: %s", got)
	}
	if b.Ceilings != nil || r.Shares != nil {
		t.Error("shares of ceilings that were not measured on this device")
	}
}

// Every timing has graphs of the requested length, and peers have as many launches as ours, also if
// no variant of ours is correct. The result mentions a length that is not the default.
func TestBenchLaunches(t *testing.T) {
	t.Parallel()
	const ten = "; graphs of at most 10 launches"
	check := func(what string, launches, want int, mentioned string, ours behaviour) {
		t.Helper()
		s, p := newSetup(t), newPeers(t)
		r := s.bench(p, "torch-flash")
		r.Launches = launches
		s.declare("stage1", ours)
		s.declare("stage2", ours)
		b := s.benched(r)
		if p.graph.Launches != want || b.Rows[2].Launches != want {
			t.Errorf("%s: a peer has graphs of %d launches, and its row says %d; want %d", what, p.graph.Launches, b.Rows[2].Launches, want)
		}
		if b.Timing != benchTiming+mentioned {
			t.Errorf("%s: timing: %s", what, b.Timing)
		}
		for _, row := range b.Rows[:2] {
			if row.Wrong == "" && row.Launches != want {
				t.Errorf("%s: %s has %d launches a sample; want %d", what, row.Name, row.Launches, want)
			}
		}
		for _, plan := range s.gpu.Planned {
			if plan.Launches != launches {
				t.Errorf("%s: a plan of %+v", what, plan)
			}
		}
	}
	wrong := behaviour{Output: func(out []byte) { clear(out) }}
	check("default", 0, 50, "", behaviour{})
	check("the default by name", 50, 50, "", behaviour{})
	check("ten", 10, 10, ten, behaviour{})
	check("ten, and ours are wrong", 10, 10, ten, wrong)
	check("default, and ours are wrong", 0, 50, "", wrong)
}

// The GPU rests or is loaded before the samples of ours and of peers, and the result mentions it.
func TestBenchPace(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	r := s.bench(p, "torch-flash")
	r.Pace = peer.Pace{Rest: 50 * time.Millisecond, Load: 300 * time.Millisecond}
	b := s.benched(r)
	if !strings.HasPrefix(b.Timing, benchTiming+"; the GPU rests for 50ms before each sample, ") ||
		!strings.Contains(b.Timing, "; the launches of a sample run for 300ms before it without a pause, ") {
		t.Errorf("timing: %s", b.Timing)
	}
	for _, plan := range s.gpu.Planned {
		if plan.Rest != r.Pace.Rest || plan.Load != r.Pace.Load {
			t.Errorf("a plan of %+v", plan)
		}
	}
	if len(p.paced) == 0 || slices.ContainsFunc(p.paced, func(pace peer.Pace) bool { return pace != r.Pace }) {
		t.Errorf("the paces of a peer: %v", p.paced)
	}
}

func TestBenchCeilings(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	s.gpu.Facts.Name, p.facts.GPU = "NVIDIA H200", "NVIDIA H200"
	s.Device.facts = s.gpu.Facts
	p.seconds["torch-math"] = 1e-12
	b := s.benched(s.bench(p, "torch-flash,torch-math"))
	s.rows(b, "stage1 16 1.60x, stage2 10, torch-flash 20 2.00x, torch-math WRONG")
	flops, bytes := 4.0*2*40*40*64, 2.0*64*40*8
	want := run.Shares{BF16: flops / 20e-6 / 784e12, FP8: flops / 20e-6 / 1468e12, Copy: bytes / 20e-6 / 4.22e12}
	got := b.Rows[2].Shares
	if math.Abs(got.BF16/want.BF16-1) > 1e-9 || math.Abs(got.FP8/want.FP8-1) > 1e-9 || math.Abs(got.Copy/want.Copy-1) > 1e-9 {
		t.Errorf("shares %+v; want %+v", *got, want)
	}
	if ours := b.Rows[1].Shares; math.Abs(ours.Copy/(want.Copy*2*5/8)-1) > 1e-9 {
		t.Errorf("our E4M3 inputs are half the size: %+v", *ours)
	}
	if b.Ceilings.Device != "NVIDIA H200" || !strings.Contains(b.Rows[3].Wrong, "TFLOP/s, and an FP8 GEMM reaches 1468 on this device") {
		t.Errorf("%+v, %q", b.Ceilings, b.Rows[3].Wrong)
	}
}

// An error in a sampled row is found, and one in another row is not. The result has the number of
// checked rows.
func TestBenchOnSampledRows(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	r := s.bench(p, "torch-flash", "1x2x40x64", "1x1x8x64")
	r.MaxWork, r.SampleSeed = 10_000, new(uint64)
	rows := oracle.Sample(r.Shapes[0].(tensor.Shape), 0, r.MaxWork)
	sampled, other := rows[len(rows)/2], -1
	for i := range r.Shapes[0].(tensor.Shape).Rows() {
		if !slices.Contains(rows, i) {
			other = i
		}
	}
	spoil := func(row int) behaviour {
		return behaviour{Output: func(out []byte) {
			if len(out) > 2*64*row {
				out[2*64*row+1] = 0x7C
			}
		}}
	}
	s.declare("stage1", spoil(other))
	s.declare("stage2", spoil(sampled))
	b := s.benched(r)
	s.rows(b, "stage1 10, stage2 WRONG, torch-flash 20 2.00x, stage1 10, stage2 10 1.00x, torch-flash 20 2.00x")
	if place := fmt.Sprintf("batch 0 head %d row %d dim 0", sampled/40, sampled%40); !strings.Contains(b.Rows[1].Wrong, place) {
		t.Errorf("wrong: %s; want %s", b.Rows[1].Wrong, place)
	}
	want := []run.CheckedShape{{Shape: "1x2x40x64", Coverage: oracle.Coverage{Rows: len(rows), Of: 80}}, {Shape: "1x1x8x64", Coverage: oracle.Coverage{Rows: 8, Of: 8}}}
	if diff := cmp.Diff(want, b.Checked); diff != "" {
		t.Errorf("checked rows (-want +got):\n%s", diff)
	}
}

// The gates check every row, however much work that is.
func TestGatesCheckEveryRow(t *testing.T) {
	t.Parallel()
	l := &Lab{}
	p := l.problem().Plain(shapes(t, "1x1x70x64")[0], 0)
	if whole, err := l.references(everyRow, nil).Get(t.Context(), p); err != nil || !whole.Coverage().Whole() {
		t.Errorf("%v, %v", whole, err)
	}
	if some, err := l.references(1, nil).Get(t.Context(), p); err != nil || some.Coverage().Whole() {
		t.Errorf("%v, %v", some, err)
	}
	if rows := oracle.Sample(shapes(t, "1x32x16384x64")[0].(tensor.Shape), 0, everyRow); rows != nil {
		t.Errorf("the gates check a sample of %d rows", len(rows))
	}
}

// Without Python the bench has our own figures.
func TestBenchWithoutPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	p.startErr = &peer.Error{Why: "there is no python3 in PATH", Do: "install one"}
	b := s.benched(s.bench(p, "all"))
	s.rows(b, "stage1 16 1.60x, stage2 10")
	expectSkipped(t, b, run.Skipped{Name: "torch-flash, torch-cudnn, torch-efficient, torch-math", Why: "there is no python3 in PATH", Do: "install one"})
	if b.Peers != nil || len(b.Best) != 0 {
		t.Errorf("peers without a process: %+v", b)
	}

	p.startErr, p.facts.GPU = nil, "another card"
	b = s.benched(s.bench(p, "torch-flash"))
	s.rows(b, "stage1 16 1.60x, stage2 10")
	if len(b.Skipped) != 1 || !strings.Contains(b.Skipped[0].Why, "they would run on another card") || p.closed != 1 {
		t.Errorf("skipped: %+v, %d closed", b.Skipped, p.closed)
	}
	p.facts.GPU, p.facts.UUID, s.gpu.Facts.UUID = "a fake", "1234", "GPU-1235"
	if b = s.benched(s.bench(p, "torch-flash")); len(b.Skipped) != 1 {
		t.Errorf("a card of the same name: %+v", b)
	}
	if b = s.benched(s.bench(p, "none")); len(b.Skipped) != 0 {
		t.Errorf("skipped without a request: %+v", b.Skipped)
	}
}

func TestBenchWithFailingPeers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("times peers that fail in many ways")
	}
	const two, left = "stage1 16 1.60x, stage2 10", "torch-cudnn 20 2.00x"
	shape := "1x2x40x64"
	refusal := &peer.Error{Why: "No available kernel.", Do: "take another"}
	once := func(err error, at int) func(int) error {
		return func(samples int) error {
			if samples >= at {
				return err
			}
			return nil
		}
	}
	check := func(what string, set func(*fakePeers), started int, rows string, out ...run.Skipped) {
		t.Helper()
		s, p := newSetup(t), newPeers(t)
		set(p)
		b := s.benched(s.bench(p, "torch-cudnn,torch-flash,torch-math", shape))
		s.rows(b, rows)
		expectSkipped(t, b, out...)
		if p.started != started || p.closed != started {
			t.Errorf("%s: %d processes started, %d closed; want %d", what, p.started, p.closed, started)
		}
	}
	died := run.Skipped{Name: "torch-flash", Shape: shape, Why: errBroken.Why, Do: "take another"}
	check("refuses", func(p *fakePeers) { p.prepare["torch-flash"] = refusal }, 1, two+", "+left+", torch-math 20 2.00x",
		run.Skipped{Name: "torch-flash", Shape: shape, Why: refusal.Why, Do: refusal.Do})
	check("breaks when it is prepared", func(p *fakePeers) { p.prepare["torch-flash"] = errBroken }, 2, two+", "+left+", torch-math 20 2.00x", died)
	check("dies midway", func(p *fakePeers) { p.fail["torch-flash"] = once(errBroken, 10) }, 2, two+", "+left+", torch-math 20 2.00x", died)
	check("impossible times", func(p *fakePeers) { p.fail["torch-flash"] = once(refusal, 0) }, 1, two+", "+left+", torch-math 20 2.00x",
		run.Skipped{Name: "torch-flash", Shape: shape, Why: refusal.Why, Do: refusal.Do})
	check("missing", func(p *fakePeers) { p.facts.Missing = map[string]string{"torch-flash": "too old"} }, 1, two+", "+left+", torch-math 20 2.00x",
		run.Skipped{Name: "torch-flash", Why: "too old", Do: "install it"})
	check("dies, and there is no other process", func(p *fakePeers) {
		p.fail["torch-flash"] = func(samples int) error {
			if samples < 10 {
				return nil
			}
			p.startErr = &peer.Error{Why: "no more"}
			return errBroken
		}
	}, 1, two, died, run.Skipped{Name: "torch-cudnn, torch-math", Why: "no more"})
	check("dies, and the next one with it", func(p *fakePeers) {
		p.fail["torch-flash"] = func(samples int) error {
			p.prepare["torch-cudnn"] = errBroken
			return errBroken
		}
	}, 3, two+", torch-math 20 2.00x", died, run.Skipped{Name: "torch-cudnn", Shape: shape, Why: errBroken.Why, Do: "take another"})
	check("wrong", func(p *fakePeers) { p.output = func(out []float64) { clear(out) } }, 1, two+", torch-cudnn WRONG, torch-flash WRONG, torch-math WRONG")
	check("not a number", func(p *fakePeers) { p.output = func(out []float64) { out[7] = math.NaN() } }, 1,
		two+", torch-cudnn WRONG, torch-flash WRONG, torch-math WRONG")
}

// A peer that ended its process is excluded from the next shapes. One that refused a shape is not.
func TestBenchExcludesPeers(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	p.prepare["torch-flash"] = errBroken
	b := s.benched(s.bench(p, "torch-flash,torch-cudnn", "1x2x40x64:kv=50:causal", "1x2x40x64", "1x2x48x64"))
	two, cudnn := "stage1 16 1.60x, stage2 10", "torch-cudnn 20 2.00x"
	s.rows(b, two+", "+two+", "+cudnn+", "+two+", "+cudnn)
	if len(b.Skipped) != 3 || !strings.Contains(b.Skipped[0].Why, "not supported by this peer") || b.Skipped[2].Shape != "1x2x40x64" || p.started != 2 {
		t.Errorf("skipped: %+v; %d processes", b.Skipped, p.started)
	}
}

func TestBenchWrongVariants(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	r := s.bench(p, "torch-flash")
	s.declare("stage1", behaviour{Output: func(out []byte) { clear(out) }})
	b := s.benched(r)
	s.rows(b, "stage1 WRONG, stage2 10, torch-flash 20 2.00x")

	s.declare("stage2", behaviour{Launch: func(int) error { return &device.Fault{Code: "ILLEGAL_ADDRESS"} }})
	b = s.benched(r)
	s.rows(b, "stage1 WRONG, stage2 WRONG, torch-flash 20")
	if len(b.Best) != 0 {
		t.Errorf("a best variant: %+v", b.Best)
	}

	// After a fault the next variant gets a fresh device.
	before := s.gpu.Opened
	s.declare("stage1", behaviour{Launch: func(int) error { return &device.Fault{Code: "ILLEGAL_ADDRESS"} }})
	s.declare("stage2", behaviour{})
	b = s.benched(r)
	s.rows(b, "stage1 WRONG, stage2 10, torch-flash 20 2.00x")
	if s.gpu.Opened != before+2 || s.gpu.Closed != s.gpu.Opened {
		t.Errorf("%d devices opened, %d closed", s.gpu.Opened-before, s.gpu.Closed)
	}
	s.declare("stage1", behaviour{})

	s.declare("stage2", behaviour{Launch: func(int) error { return errors.New("the lab is on fire") }})
	if _, err := s.Bench(t.Context(), r); err == nil || !strings.Contains(err.Error(), "stage2 on 1x2x40x64: the lab is on fire") {
		t.Errorf("a failure that is not the kernel's: %v", err)
	}
}

// The record has the complete result, the samples and the builds.
func TestBenchIsRecorded(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	r := s.bench(p, "torch-flash", "1x2x40x64", "1x1x33x64:causal")
	r.Command = "attune bench stage1 stage2"
	b := s.benched(r)
	read := func(name string) []byte {
		t.Helper()
		text, err := s.Ledger.ReadBench(t.Context(), b.ID, name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	again, err := run.DecodeBench(read("bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	bare, samples := b.SplitSamples()
	if diff := cmp.Diff(&bare, again, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the record (-done +read):\n%s", diff)
	}
	var file struct{ Samples []run.BenchSamples }
	if err := json.Unmarshal(read("samples.json"), &file); err != nil || len(file.Samples) != 6 || len(file.Samples[5].Seconds) != 12 {
		t.Errorf("%d samples: %v", len(file.Samples), err)
	}
	if diff := cmp.Diff(samples, file.Samples); diff != "" {
		t.Errorf("the samples (-done +read):\n%s", diff)
	}
	if !strings.Contains(string(read("report.md")), "| 1x1x33x64:causal | `stage2` |") {
		t.Errorf("report.md:\n%s", read("report.md"))
	}
	if len(again.Builds) != 2 || again.Builds[1].Variant != "stage2" || again.Builds[1].Knobs["HEAD_DIM"] != 64 || again.Builds[1].PTXHash == "" ||
		again.GitSHA != "0123abc" || again.Attune != "0.0.0" || again.Kernel != "sdpa" || again.Command != r.Command || again.Ended != "" {
		t.Errorf("the record: %+v", again)
	}
	for i, row := range b.Rows {
		if len(row.Seconds) == 0 || again.Rows[i].Seconds != nil {
			t.Errorf("%s has %d blocks in the result, and %d in the record", row.Name, len(row.Seconds), len(again.Rows[i].Seconds))
		}
	}
}

// A bench that is interrupted or fails keeps the finished shapes.
func TestBenchKeepsFinishedShapes(t *testing.T) {
	t.Parallel()
	const one = "stage1 16 1.60x, stage2 10, torch-flash 20 2.00x"
	s, p := newSetup(t), newPeers(t)
	r := s.bench(p, "torch-flash", "1x2x40x64", "1x1x33x64:causal", "1x1x8x64")
	ctx, cancel := context.WithCancel(t.Context())
	p.fail["torch-flash"] = func(samples int) error {
		if samples < r.Rounds+5 { // in the second shape
			return nil
		}
		cancel()
		return ctx.Err()
	}
	b, err := s.Bench(ctx, r)
	if !errors.Is(err, context.Canceled) || b == nil {
		t.Fatalf("interrupted: %v, %v", b, err)
	}
	check := func(why string) {
		t.Helper()
		s.rows(b, one)
		text, err := s.Ledger.ReadBench(t.Context(), b.ID, "bench.json")
		if err != nil {
			t.Fatal(err)
		}
		again, err := run.DecodeBench(text)
		if err != nil || again.Ended != why || len(again.Checked) != 1 || len(again.Requested) != 3 || brief(again) != one {
			t.Errorf("the record: %v, %+v", err, again)
		}
	}
	check("interrupted")

	delete(p.fail, "torch-flash")
	s.declare("stage2", behaviour{Launch: func(n int) error {
		if n == 0 {
			return nil
		}
		return errors.New("the lab is on fire")
	}})
	s.declare("stage1", behaviour{Seconds: 16e-6})
	r.Variants = r.Variants[1:]
	b, err = s.Bench(t.Context(), r)
	if err == nil || b == nil || !strings.Contains(b.Ended, "stage2 on 1x1x33x64:causal: the lab is on fire") || b.ID == "" || len(b.Checked) != 1 {
		t.Errorf("a failure of the lab: %v, %+v", err, b)
	}
}

// A bench that cannot be recorded is returned without an id.
func TestBenchThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	if err := os.WriteFile(filepath.Join(s.dir, "benches"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := s.Bench(t.Context(), s.bench(p, "none"))
	if err == nil || !strings.Contains(err.Error(), "was not recorded") || b == nil || b.ID != "" || len(b.Rows) != 2 {
		t.Errorf("%v, %+v", err, b)
	}
}

func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	r := s.bench(p, "torch-flash", "1x2x40x128")
	var request RequestError
	if _, err := s.Bench(t.Context(), r); !errors.As(err, &request) {
		t.Errorf("another head dim: %v", err)
	}
	r = s.bench(p, "torch-flash")
	ctx, cancel := context.WithCancel(t.Context())
	p.fail["torch-flash"] = func(int) error { cancel(); return ctx.Err() }
	if b, err := s.Bench(ctx, r); !errors.Is(err, context.Canceled) || b != nil {
		t.Errorf("interrupted: %v, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "benches")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no shape was finished, but there is a record: %v", err)
	}
	delete(p.fail, "torch-flash")
	s.declare("stage2", behaviour{Timing: device.ErrNoClock})
	if _, err := s.Bench(t.Context(), r); !errors.Is(err, device.ErrNoClock) {
		t.Errorf("a device with no clock: %v", err)
	}
}
