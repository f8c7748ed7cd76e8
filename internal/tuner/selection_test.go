package tuner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/lab"
	"attune/internal/problem/attention"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
	"attune/kernels"
)

// newSelected is a lab for the kernel of testdata/selected on a fake GPU. 64 threads are the fastest
// up to 1000 elements and 256 above; 128 are within 1 % of the best below.
func newSelected(t *testing.T) *setup {
	t.Helper()
	s := newDeclared(t, "testdata/selected")
	s.onGPU()
	s.gpu.Compute = func(_ context.Context, job device.Job) (out []byte, err error) {
		for in := job.Args[0].Input; len(in) > 0; in = in[4:] {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(2*math.Float32frombits(binary.LittleEndian.Uint32(in))))
		}
		return out, nil
	}
	for threads, us := range map[int][2]float64{64: {10, 40}, 128: {10.1, 30}, 256: {13, 20}, 512: {30, 60}} {
		name := fmt.Sprintf("selected+THREADS=%d", threads)
		if threads == 64 {
			name = "selected"
		}
		s.declare(name, behaviour{Noise: 0.001, Joules: us[0], OfJob: func(job device.Job) float64 {
			if elements(job) <= 1000 {
				return 1e-6 * us[0]
			}
			return 1e-6 * us[1]
		}})
	}
	return s
}

// elements is the n of a job.
func elements(job device.Job) uint32 { return binary.LittleEndian.Uint32(job.Args[2].Scalar) }

// selectionRequest asks for a table of some shapes, of which every fourth is held out.
func (s *setup) selectionRequest(names ...string) SelectionRequest {
	s.t.Helper()
	all, err := s.Kernel.Shapes(strings.Join(names, ","))
	if err != nil {
		s.t.Fatal(err)
	}
	return SelectionRequest{
		Selection: s.Kernel.Selection("best"), Holdout: tune.Holdout(len(all), 4),
		Search: Request{
			Shapes: all, Seeds: []uint64{0}, Options: tune.Options{Seed: 3}, Budget: Budget{Evaluations: 40}, MaxWork: math.Inf(1), Processes: 1,
		},
	}
}

func ignoreSearch(spec.Shape, run.TuneEvaluation) {}

func TestTuneSelection(t *testing.T) {
	t.Parallel()
	s := newSelected(t)
	seen := map[string]int{}
	result, err := SearchSelection(t.Context(), s.Lab, s.selectionRequest("n=100", "n=3000", "n=900", "n=300"),
		func(shape spec.Shape, _ run.TuneEvaluation) { seen[shape.String()]++ })
	if err != nil {
		t.Fatal(err)
	}
	const want = `[[selection.choice]]
when = "n <= 2048"
variant = "selected"
why = "the best form measured on n=100, n=900"

[[selection.choice]]
variant = "selected+THREADS=256"
why = "the best form measured on n=3000"
`
	p := result.Proposal
	if p.TOML() != want || !p.Holds() || !p.Fewest || p.Forms != 2 || p.PresentForms != 1 || p.WorstLoss(true).Shape != "n=300" {
		t.Errorf("got %+v\n%s\nwant\n%s", p, p.TOML(), want)
	}
	if want := math.Pow(2, 1.0/4); p.Speedup == nil || math.Abs(*p.Speedup-want) > 0.01 {
		t.Errorf("a speedup of %v, want %v", *p.Speedup, want)
	}
	if len(seen) != 3 || seen["n=300"] != 0 || len(result.Searches) != 3 || result.Evaluations != 12 || len(result.Forms) != 4 {
		t.Errorf("%v were searched, %d evaluations, %d forms", seen, result.Evaluations, len(result.Forms))
	}
	if effects := result.Searches[0].Effects; len(effects) != 1 || effects[0].Knob != "THREADS" || effects[0].Spread < 2 {
		t.Errorf("effects %+v", effects)
	}
	s.checkSelectionRecord(result)
}

// checkSelectionRecord checks the record in the ledger.
func (s *setup) checkSelectionRecord(result *run.SelectionTuning) {
	s.t.Helper()
	ctx := s.t.Context()
	if verified, err := s.Ledger.Verify(ctx); err != nil || len(verified.Problems) > 0 || verified.Tunings != 1 {
		s.t.Errorf("%+v, %v", verified, err)
	}
	text, err := s.Ledger.ReadTuning(ctx, result.ID, run.TuningFile)
	if err != nil {
		s.t.Fatal(err)
	}
	recorded, err := run.DecodeSelectionTuning(text)
	if err != nil || !reflect.DeepEqual(recorded.Proposal, result.Proposal) {
		s.t.Errorf("%+v, %v", recorded, err)
	}
	for _, name := range []string{run.ProposalFile, run.TuningReport, "01-n-100-journal.jsonl", "02-n-3000-convergence.svg"} {
		if _, err := s.Ledger.ReadTuning(ctx, result.ID, name); err != nil {
			s.t.Error(err)
		}
	}
	if left, err := s.Ledger.UnfinishedTunings(); err != nil || len(left) > 0 {
		s.t.Errorf("%v, %v", left, err)
	}
}

// A form that is wrong on a shape, cheats on it or crashes there is not its best form.
func TestTuneSelectionWithWrongForms(t *testing.T) {
	t.Parallel()
	s := newSelected(t)
	// Wrong on the held-out shape only: it wins the searches, and is timed on all shapes.
	cheat := s.gpu.Behaviours["selected+THREADS=256"]
	compute := s.gpu.Compute
	s.gpu.Compute = func(ctx context.Context, job device.Job) ([]byte, error) {
		out, err := compute(ctx, job)
		if s.gpu.Variants[string(job.Image)] == "selected+THREADS=256" && elements(job) == 6000 {
			out[3] ^= 0x40
		}
		return out, err
	}
	s.gpu.Behaviours["selected+THREADS=256"] = cheat
	s.gpu.Behaviours["selected+THREADS=512"] = behaviour{OfJob: func(device.Job) float64 { return 1e-6 }, Timed: func(out []byte) { out[3] ^= 0x40 }}
	result, err := SearchSelection(t.Context(), s.Lab, s.selectionRequest("n=100", "n=3000", "n=4000", "n=6000"), ignoreSearch)
	if err != nil {
		t.Fatal(err)
	}
	row := result.Proposal.WorstLoss(true)
	if row == nil || row.Loss != nil || row.Proposed.Cost != nil || row.Best.Variant != "selected+THREADS=128" || result.Proposal.Holds() {
		t.Errorf("%+v", row)
	}
	for _, form := range result.Forms {
		if form.Variant == "selected+THREADS=512" {
			t.Errorf("%+v", form)
		}
	}
}

// A form that is wrong only while it is timed beside others has no cost.
func TestCompareFormsDropsCheats(t *testing.T) {
	t.Parallel()
	s := newSelected(t)
	cheat := s.gpu.Behaviours["selected+THREADS=128"]
	cheat.Timed = func(out []byte) { out[3] ^= 0x40 }
	s.gpu.Behaviours["selected+THREADS=128"] = cheat
	work := &selectionSearch{lab: s.Lab, request: s.selectionRequest("n=100")}
	forms := []spec.Variant{s.variant("selected"), s.variant("selected+THREADS=128"), s.variant("selected+THREADS=256")}
	costs, err := work.measureShape(t.Context(), 0, forms)
	if err != nil || !(costs[0] < costs[2]) || !math.IsNaN(costs[1]) {
		t.Errorf("%v, %v", costs, err)
	}
	// The present form itself must be right.
	work.request.Search.Shapes = work.request.Search.Shapes[:1]
	wrong := s.gpu.Behaviours["selected"]
	wrong.Output = func(out []byte) { out[3] ^= 0x40 }
	s.gpu.Behaviours["selected"] = wrong
	if _, err := work.measureShape(t.Context(), 0, forms); err == nil || !strings.Contains(err.Error(), "selected") {
		t.Errorf("%v, want the wrong present form", err)
	}
}

// The energy of a launch is another objective.
func TestTuneSelectionByEnergy(t *testing.T) {
	t.Parallel()
	s := newSelected(t)
	r := s.selectionRequest("n=100", "n=3000")
	r.Search.Objective = run.ObjectiveEnergy
	result, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch)
	if err != nil || result.Unit != "joules" || result.Proposal.Forms != 1 || *result.Proposal.Shapes[1].Proposed.Cost != 10 {
		t.Errorf("%+v, %v", result, err)
	}
}

// Without a GPU the costs are those of the simulator.
func TestTuneSelectionOnSimulator(t *testing.T) {
	t.Parallel()
	s := newDeclared(t, "testdata/selected")
	// 64 blocks on the simulator's two multiprocessors: sm_89 runs 24 on each, in two waves, and sm_90,
	// which stands for an unknown architecture, 32 in one.
	r := s.selectionRequest("n=4096")
	r.Search.Arch = "sm_89"
	result, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch)
	if err != nil || result.Objective != run.ObjectiveCost || len(result.Forms) < 3 {
		t.Fatalf("%+v, %v", result, err)
	}
	searched, measured := result.Searches[0].Default.Cost, result.Proposal.Shapes[0].Present.Cost
	if measured == nil {
		t.Fatal("the present form has no cost")
	}
	if math.Abs(*measured / *searched - 1) > 1e-9 {
		t.Errorf("the present form costs %v in the search and %v beside other forms", *searched, *measured)
	}
}

// killSelection cancels the call after some steps.
func (s *setup) killSelection(steps int, r SelectionRequest) (*run.SelectionTuning, error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	before := s.Progress
	defer func() { s.Progress = before }()
	s.Progress = func(lab.Progress) {
		if steps--; steps == 0 {
			cancel()
		}
	}
	return SearchSelection(ctx, s.Lab, r, ignoreSearch)
}

// Killed at ten random moments and resumed, also with a torn journal, the call proposes the table of
// one that was never killed.
func TestKilledSelectionTuningResumes(t *testing.T) {
	t.Parallel()
	s := newSelected(t)
	r := s.selectionRequest("n=100", "n=3000")
	whole, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	if _, err := s.killSelection(3, r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Search.Resume = true
	for range 9 {
		if _, err := s.killSelection(2+random.IntN(5), r); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		journals, _ := filepath.Glob(filepath.Join(s.dir, "tuning", "*", "*", run.TuneJournal))
		torn := journals[len(journals)-1]
		if text, err := os.ReadFile(torn); err == nil && len(text) > 300 {
			_ = os.Truncate(torn, int64(len(text)-random.IntN(300)))
		}
	}
	// The forms of the first shape are measured, those of the second are not: what is measured is read.
	measured := filepath.Join(s.dir, "tuning", "*", "01-n-100-forms.json")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.Progress = func(lab.Progress) {
		if found, _ := filepath.Glob(measured); len(found) == 1 {
			cancel()
		}
	}
	if _, err := SearchSelection(ctx, s.Lab, r, ignoreSearch); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.Progress, s.gpu.Timed = func(lab.Progress) {}, nil
	again, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch)
	if len(s.gpu.Timed) != 2 { // a few rounds of the forms on the second shape, then more
		t.Errorf("%d timings after the last resume, want 2", len(s.gpu.Timed))
	}
	if err != nil || !reflect.DeepEqual(again.Proposal, whole.Proposal) || again.Evaluations != whole.Evaluations {
		t.Errorf("%+v, %v; want %+v", again, err, whole)
	}
	if _, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch); err == nil || !strings.HasPrefix(err.Error(), "there is no unfinished search of best with these shapes") {
		t.Error(err)
	}
}

// A finished search of another device or compiler is not used.
func TestResumeOfAnotherSelectionTuning(t *testing.T) {
	t.Parallel()
	s := newSelected(t)
	r := s.selectionRequest("n=100", "n=3000")
	evaluations := 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := SearchSelection(ctx, s.Lab, r, func(shape spec.Shape, _ run.TuneEvaluation) {
		if evaluations++; shape.String() == "n=3000" {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || evaluations < 2 {
		t.Fatalf("%v after %d evaluations", err, evaluations)
	}
	r.Search.Resume = true
	s.gpu.Facts.Name = "another"
	s.onGPU()
	if _, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch); err == nil || !strings.Contains(err.Error(), "device: a fake then, another now") {
		t.Error(err)
	}
	s.gpu.Facts.Name = "a fake"
	s.onGPU()
	ids, err := s.Ledger.UnfinishedTunings()
	if err != nil || len(ids) != 1 {
		t.Fatalf("%q, %v", ids, err)
	}
	unlock, err := s.Ledger.LockTuning(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch); err == nil || !strings.Contains(err.Error(), "is running in another process") {
		t.Error(err)
	}
	unlock()
	larger := r
	larger.Search.Budget = Budget{Evaluations: 44, Time: time.Hour} // the budget may differ
	s.gpu.Facts.Name = "another"
	s.onGPU()
	if _, err := SearchSelection(t.Context(), s.Lab, larger, ignoreSearch); err == nil || !strings.Contains(err.Error(), "device: a fake then, another now") {
		t.Error(err)
	}
	s.gpu.Facts.Name = "a fake"
	s.onGPU()
	other := s.selectionRequest("n=100")
	other.Search.Resume = true
	if _, err := SearchSelection(t.Context(), s.Lab, other, ignoreSearch); err == nil || !strings.Contains(err.Error(), "no unfinished search of best") {
		t.Error(err)
	}
	finished, _ := filepath.Glob(filepath.Join(s.dir, "tuning", "*", "01-*", run.TuningFile))
	if len(finished) != 1 {
		t.Fatalf("finished searches: %q", finished)
	}
	if err := os.WriteFile(finished[0], []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch); err == nil || !strings.Contains(err.Error(), finished[0]) {
		t.Errorf("%v, want the damaged file", err)
	}
}

func TestTuneSelectionRefuses(t *testing.T) {
	t.Parallel()
	s := newSelected(t)
	for want, change := range map[string]func(*SelectionRequest){
		"every shape is held out":            func(r *SelectionRequest) { r.Holdout = []bool{true, true} },
		"a budget of 1 evaluations":          func(r *SelectionRequest) { r.Search.Budget = Budget{Evaluations: 1} },
		"BUG: 2 shapes with 1 marks":         func(r *SelectionRequest) { r.Holdout = []bool{true} },
		"n=100: the budget of a search":      func(r *SelectionRequest) { r.Search.Budget = Budget{} },
		"cannot be evaluated for n=77":       func(r *SelectionRequest) { r.Selection = s.Kernel.Selection("failing") },
		`n=100: unknown objective "speed"`:   func(r *SelectionRequest) { r.Search.Objective = "speed" },
		`has no knob "NONE"`:                 func(r *SelectionRequest) { r.Search.Fixed = []string{"NONE"} },
		"there is no unfinished search of b": func(r *SelectionRequest) { r.Search.Resume = true },
	} {
		r := s.selectionRequest("n=100", "n=77")
		change(&r)
		if _, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	r := s.selectionRequest("n=100")
	s.Ledger = nil
	if result, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch); err != nil || result.Proposal.Forms != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	r.Search.Resume = true
	if _, err := SearchSelection(t.Context(), s.Lab, r, ignoreSearch); err == nil || err.Error() != "there is no ledger with a search to resume" {
		t.Error(err)
	}
}

// A selection whose first search has no result leaves nothing that could be resumed.
func TestTuneSelectionWithoutResult(t *testing.T) {
	t.Parallel()
	s := newSelected(t)
	s.gpu.Behaviours["selected"] = behaviour{Output: spoil}
	if _, err := SearchSelection(t.Context(), s.Lab, s.selectionRequest("n=100", "n=77"), ignoreSearch); !errors.As(err, new(*lab.WrongError)) {
		t.Error(err)
	}
	if left, err := s.Ledger.UnfinishedTunings(); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}

// A selection that claims exact exponentials is searched among exact variants, and only with the head
// dim of each shape.
func TestTuneSelectionKeepsClaim(t *testing.T) {
	t.Parallel()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	gpu := devicetest.NewGPU("sm_90a", nil)
	l := &lab.Lab{Kernel: kernel, Device: lab.GPU(gpu.Facts, gpu.Open), Problem: lab.NewProblem(kernel, nil, "")}
	all := shapes(t, "2x8x2048x64", "4x16x4096x128")
	work := &selectionSearch{lab: l, request: SelectionRequest{
		Selection: kernel.Selection("stage7"), Holdout: []bool{false, false},
		Search: Request{Shapes: all, Seeds: []uint64{0}, Budget: Budget{Evaluations: 10}},
	}}
	if err := work.check(); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for i, dim := range []int{64, 128} {
		r, err := work.requestFor(i)
		if err != nil || r.Budget.Evaluations != 5 {
			t.Fatalf("%+v, %v", r, err)
		}
		_, space, err := r.plan(l)
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			v, err := tune.VariantOf(r.Variant.Stage(), space, space.Random(random))
			if err != nil || v.Exponentials() != spec.ExactExponentials || attention.HeadDim(v) != dim {
				t.Errorf("%s, %v: %s exponentials", v, err, v.Exponentials())
			}
		}
	}
}
