package tuner

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/arch"
	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/tune"
)

const tunedKernel = "testdata/tuned"

// newTuned is a lab for the kernel of testdata/tuned on a fake sm_89, which knows every variant.
func newTuned(t *testing.T) *setup {
	t.Helper()
	s := newDeclared(t, tunedKernel)
	s.onGPU()
	s.gpu.Compute = double
	stage := s.Kernel.Stages[0]
	space, err := tune.OfStage(stage)
	if err != nil {
		t.Fatal(err)
	}
	for p := range space.All() {
		v, err := tune.VariantOf(stage, space, p)
		if err != nil {
			t.Fatal(err)
		}
		if mode, _ := v.Value("MODE"); mode == 4 { // it does not compile
			continue
		}
		unused, _ := v.Value("UNUSED")
		scratch, _ := v.Value("SCRATCH")
		if unused == 0 && scratch == 0 { // others have the code of one of these
			s.declare(v.String(), behaviour{})
		}
	}
	return s
}

// double computes the output of the kernel.
func double(_ context.Context, job device.Job) ([]byte, error) {
	if len(job.Args) != 3 {
		return nil, fmt.Errorf("a job with %d arguments", len(job.Args))
	}
	var out []byte
	for in := job.Args[0].Input; len(in) > 0; in = in[4:] {
		x := math.Float32frombits(binary.LittleEndian.Uint32(in))
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(2*x))
	}
	return out, nil
}

func (s *setup) tuneRequest() Request {
	s.t.Helper()
	all, err := s.Kernel.Shapes("small,main")
	if err != nil {
		s.t.Fatal(err)
	}
	return Request{
		Variant: s.variant("tuned"), Shapes: all[1:], Small: all[:1], Seeds: []uint64{0, 1}, Options: tune.Options{Seed: 3},
		Budget: Budget{Evaluations: 100}, MaxWork: math.Inf(1), Processes: 2,
	}
}

// landscape gives every variant of the kernel a time, with one that is really the fastest, and one
// for each way to fail.
func (s *setup) landscape() {
	for name := range s.gpu.Behaviours {
		v := s.variant(name)
		threads, _ := v.Value("THREADS")
		items, _ := v.Value("ITEMS")
		s.gpu.Behaviours[name] = behaviour{Seconds: 20e-6 - 2e-6*math.Log2(float64(threads)/64) - 1e-6*float64(items), Noise: 0.002}
	}
	best := s.gpu.Behaviours["tuned+THREADS=256+ITEMS=2"]
	best.Seconds = 9e-6
	s.gpu.Behaviours["tuned+THREADS=256+ITEMS=2"] = best
	s.gpu.Behaviours["tuned+MODE=1"] = behaviour{Seconds: 1e-6, Output: spoil}
	s.gpu.Behaviours["tuned+MODE=2"] = behaviour{Seconds: 1e-6, Launch: func(int) error { return &device.Crash{How: "signal: killed"} }}
	s.gpu.Behaviours["tuned+MODE=3"] = behaviour{Seconds: 90e-6}
	s.gpu.Behaviours["tuned+THREADS=128"] = behaviour{Seconds: 2e-6, Timed: spoil} // it cheats
}

func spoil(out []byte) { out[3] ^= 0x40 }

// tuned is a search with its evaluations.
func (s *setup) tuned(r Request) (*run.Tuning, []run.TuneEvaluation) {
	s.t.Helper()
	var all []run.TuneEvaluation
	result, err := Search(s.t.Context(), s.Lab, r, func(e run.TuneEvaluation) { all = append(all, e) })
	if err != nil {
		s.t.Fatal(err)
	}
	return result, all
}

func evaluationOf(t *testing.T, all []run.TuneEvaluation, variant string) run.TuneEvaluation {
	t.Helper()
	i := slices.IndexFunc(all, func(e run.TuneEvaluation) bool { return e.Variant == variant })
	if i < 0 {
		t.Fatalf("%s was not evaluated", variant)
	}
	return all[i]
}

// A variant is wrong, one crashes, one is over the resources, one cheats while it is timed, one does
// not compile, and one is really the fastest: it wins.
func TestTune(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	result, all := s.tuned(s.tuneRequest())
	if !result.Faster || result.Best.Variant != "tuned+THREADS=256+ITEMS=2" || result.Default.Variant != "tuned" {
		t.Errorf("best %+v, default %+v", result.Best, result.Default)
	}
	if r := result.Best.Ratio; r == nil || math.Abs(r.Ratio-19/9.) > 0.02 || r.Low > r.Ratio || r.High < r.Ratio || *result.Best.P50US < 8 || result.Best.Shape != "n=4096" {
		t.Errorf("best %+v", result.Best)
	}
	for variant, want := range map[string][2]string{
		"tuned+MODE=1":         {run.FailedIncorrect, "n=300 seed 0: y: "},
		"tuned+MODE=2":         {run.FailedCrashed, "n=300 seed 0: the process that ran the kernel died: signal: killed"},
		"tuned+MODE=4":         {run.FailedCompile, `tuned.cu:2:2: error: #error "this variant does not compile"`},
		"tuned+SCRATCH=200000": {run.FailedResources, "n=300: 200000 bytes of shared memory of a block; the chip has 101376"},
		"tuned+SCRATCH=300000": {run.FailedResources, "300000"},
		"tuned+THREADS=128":    {run.FailedIncorrect, "timing n=4096: a timed launch: y: "},
	} {
		e := evaluationOf(t, all, variant)
		if e.Failure != want[0] || !strings.Contains(e.Reason, want[1]) || e.Cost != nil || strings.Contains(e.Reason, "\n") {
			t.Errorf("%s: %s: %s", variant, e.Failure, e.Reason)
		}
	}
	want := map[string]int{run.FailedIncorrect: 2, run.FailedCrashed: 1, run.FailedCompile: 1, run.FailedResources: 2}
	if fmt.Sprint(result.Failures) != fmt.Sprint(want) || result.Failed() != 6 || result.Evaluations != 13 || result.EqualCode != 6 || *result.Variants != 19 {
		t.Errorf("%+v", result)
	}
	kinds := map[string]bool{}
	for _, f := range result.FirstFailures {
		e := evaluationOf(t, all, f.Variant)
		if kinds[f.Kind] || e.Failure != f.Kind || e.Reason != f.Reason || f.Reason == "" {
			t.Errorf("%+v", f)
		}
		kinds[f.Kind] = true
	}
	if len(kinds) != 4 {
		t.Errorf("%+v", result.FirstFailures)
	}
	if result.Ended != "every variant was evaluated" || s.gpu.Opened == 0 || s.gpu.Opened != s.gpu.Closed {
		t.Errorf("ended: %s; %d devices were opened, %d closed", result.Ended, s.gpu.Opened, s.gpu.Closed)
	}
	s.checkTuningRecord(result)
}

// checkTuningRecord checks the record in the ledger.
func (s *setup) checkTuningRecord(result *run.Tuning) {
	s.t.Helper()
	ctx := s.t.Context()
	verified, err := s.Ledger.Verify(ctx)
	if err != nil || len(verified.Problems) > 0 || verified.Tunings != 1 {
		s.t.Errorf("%+v, %v", verified, err)
	}
	text, err := s.Ledger.ReadTuning(ctx, result.ID, run.TuningFile)
	if err != nil {
		s.t.Fatal(err)
	}
	recorded, err := run.DecodeTuning(text)
	if err != nil || recorded.Best.Variant != result.Best.Variant {
		s.t.Errorf("%+v, %v", recorded, err)
	}
	var elites run.TuneElites
	text, err = s.Ledger.ReadTuning(ctx, result.ID, run.TuneEliteFile)
	if err := errors.Join(err, json.Unmarshal(text, &elites)); err != nil || len(elites.Elites) != 3 || elites.Elites[0].CodeHash != result.Best.CodeHash {
		s.t.Errorf("%+v, %v", elites, err)
	}
	for _, name := range []string{"report.md", run.TuneJournal} {
		if _, err := s.Ledger.ReadTuning(ctx, result.ID, name); err != nil {
			s.t.Error(err)
		}
	}
	if left, err := s.Ledger.UnfinishedTunings(); err != nil || len(left) > 0 {
		s.t.Errorf("%v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "tuning")); !errors.Is(err, os.ErrNotExist) {
		s.t.Errorf("the folder of running searches is left: %v", err)
	}
}

// Variants with equal machine code are checked and timed once, and do not count against the budget.
func TestTuneMeasuresEqualCodeOnce(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	r := s.tuneRequest()
	r.Strategy = "grid"
	_, all := s.tuned(r)
	for _, e := range all {
		if !strings.Contains(e.Variant, "UNUSED=1") {
			continue
		}
		same := strings.ReplaceAll(e.Variant, "+UNUSED=1", "")
		original := evaluationOf(t, all, same)
		if e.SameAs != same || e.Failure != original.Failure || e.OK() && *e.Cost != *original.Cost {
			t.Errorf("%+v", e)
		}
	}
	checks := 0
	for _, name := range s.gpu.Ran {
		if name == "tuned+THREADS=256" {
			checks++
		}
	}
	// Once in the search, on one instance; in the finals on two shapes with two seeds.
	if checks != 1+4 {
		t.Errorf("tuned+THREADS=256 was run %d times", checks)
	}
}

// A candidate that is many times slower costs one estimate on each shape and no rounds. One that is
// a little slower gets the first rounds only.
func TestTuneGivesUpSlowVariantsEarly(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	_, all := s.tuned(s.tuneRequest())
	slow := evaluationOf(t, all, "tuned+MODE=3")
	if slow.Rounds != 0 || slow.Best || !slow.OK() || *slow.Cost < 3*9e-6 {
		t.Errorf("%+v", slow)
	}
	timings, estimates := 0, 0
	for i, names := range s.gpu.Timed {
		if strings.Contains(names, "tuned+MODE=3") {
			timings++
			if s.gpu.Planned[i].Estimate {
				estimates++
			}
		}
	}
	if timings != 1 || estimates != 1 {
		t.Errorf("%d timings, %d estimates", timings, estimates)
	}
	for _, e := range all {
		if e.OK() && e.Ratio != nil && e.Ratio.Ratio < 0.95 && e.SameAs == "" && e.Rounds > screenRounds {
			t.Errorf("%s: %d rounds for a ratio of %.3f", e.Variant, e.Rounds, e.Ratio.Ratio)
		}
	}
}

// Noise alone makes no variant the best.
func TestTuneKeepsTheDefault(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	for name := range s.gpu.Behaviours {
		s.gpu.Behaviours[name] = behaviour{Seconds: 10e-6, Noise: 0.01}
	}
	r := s.tuneRequest()
	r.Folder = filepath.Join(t.TempDir(), "search")
	result, _ := s.tuned(r)
	if result.Faster || result.Best.Variant != "tuned" || len(result.Elites) != 3 {
		t.Errorf("%+v", result)
	}
	for _, name := range []string{run.TuningFile, run.TuneEliteFile, run.TuneJournal, run.TuneFile, "report.md"} {
		if _, err := os.Stat(filepath.Join(r.Folder, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {}); err == nil || !strings.Contains(err.Error(), "has a search that was begun at") {
		t.Error(err)
	}
}

// killer cancels a search after some steps.
func (s *setup) killAfter(steps int, r Request) (*run.Tuning, error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	before := s.Progress
	defer func() { s.Progress = before }()
	s.Progress = func(lab.Progress) {
		if steps--; steps == 0 {
			cancel()
		}
	}
	return Search(ctx, s.Lab, r, func(run.TuneEvaluation) {})
}

// A search that is killed at ten random moments and resumed gives the answer of one that was not. The
// journal may end in the middle of a line.
func TestKilledTuningResumes(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	whole, _ := s.tuned(s.tuneRequest())
	wanted := s.journalVariants(whole.ID)
	random := rand.New(rand.NewPCG(1, 2))
	r := s.tuneRequest()
	if _, err := s.killAfter(9, r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Resume = true
	for range 9 {
		if _, err := s.killAfter(2+random.IntN(14), r); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		s.cutJournal(random)
	}
	again, _ := s.tuned(r)
	if again.Best.Variant != whole.Best.Variant || *again.Best.Cost != *whole.Best.Cost || again.Evaluations != whole.Evaluations {
		t.Errorf("%+v, want %+v", again, whole)
	}
	if got := s.journalVariants(again.ID); !slices.Equal(got, wanted) {
		t.Errorf("the resumed search evaluated\n%q, want\n%q", got, wanted)
	}
	if _, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {}); err == nil || !strings.HasPrefix(err.Error(), "there is no unfinished search of this request to resume; ") {
		t.Error(err)
	}
}

// journalVariants are the evaluated variants of a recorded search, in order.
func (s *setup) journalVariants(id string) []string {
	s.t.Helper()
	text, err := s.Ledger.ReadTuning(s.t.Context(), id, run.TuneJournal)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		var l struct{ Detail run.TuneEvaluation }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, l.Detail.Variant)
	}
	return all
}

// cutJournal removes up to 300 bytes from the end of the unfinished search.
func (s *setup) cutJournal(random *rand.Rand) {
	s.t.Helper()
	found, _ := filepath.Glob(filepath.Join(s.dir, "tuning", "*", run.TuneJournal))
	if len(found) != 1 {
		s.t.Fatalf("journals: %q", found)
	}
	text, err := os.ReadFile(found[0])
	if err == nil {
		err = os.WriteFile(found[0], text[:max(0, len(text)-random.IntN(300))], 0o644)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// A search is resumed only if everything that it depends on is the same. The refusal names the
// difference.
func TestResumeOfAnotherSearch(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	if _, err := s.killAfter(20, s.tuneRequest()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Request){
		"seeds: [0 1] then, [0] now":             func(r *Request) { r.Seeds = r.Seeds[:1] },
		"strategy: evo then, random now":         func(r *Request) { r.Strategy = "random" },
		"search seed: 3 then, 4 now":             func(r *Request) { r.Options.Seed = 4 },
		"objective: time then, energy now":       func(r *Request) { r.Objective = run.ObjectiveEnergy },
		"shapes: [n=4096] then, [n=300] now":     func(r *Request) { r.Shapes = r.Small },
		"variant: tuned then, tuned+ITEMS=2 now": func(r *Request) { r.Variant = s.variant("tuned+ITEMS=2") },
		"space: ":                                func(r *Request) { r.Fixed = []string{"MODE"} },
		"device: a fake then, another now":       func(*Request) { s.gpu.Facts.Name = "another" },
	} {
		r := s.tuneRequest()
		r.Resume = true
		change(&r)
		s.onGPU()
		_, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {})
		if refused := new(lab.RequestError); !errors.As(err, refused) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ", differs in ") {
			t.Errorf("%v; want %q", err, want)
		}
		s.gpu.Facts.Name = "a fake"
		s.onGPU()
	}
	r := s.tuneRequest()
	r.Resume, r.Budget = true, Budget{Evaluations: 9} // the budget may change
	if _, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {}); err != nil {
		t.Error(err)
	}
}

func TestTuneRefuses(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	for want, change := range map[string]func(*Request){
		"the objective cost is an estimate for machines without a GPU": func(r *Request) { r.Objective = run.ObjectiveCost },
		`unknown objective "speed"; there are time, energy, cost`:      func(r *Request) { r.Objective = "speed" },
		"the budget of a search is a number":                           func(r *Request) { r.Budget = Budget{} },
		"a search needs at least one shape":                            func(r *Request) { r.Shapes = nil },
		`unknown strategy "climb"`:                                     func(r *Request) { r.Strategy = "climb" },
		`tuned has no knob "TILE"`:                                     func(r *Request) { r.Fixed = []string{"TILE"} },
		"tuned has no other variant to try": func(r *Request) {
			r.Fixed = []string{"THREADS", "ITEMS", "UNUSED", "SCRATCH", "MODE"}
		},
		"there is no unfinished search of this request to resume; without": func(r *Request) { r.Resume = true },
		"tuned is for ": func(r *Request) { r.Arch = "sm_20" },
	} {
		r := s.tuneRequest()
		change(&r)
		_, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {})
		if refused := new(lab.RequestError); !errors.As(err, refused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v; want %q", err, want)
		}
	}
	s.Device = lab.Simulator(s.gpu.Facts, s.gpu.Open, run.Simulation{})
	r := s.tuneRequest()
	r.Objective = run.ObjectiveTime
	if _, err := Search(t.Context(), s.Lab, r, ignoreEvaluation); err == nil || err.Error() != "the objective time needs a GPU; the simulator has only cost, an estimate from its counters" {
		t.Error(err)
	}
	s.Ledger = nil
	r.Objective, r.Resume = "", true
	if _, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {}); err == nil || err.Error() != "there is no ledger with a search to resume" {
		t.Error(err)
	}
}

// The default must run: a search starts from it, and the finals compare with it.
func TestTuneNeedsADefaultThatRuns(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	try := func(variant string, b behaviour) error {
		t.Helper()
		s.gpu.Behaviours[variant] = b
		r := s.tuneRequest()
		r.Variant = s.variant(variant)
		_, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {})
		delete(s.gpu.Behaviours, variant)
		return err
	}
	if err := try("tuned", behaviour{Output: spoil}); !errors.As(err, new(*lab.WrongError)) {
		t.Error(err)
	}
	if err := try("tuned", behaviour{Timed: spoil}); !errors.As(err, new(*lab.WrongError)) {
		t.Error(err)
	}
	if err := try("tuned", behaviour{Launch: func(int) error { return &device.Timeout{} }}); device.Classify(err) != device.KernelTimeout {
		t.Error(err)
	}
	if err := try("tuned", behaviour{Timing: &device.Crash{How: "x"}}); device.Classify(err) != device.KernelCrash {
		t.Error(err)
	}
	if err := try("tuned", behaviour{Timing: device.ErrNoClock}); !errors.Is(err, device.ErrNoClock) {
		t.Error(err)
	}
	if err := try("tuned+MODE=4", behaviour{}); err == nil || !strings.Contains(err.Error(), "tuned+MODE=4") {
		t.Error(err)
	}
	if err := try("tuned+SCRATCH=200000", behaviour{}); err == nil || !strings.Contains(err.Error(), "the chip has 101376; a search starts from a variant that runs") {
		t.Error(err)
	}
	if left, err := s.Ledger.UnfinishedTunings(); err != nil || len(left) > 0 { // there is nothing to resume
		t.Errorf("%q is left, %v", left, err)
	}
}

// The best variant so far cheats when it is timed again: it loses its place, also for a search that
// is resumed.
func TestTuneDemotesACheat(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	times := 0
	const cheat = "tuned+THREADS=256+ITEMS=2"
	s.gpu.Behaviours[cheat] = behaviour{Seconds: 5e-6, Timed: func(out []byte) {
		if times++; times > 1 {
			spoil(out)
		}
	}}
	r := s.tuneRequest()
	r.Fixed = []string{"UNUSED"}
	result, all := s.tuned(r)
	if result.Best.Variant == cheat || !result.Faster {
		t.Errorf("%+v", result.Best)
	}
	demoted := func(e run.TuneEvaluation) bool {
		return slices.Contains(e.Demoted, cheat) && e.Against != cheat && e.OK()
	}
	if !slices.ContainsFunc(all, demoted) || result.Failures[run.FailedIncorrect] != 3 {
		t.Errorf("%s was never demoted: %+v", cheat, result.Failures)
	}
	if slices.ContainsFunc(result.Elites, func(v run.TunedVariant) bool { return v.Variant == cheat }) {
		t.Errorf("%+v", result.Elites)
	}
}

// A variant that is right on the small shape and wrong on another seed is not called best.
func TestFinalsCheckAllSeeds(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	const wrong = "tuned+THREADS=256+ITEMS=2"
	b := s.gpu.Behaviours[wrong]
	b.Output = func(out []byte) {
		if len(out) == 4*4096 {
			spoil(out)
		}
	}
	s.gpu.Behaviours[wrong] = b
	result, _ := s.tuned(s.tuneRequest())
	i := slices.IndexFunc(result.Elites, func(v run.TunedVariant) bool { return v.Variant == wrong })
	if result.Best.Variant == wrong || i < 0 || result.Elites[i].Failure != run.FailedIncorrect {
		t.Errorf("%+v", result)
	}
}

// Variants that fail in the timing of the finals are found, whether they are wrong or lose the
// device.
func TestFinalsDropVariantsThatFail(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	inFinals := func() bool { return s.gpu.Planned[len(s.gpu.Planned)-1].Samples > maxScreenRounds/2 }
	cheat := s.gpu.Behaviours["tuned+THREADS=256+ITEMS=2"]
	cheat.Timed = func(out []byte) {
		if inFinals() {
			spoil(out)
		}
	}
	s.gpu.Behaviours["tuned+THREADS=256+ITEMS=2"] = cheat
	crash := s.gpu.Behaviours["tuned+THREADS=256"]
	crash.TimingOf = func() error {
		if inFinals() {
			return &device.Crash{How: "signal: killed"}
		}
		return nil
	}
	s.gpu.Behaviours["tuned+THREADS=256"] = crash
	result, _ := s.tuned(s.tuneRequest())
	failures := map[string]string{}
	for _, v := range result.Elites {
		failures[v.Variant] = v.Failure
	}
	if failures["tuned+THREADS=256+ITEMS=2"] != run.FailedIncorrect || failures["tuned+THREADS=256"] != run.FailedCrashed {
		t.Errorf("%+v", failures)
	}
	if strings.Contains(result.Best.Variant, "256") {
		t.Errorf("%+v", result.Best)
	}
}

// Energy is compared like time, by several measurements.
func TestTuneEnergy(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	for name, b := range s.gpu.Behaviours {
		b.Joules = 3e-3
		if name == "tuned+ITEMS=2" {
			b.Joules = 1e-3
		}
		s.gpu.Behaviours[name] = b
	}
	r := s.tuneRequest()
	r.Objective, r.Fixed = run.ObjectiveEnergy, []string{"UNUSED"}
	result, all := s.tuned(r)
	if result.Best.Variant != "tuned+ITEMS=2" || math.Abs(result.Best.Ratio.Ratio-3) > 1e-9 || result.Best.P50US != nil || result.Unit != "joules" {
		t.Errorf("%+v", result.Best)
	}
	if e := evaluationOf(t, all, "tuned+ITEMS=2"); e.Rounds != energyCalls {
		t.Errorf("%d measurements", e.Rounds)
	}
	s.gpu.Behaviours["tuned"] = behaviour{}
	if _, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {}); err == nil || err.Error() != "this GPU does not report energy; use --objective time" {
		t.Error(err)
	}
}

// proposer proposes each of its proposals once.
type proposer struct {
	proposals []Candidate
	states    []State
	restored  int
	err       error
}

func (p *proposer) Propose(_ context.Context, s State) ([]Candidate, error) {
	p.states = append(p.states, s)
	if len(p.states) == 2 {
		return p.proposals, p.err
	}
	return nil, nil
}

func (p *proposer) Restore(_ context.Context, variant, _ string, patch []byte) (Candidate, error) {
	p.restored++
	for _, one := range p.proposals {
		if one.Variant.String() == variant && one.Patch != nil && string(one.Patch.Diff) == string(patch) {
			return one, nil
		}
	}
	return Candidate{}, errors.New("no such proposal")
}

// Proposals are evaluated between the variants of the strategy. One of another kernel does not teach
// the strategy, and may still win.
func TestTuneProposals(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS(tunedKernel)); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root, "tuned.cu"))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "tuned.cu"), []byte(strings.Replace(string(source), "factor * value", "__fadd_rn(factor * value, 0.0f)", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	patched := newDeclared(t, root)
	patched.Device = s.Device
	s.declareAs("patched", patched.Lab, "tuned", behaviour{Seconds: 4e-6})
	p := &proposer{proposals: []Candidate{
		{Variant: s.variant("tuned+THREADS=256"), Origin: "a friend", Parent: "tuned"},
		{Variant: s.variant("tuned+THREADS=256"), Origin: "a friend"},
		{Variant: patched.variant("tuned"), Origin: "a friend", Patch: &Patch{Lab: patched.Lab, Diff: []byte("- factor\n+ value\n")}},
	}}
	r := s.tuneRequest()
	r.Proposer = p
	if _, err := s.killAfter(60, r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Resume = true
	p.states = make([]State, 2) // it proposes nothing more
	result, _ := s.tuned(r)
	if result.Best.Origin != "a friend" || result.Best.Patch == "" || result.Best.Variant != "tuned" || p.restored != 1 {
		t.Errorf("%+v, %d restored", result.Best, p.restored)
	}
	if _, err := s.Ledger.ReadTuning(t.Context(), result.ID, result.Best.Patch); err != nil {
		t.Error(err)
	}
	last := p.states[len(p.states)-1]
	if last.Best.Variant != "tuned" || len(last.Elites) != 3 || last.Space == nil || last.Default.Variant != "tuned" || last.Evaluations == 0 {
		t.Errorf("%+v", last)
	}
	names := s.journalVariants(result.ID)
	if n := len(slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name != "tuned+THREADS=256" })); n != 1 {
		t.Errorf("tuned+THREADS=256 was evaluated %d times", n)
	}
	r.Resume, r.Proposer = false, &proposer{err: errors.New("no idea")}
	if _, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {}); err == nil || err.Error() != "no idea" {
		t.Error(err)
	}
}

// hinted is a problem whose hints name knobs.
type hinted struct{ problem.Problem }

func (hinted) Hints() profile.Hints {
	return profile.Hints{"few-warps": {Knobs: []string{"THREADS", "TILE"}}}
}

// What the simulator counts of a new best suggests knobs to the strategy, on a GPU too.
func TestTuneSuggestsKnobs(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	s.Problem = hinted{s.Problem}
	r := s.tuneRequest()
	r.Variant, r.Budget.Evaluations = s.variant("tuned+SCRATCH=60000"), 3
	_, all := s.tuned(r)
	if got := strings.Join(all[0].Suggested, ","); got != "THREADS" {
		t.Errorf("suggested %q", got)
	}
}

// A search on the simulator has costs and no times.
func TestTuneOnTheSimulator(t *testing.T) {
	t.Parallel()
	s := newDeclared(t, tunedKernel)
	r := s.tuneRequest()
	r.Small = nil
	r.Strategy = "random"
	result, all := s.tuned(r)
	if result.Objective != run.ObjectiveCost || !result.Simulated() || !strings.Contains(result.Unit, run.CostLabel) || !result.Faster {
		t.Errorf("%+v", result)
	}
	for _, e := range all {
		for _, shape := range e.Shapes {
			if shape.P50US != nil {
				t.Errorf("%s has a time", e.Variant)
			}
		}
	}
	slow, standard := evaluationOf(t, all, "tuned+MODE=3"), evaluationOf(t, all, "tuned")
	if !slow.OK() || *slow.Cost < 5**standard.Cost {
		t.Errorf("%+v", slow)
	}
	if e := evaluationOf(t, all, "tuned+MODE=2"); e.Failure != run.FailedIncorrect || !strings.Contains(e.Reason, "out-of-bounds at tuned.cu:") {
		t.Errorf("%+v", e)
	}
	if e := evaluationOf(t, all, "tuned+SCRATCH=200000"); !e.OK() || *e.Cost < *standard.Cost {
		t.Errorf("fewer blocks at once cost no more: %+v", e)
	}
	// Shapes that are not small are run for their cost, and checked there.
	r = s.tuneRequest()
	r.Strategy, r.Fixed = "anneal", []string{"UNUSED", "SCRATCH", "MODE", "ITEMS"}
	again, _ := s.tuned(r)
	if again.Identity.Budget != 100 || again.Evaluations != 3 || *again.Default.Cost != *result.Default.Cost {
		t.Errorf("%+v", again)
	}
}

// Without a ledger and a folder nothing is written.
func TestTuneWithoutAFolder(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	s.Ledger = nil
	r := s.tuneRequest()
	r.Budget = Budget{Time: 1} // over after the first evaluation
	result, all := s.tuned(r)
	if result.Evaluations != 1 || len(all) != 1 || result.Faster || !strings.Contains(result.Ended, "the budget of 1ns is spent") {
		t.Errorf("%+v", result)
	}
}

// A space of variants with equal code ends.
func TestTuneEndsWithoutNewCode(t *testing.T) {
	t.Parallel()
	s := &search{request: Request{Budget: Budget{Evaluations: 2}}, standings: &standings{counted: 1, evaluations: make([]run.TuneEvaluation, 22)}}
	if got := s.over(); got != "21 variants had machine code that was evaluated before" {
		t.Error(got)
	}
}

func TestBlockNeeds(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]blockNeeds{
		"": {threads: 256, warps: 8, registers: 255, shared: 90000},
		"2048 threads of a block; the chip allows 1024":                 {threads: 2048, warps: 64},
		"110000 bytes of shared memory of a block; the chip has 101376": {threads: 32, warps: 1, shared: 110000},
		"255 registers of each of 512 threads; the chip has 65536":      {threads: 512, warps: 16, registers: 255},
	} {
		if got := n.over("sm_89", 0); got != want {
			t.Errorf("%+v: %q, want %q", n, got, want)
		}
	}
	if got := (blockNeeds{threads: 32, shared: 1e6}).over("sm_33", 0); got != "" {
		t.Errorf("an unknown chip has a limit: %s", got)
	}
	if got := (blockNeeds{threads: 32, shared: 5000}).over("sm_89", 4096); got == "" {
		t.Error("the device's own limit is ignored")
	}
	limits, _ := arch.LimitsOf("sm_90a")
	for want, n := range map[int]blockNeeds{
		32: {threads: 32, warps: 1, registers: 16},
		8:  {threads: 256, warps: 8, registers: 32},
		1:  {threads: 256, warps: 8, registers: 255, shared: 200000},
		2:  {threads: 256, warps: 8, registers: 128},
	} {
		if got := n.resident(limits); got != want {
			t.Errorf("%+v: %d blocks, want %d", n, got, want)
		}
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	needs := blockNeeds{threads: 256, warps: 8, registers: 32}
	base := device.Counters{"sim__inst_executed.sum": 8000, "memory_l1_wavefronts_shared": 100, "memory_l2_theoretical_sectors_global": 10}
	cost := func(change device.Counters, blocks int, n blockNeeds) float64 {
		counters := device.Counters{}
		for _, all := range []device.Counters{base, change} {
			for name, value := range all {
				counters[name] = value
			}
		}
		return costOf(counters, n, blocks, "sm_90a", 2)
	}
	near := func(got, want float64) bool { return math.Abs(got-want) < 0.05*want } // a share of the other pipes is added
	// 2 blocks on 2 multiprocessors: 4000 instructions of a block in 4 slots, and 500 of each warp in a
	// chain of 4 cycles each.
	if got := cost(nil, 2, needs); got != 2000 {
		t.Errorf("chain: %v", got)
	}
	// 32 blocks fill both multiprocessors twice, with 8 blocks each.
	if got := cost(device.Counters{"sim__inst_executed.sum": 32 * 8000}, 32, needs); !near(got, 2*8*2000) {
		t.Errorf("issue slots: %v", got)
	}
	if got := cost(device.Counters{"memory_l1_wavefronts_shared": 10000}, 2, needs); !near(got, 5100) {
		t.Errorf("shared memory: %v", got)
	}
	if got := cost(device.Counters{"memory_l2_theoretical_sectors_global": 1e5}, 2, needs); !near(got, 1e5*32/arch.ChipOfArch("sm_90a").DRAMBytes()/2) {
		t.Errorf("bytes: %v", got)
	}
	if got := cost(device.Counters{"sm__ops_path_tensor_src_fp8.sum": 8192e4}, 2, needs); !near(got, 5100) {
		t.Errorf("8-bit tensor FLOPs: %v", got)
	}
	if got := cost(device.Counters{"sm__ops_path_tensor_src_fp16_dst_fp32.sum": 4096e4}, 2, needs); !near(got, 5100) {
		t.Errorf("tensor FLOPs: %v", got)
	}
	// An L4 has 2.5 bytes of DRAM per clock and multiprocessor, an H200 16.
	if l4 := costOf(device.Counters{"memory_l2_theoretical_sectors_global": 1e5}, needs, 2, "sm_89", 2); !near(l4, 1e5*32/2.535/2) {
		t.Errorf("bytes on sm_89: %v", l4)
	}
}
