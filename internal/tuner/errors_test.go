package tuner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

func ignoreEvaluation(run.TuneEvaluation) {}

// tuneError is the error of a search.
func (s *setup) tuneError(r Request) error {
	s.t.Helper()
	_, err := Search(s.t.Context(), s.Lab, r, ignoreEvaluation)
	return err
}

// cancelAt is the error of a search that is cancelled at a step.
func (s *setup) cancelAt(step string, r Request) error {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	s.Progress = func(p lab.Progress) {
		if strings.HasPrefix(p.Step, step) {
			cancel()
		}
	}
	_, err := Search(ctx, s.Lab, r, ignoreEvaluation)
	s.Progress = nil
	return err
}

// A search can be interrupted at every step, and resumed.
func TestTuneIsInterruptedAtEveryStep(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	r := s.tuneRequest()
	for i, step := range []string{"reference of", "resources", "measuring", "6 rounds", "correctness on all", "finals on"} {
		if err := s.cancelAt(step, r); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", step, err)
		}
		r.Resume = i >= 1
	}
	if result, _ := s.tuned(r); result.Best.Variant != "tuned+THREADS=256+ITEMS=2" {
		t.Errorf("%+v", result.Best)
	}
}

// Failures of the disk end a search; what was evaluated is in the journal.
func TestTuneReportsFailuresOfTheDisk(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	r := s.tuneRequest()
	r.Budget.Evaluations = 2
	for _, name := range []string{run.TuneFile + ".new", run.TuneEliteFile + ".new", run.TuneJournal} {
		r.Folder = t.TempDir()
		if err := os.Mkdir(filepath.Join(r.Folder, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := s.tuneError(r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.Folder = t.TempDir()
	s.Describe = func(any) (map[string][]byte, error) {
		return map[string][]byte{"no/folder": nil}, nil
	}
	if err := s.tuneError(r); err == nil || !strings.Contains(err.Error(), "no/folder") {
		t.Error(err)
	}
	r.Folder = ""
	if err := s.tuneError(r); err == nil || !strings.Contains(err.Error(), "; --resume records it") {
		t.Error(err)
	}
	s.Describe = func(any) (map[string][]byte, error) { return nil, errors.New("no ink") }
	r.Resume = true
	if err := s.tuneError(r); err == nil || err.Error() != "no ink" {
		t.Error(err)
	}
	s.Describe = func(any) (map[string][]byte, error) { return nil, syscall.ENOSPC }
	if err := s.tuneError(r); err == nil || !strings.Contains(err.Error(), "free some space, then the same command with --resume continues") {
		t.Error(err)
	}
	s.Describe = nil
	if err := s.tuneError(r); err != nil { // the search itself was finished
		t.Error(err)
	}
}

// A folder of the caller's own is resumed on request, and only by the same search.
func TestTuneInAFolder(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	r := s.tuneRequest()
	r.Folder = t.TempDir()
	if err := s.cancelAt("6 rounds", r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Resume = true
	other := r
	other.Seeds = other.Seeds[:1]
	if err := s.tuneError(other); err == nil || !strings.HasSuffix(err.Error(), "is another one; it differs in seeds: [0 1] then, [0] now") {
		t.Error(err)
	}
	if err := s.tuneError(r); err != nil {
		t.Error(err)
	}
	journal := filepath.Join(r.Folder, run.TuneJournal)
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := strings.Replace(string(text), `"detail":{`, `"detail":[{`, 1)
	spoilt = strings.Replace(spoilt, "}}\n", "}]}\n", 1)
	if err := os.WriteFile(journal, []byte(spoilt), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.tuneError(r); err == nil || !strings.Contains(err.Error(), "journal.jsonl: evaluation 1: ") {
		t.Error(err)
	}
	for _, damaged := range []string{"{", "{}"} {
		if err := os.WriteFile(filepath.Join(r.Folder, run.TuneFile), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.tuneError(r); err == nil || !strings.HasPrefix(err.Error(), "the search in "+r.Folder+": ") {
			t.Error(err)
		}
	}
}

// A search that another process runs is not resumed, and one without a description is passed over.
func TestResumeOfARunningSearch(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	r := s.tuneRequest()
	if err := s.cancelAt("6 rounds", r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	found, err := s.Ledger.UnfinishedTunings()
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	unlock, err := s.Ledger.LockTuning(found[0])
	if err != nil {
		t.Fatal(err)
	}
	r.Resume = true
	if err := s.tuneError(r); err == nil || !strings.HasSuffix(err.Error(), " is running in another process; wait for it or end it") {
		t.Error(err)
	}
	unlock()
	if err := os.Remove(filepath.Join(s.Ledger.TuningFolder(found[0]), run.TuneFile)); err != nil {
		t.Fatal(err)
	}
	if err := s.tuneError(r); err == nil || !strings.HasPrefix(err.Error(), "there is no unfinished search of this request to resume; ") {
		t.Error(err)
	}
}

// Patched kernels of a resumed search are made again by their proposer, or known by their results
// only.
func TestResumeWithProposals(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	patched := s.patchedTuned(behaviour{Seconds: 4e-6})
	p := &proposer{proposals: []Candidate{{Variant: s.variant("tuned"), Patch: &Patch{Lab: patched, Diff: []byte("a patch")}}}}
	r := s.tuneRequest()
	r.Proposer = p
	r.Fixed, r.Budget.Evaluations = []string{"UNUSED", "ITEMS"}, 100
	if err := s.cancelAt("finals on", r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	r.Resume = true
	p.proposals = nil
	if err := s.tuneError(r); err == nil || err.Error() != "restore tuned (proposer): no such proposal" {
		t.Error(err)
	}
	patches, _ := filepath.Glob(filepath.Join(s.dir, "tuning", "*", "*.patch"))
	if len(patches) != 1 {
		t.Fatalf("%q", patches)
	}
	text, err := os.ReadFile(patches[0])
	if err := errors.Join(err, os.Remove(patches[0])); err != nil || string(text) != "a patch" {
		t.Fatalf("%q, %v", text, err)
	}
	if err := s.tuneError(r); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	r.Proposer = nil
	if err := s.tuneError(r); !errors.Is(err, os.ErrNotExist) { // the record lacks the patch
		t.Error(err)
	}
	if err := os.WriteFile(patches[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	if result, _ := s.tuned(r); result.Best.Patch != "" {
		t.Errorf("%+v", result.Best)
	}
}

// A device that no variant loses alone ends the finals, and a default that turns out to be wrong does
// too.
func TestFinalsThatFail(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	together := s.gpu.Behaviours["tuned+THREADS=256"]
	together.TimingOf = func() error {
		if last := s.gpu.Timed[len(s.gpu.Timed)-1]; strings.Count(last, ",") > 1 {
			return &device.Crash{How: "signal: killed"}
		}
		return nil
	}
	s.gpu.Behaviours["tuned+THREADS=256"] = together
	if err := s.tuneError(s.tuneRequest()); err == nil || !strings.HasPrefix(err.Error(), "the device was lost in the finals, and by no variant alone: ") {
		t.Error(err)
	}
	s.landscape()
	standard := s.gpu.Behaviours["tuned"]
	standard.Timed = func(out []byte) {
		if strings.Count(s.gpu.Timed[len(s.gpu.Timed)-1], ",") > 1 {
			spoil(out)
		}
	}
	s.gpu.Behaviours["tuned"] = standard
	if err := s.tuneError(s.tuneRequest()); !errors.As(err, new(*lab.WrongError)) {
		t.Error(err)
	}
	s.landscape()
	standard = s.gpu.Behaviours["tuned"]
	standard.Output = func(out []byte) {
		if len(out) == 4*4096 {
			spoil(out)
		}
	}
	s.gpu.Behaviours["tuned"] = standard
	if err := s.tuneError(s.tuneRequest()); !errors.As(err, new(*lab.WrongError)) {
		t.Error(err)
	}
	s.landscape()
	clockless := s.gpu.Behaviours["tuned+THREADS=256"]
	clockless.TimingOf = func() error {
		if strings.Count(s.gpu.Timed[len(s.gpu.Timed)-1], ",") > 1 {
			return device.ErrNoClock
		}
		return nil
	}
	s.gpu.Behaviours["tuned+THREADS=256"] = clockless
	if err := s.tuneError(s.tuneRequest()); !errors.Is(err, device.ErrNoClock) {
		t.Error(err)
	}
}

// A candidate may fail in each of its measurements. The failure of the default beside it ends the
// search.
func TestTuneScreeningFails(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	r := s.tuneRequest()
	r.Fixed, r.Budget.Evaluations = []string{"UNUSED", "ITEMS", "MODE", "SCRATCH"}, 5
	estimating := func() bool { return s.gpu.Planned[len(s.gpu.Planned)-1].Estimate }
	s.gpu.Behaviours["tuned+THREADS=128"] = behaviour{TimingOf: func() error {
		if estimating() {
			return &device.Timeout{}
		}
		return nil
	}}
	s.gpu.Behaviours["tuned+THREADS=256"] = behaviour{Launch: func(int) error { return &device.Unsupported{Why: "not here"} }}
	_, all := s.tuned(r)
	if e := evaluationOf(t, all, "tuned+THREADS=128"); e.Failure != run.FailedTimeout || !strings.HasPrefix(e.Reason, "a launch of n=4096: no result within ") {
		t.Errorf("%+v", e)
	}
	if e := evaluationOf(t, all, "tuned+THREADS=256"); e.Failure != run.FailedUnsupported || e.Reason != "not here" {
		t.Errorf("%+v", e)
	}
	s.gpu.Behaviours["tuned+THREADS=256"] = behaviour{TimingOf: func() error {
		if !estimating() {
			return &device.Crash{How: "signal: killed"}
		}
		return nil
	}}
	if _, all = s.tuned(r); evaluationOf(t, all, "tuned+THREADS=256").Failure != run.FailedCrashed {
		t.Errorf("%+v", evaluationOf(t, all, "tuned+THREADS=256"))
	}
	for _, estimate := range []bool{true, false} {
		s.gpu.Behaviours["tuned+THREADS=256"] = behaviour{TimingOf: func() error {
			if estimating() == estimate {
				return device.ErrNoClock
			}
			return nil
		}}
		if err := s.tuneError(r); !errors.Is(err, device.ErrNoClock) {
			t.Error(err)
		}
	}
	s.gpu.Behaviours["tuned+THREADS=256"] = behaviour{}
	s.gpu.Behaviours["tuned"] = behaviour{Timed: func(out []byte) {
		if strings.Contains(s.gpu.Timed[len(s.gpu.Timed)-1], ",") {
			spoil(out)
		}
	}}
	if err := s.tuneError(r); !errors.As(err, new(*lab.WrongError)) {
		t.Error(err)
	}
}

// The errors of a build are failures of the variant, unless the machine is at fault.
func TestCandidateThatDoesNotBuild(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"tuned.cu(3): error: no":      &toolchain.CompileError{Output: "a warning\ntuned.cu(3): error: no\nmore"},
		"nothing was printed as such": &toolchain.CompileError{Output: "nothing was printed as such\n"},
		"it breaks a rule":            &toolchain.SourceError{Problem: "it breaks a rule"},
		"it has other parameters":     lab.RequestError("it has other parameters"),
		"":                            errors.New("the disk is full"),
		"\x00":                        fmt.Errorf("build: %w", toolchain.ErrNoCompiler),
	} {
		c := &Candidate{}
		got := c.failToBuild(err)
		if isVariant := len(want) > 1; isVariant != (got == nil) || isVariant && (c.result.Failure != run.FailedCompile || c.result.Reason != want) {
			t.Errorf("%v: %v, %+v", err, got, c.result)
		}
	}
}

// A default that the audit refuses is wrong, and a reference that fails is no result.
func TestTuneDefaultsThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	changed := func(file, old, replacement string) *setup {
		root := t.TempDir()
		if err := os.CopyFS(root, os.DirFS(tunedKernel)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(root, file), []byte(strings.Replace(string(text), old, replacement, 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return newDeclared(t, root)
	}
	s := changed("tuned.cu", "float value = ", "float value = y[0] + ")
	if err := s.tuneError(s.tuneRequest()); !errors.As(err, new(*lab.WrongError)) || !strings.Contains(err.Error(), "reads an output") {
		t.Error(err)
	}
	s = changed("reference.py", "return", "raise ValueError('no luck')\n    return")
	if err := s.tuneError(s.tuneRequest()); !errors.As(err, new(*problem.ReferenceError)) {
		t.Error(err)
	}
	s = changed("tuned.cu", "float *y, int n", "int n, float *y")
	if err := s.tuneError(s.tuneRequest()); !errors.As(err, new(*toolchain.SourceError)) || !strings.Contains(err.Error(), "declare its parameters in this order") {
		t.Error(err)
	}
	s = changed("tuned.cu", "extern", "extrn")
	if err := s.tuneError(s.tuneRequest()); !errors.As(err, new(*toolchain.CompileError)) {
		t.Error(err)
	}
}

// Without small shapes of its own that the variant takes, a request is checked on the smallest shape
// of the kernel. A head dim that is fixed at build time is no knob of a search.
func TestTuneShapesOfAttention(t *testing.T) {
	t.Parallel()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	l := &lab.Lab{Kernel: kernel, Problem: lab.NewProblem(kernel, nil, "")}
	all := kernel.Selection("stage7").Variants()
	v := all[slices.IndexFunc(all, func(v spec.Variant) bool { return attention.HeadDim(v) == 128 })]
	r := Request{Variant: v, Shapes: shapes(t, "1x1x4096x128"), Seeds: []uint64{0}, Budget: Budget{Evaluations: 5}, Objective: run.ObjectiveTime}
	planned, space, err := r.plan(l)
	if err != nil {
		t.Fatal(err)
	}
	for _, small := range planned.Small {
		if err := l.Problem.CheckShapes(v, []spec.Shape{small}); err != nil || l.Problem.Size(small) > l.Problem.Size(r.Shapes[0]) {
			t.Errorf("%s: %v", small, err)
		}
	}
	for _, k := range space.Knobs {
		if k.Name == form.HeadDimKnob && len(k.Values) != 1 {
			t.Errorf("%+v", k)
		}
	}
	r.Shapes = shapes(t, "1x1x64x64")
	if _, _, err := r.plan(l); err == nil || !strings.Contains(err.Error(), "has head dim 64, and "+v.String()+" is built for 128") {
		t.Error(err)
	}
	kernel.Run.SimQuick = nil
	kernel.Groups = nil
	if small := r.smallShapes(l); len(small) != 1 {
		t.Errorf("%v", small)
	}
}
