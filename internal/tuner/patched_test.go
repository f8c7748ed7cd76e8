package tuner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/run"
)

// patchedTuned returns a lab of the tuned kernel with another source. Its default variant is
// "patched" to the fake GPU.
func (s *setup) patchedTuned(b behaviour) *lab.Lab {
	s.t.Helper()
	return s.patchedSource("factor * value", "__fadd_rn(factor * value, 0.0f)", b)
}

func (s *setup) patchedSource(old, replacement string, b behaviour) *lab.Lab {
	s.t.Helper()
	source, err := os.ReadFile(filepath.Join(tunedKernel, "tuned.cu"))
	if err != nil {
		s.t.Fatal(err)
	}
	text := strings.Replace(string(source), old, replacement, 1)
	patched := s.Patched(map[string][]byte{"tuned.cu": []byte(text)})
	s.declareAs("patched", patched, "tuned", b)
	return patched
}

// spoilBeside makes the timed launches of a variant wrong if the patched kernel is timed with it.
func (s *setup) spoilBeside(name string) {
	b := s.gpu.Behaviours[name]
	b.Timed = func(out []byte) {
		if strings.Contains(s.gpu.Timed[len(s.gpu.Timed)-1], "patched") {
			spoil(out)
		}
	}
	s.gpu.Behaviours[name] = b
}

// keeper is a proposer that keeps a file.
type keeper struct {
	proposer
	folder    string
	closed    int
	ended     bool
	openErr   error
	closeErr  error
	keepsNone bool
}

func (k *keeper) Open(folder string) error {
	k.folder = folder
	return errors.Join(k.openErr, os.WriteFile(filepath.Join(folder, "patch-7.diff"), []byte("a diff"), 0o600))
}

func (k *keeper) Files() []string {
	if k.keepsNone {
		return nil
	}
	return []string{"patch-7.diff"}
}

func (k *keeper) Close() error {
	k.closed++
	return k.closeErr
}

func (k *keeper) Ended() bool { return k.ended || len(k.states) > 2 }

func (s *setup) patchProposal(l *lab.Lab) []Candidate {
	return []Candidate{{Variant: s.variant("tuned"), Origin: "a stranger", Patch: strangersPatch(l)}}
}

func strangersPatch(l *lab.Lab) *Patch {
	return &Patch{Lab: l, Diff: []byte("a diff"), File: "patch-7.diff"}
}

// strangersEvaluation is that of the patched kernel.
func strangersEvaluation(t *testing.T, all []run.TuneEvaluation) run.TuneEvaluation {
	t.Helper()
	for _, e := range all {
		if e.Origin == "a stranger" {
			return e
		}
	}
	t.Fatal("the patched kernel was not evaluated")
	return run.TuneEvaluation{}
}

// A patched kernel that spoils what is timed beside it fails itself, and neither the default nor the
// best variant so far.
func TestPatchedKernelSpoilsOthers(t *testing.T) {
	t.Parallel()
	for _, best := range []string{"the default", "another variant"} {
		s := newTuned(t)
		s.landscape()
		if best == "the default" { // no other is faster
			for name, b := range s.gpu.Behaviours {
				b.Seconds += 50e-6
				s.gpu.Behaviours[name] = b
			}
			s.gpu.Behaviours["tuned"] = behaviour{Seconds: 5e-6}
		}
		patched := s.patchedTuned(behaviour{Seconds: 1e-6})
		for name := range s.gpu.Behaviours {
			if name != "patched" && name != "tuned+THREADS=128" {
				s.spoilBeside(name)
			}
		}
		r := s.tuneRequest()
		k := &keeper{proposer: proposer{proposals: s.patchProposal(patched)}}
		r.Proposer = k
		result, all := s.tuned(r)
		e, standard := strangersEvaluation(t, all), evaluationOf(t, all, "tuned")
		if e.OK() || e.Cost != nil || e.Patch != "patch-7.diff" || result.Best.Patch != "" || !standard.OK() {
			t.Errorf("beside %s: %+v", best, e)
		}
		if result.Faster != (best != "the default") {
			t.Errorf("beside %s: the best is %+v", best, result.Best)
		}
		if text, err := s.Ledger.ReadTuning(t.Context(), result.ID, "patch-7.diff"); err != nil || string(text) != "a diff" || k.closed == 0 {
			t.Errorf("the patch of the record: %q, %v", text, err)
		}
	}
}

// A patched kernel that spoils the default only in the finals fails there.
func TestPatchedKernelSpoilsTheFinals(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"wrong", "lost"} {
		s := newTuned(t)
		s.landscape()
		patched := s.patchedTuned(behaviour{Seconds: 4e-6})
		finals := false
		s.Progress = func(p lab.Progress) { finals = finals || strings.HasPrefix(p.Step, "finals on") }
		b := s.gpu.Behaviours["tuned"]
		hit := func() bool { return finals && strings.Contains(s.gpu.Timed[len(s.gpu.Timed)-1], ",patched") }
		if how == "wrong" {
			b.Timed = func(out []byte) {
				if hit() {
					spoil(out)
				}
			}
		} else {
			b.TimingOf = func() error {
				if hit() {
					return &device.Crash{How: "signal: killed"}
				}
				return nil
			}
		}
		s.gpu.Behaviours["tuned"] = b
		r := s.tuneRequest()
		r.Proposer = &keeper{proposer: proposer{proposals: s.patchProposal(patched)}}
		result, all := s.tuned(r)
		if e := strangersEvaluation(t, all); !e.OK() || !e.Best {
			t.Errorf("%s: %+v", how, e)
		}
		if !result.Faster || result.Best.Variant != "tuned+THREADS=256+ITEMS=2" {
			t.Errorf("%s: the best is %+v", how, result.Best)
		}
		failed := result.Elites[len(result.Elites)-1]
		if failed.Name() != "tuned with patch-7.diff" || !strings.HasPrefix(failed.Reason, "timed beside it, ") {
			t.Errorf("%s: %+v", how, failed)
		}
	}
}

// What a patch does to the compiler is its own failure, in the search and in the finals of a resumed
// one.
func TestPatchedKernelThatDoesNotBuild(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	outside := s.Patched(map[string][]byte{"tuned.cu": []byte("#include \"../secret.cuh\"\n")})
	r := s.tuneRequest()
	r.Proposer = &keeper{proposer: proposer{proposals: s.patchProposal(outside)}}
	result, all := s.tuned(r)
	if e := strangersEvaluation(t, all); e.Failure != run.FailedCompile || !strings.Contains(e.Reason, "which is outside the kernel's folder") || !result.Faster {
		t.Errorf("%+v", e)
	}

	s = newTuned(t)
	s.landscape()
	k := &keeper{proposer: proposer{proposals: s.patchProposal(s.patchedTuned(behaviour{Seconds: 4e-6}))}}
	r = s.tuneRequest()
	r.Proposer, r.Folder = k, t.TempDir()
	s.tuned(r)
	k.proposals = s.patchProposal(outside) // it is restored from other sources
	r.Resume, k.states = true, nil
	k.ended = true
	result, _ = s.tuned(r)
	failed := result.Elites[len(result.Elites)-1]
	if failed.Patch == "" || failed.Failure != run.FailedCompile || result.Best.Variant != "tuned+THREADS=256+ITEMS=2" {
		t.Errorf("%+v, best %+v", failed, result.Best)
	}
}

// A patch that changes no machine code is dropped: the variant itself is the result.
func TestPatchWithoutEffect(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	s.landscape()
	noop := s.patchedSource("factor * value;", "factor * value;  // faster", behaviour{})
	best := s.variant("tuned+THREADS=256+ITEMS=2")
	k := &keeper{proposer: proposer{proposals: []Candidate{{Variant: best, Origin: "a stranger", Patch: strangersPatch(noop)}}}}
	r := s.tuneRequest()
	r.Strategy, r.Budget.Evaluations, r.Proposer = "grid", 3, k
	result, all := s.tuned(r)
	if result.Best.Name() != best.String() || result.Best.Origin != "a stranger" || !result.Faster {
		t.Errorf("%+v", result.Best)
	}
	if e := strangersEvaluation(t, all); e.Patch != "" || e.SameAs != "" || e.Number != 3 {
		t.Errorf("%+v", e)
	}
	k.states = nil
	r.Budget.Evaluations = 100 // the strategy has evaluated the variant, or asked for it
	k.proposals[0].Variant = s.variant("tuned")
	if _, all = s.tuned(r); strangersEvaluation(t, all).SameAs != "tuned" {
		t.Errorf("%+v", strangersEvaluation(t, all))
	}
	k.states = nil
	k.proposals[0].Variant = s.variant("tuned+UNUSED=1") // the first of the grid
	_, all = s.tuned(r)
	numbers := map[int]bool{}
	for _, e := range all {
		if e.SameAs == "" && numbers[e.Number] {
			t.Errorf("%s is a second evaluation %d", e.Variant, e.Number)
		}
		numbers[e.Number] = true
	}
	if len(numbers) != 13 || !numbers[1] || !numbers[13] {
		t.Errorf("%v", numbers)
	}
}

// A variant of the kernel with the machine code of a patched one takes its place, also if the search
// is resumed without the proposer. The files of the proposer stay in the record.
func TestVariantWithTheCodeOfAPatch(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		s := newTuned(t)
		s.landscape()
		wasteful := s.patchedSource("extern", "#undef MODE\n#define MODE 3\nextern", behaviour{Seconds: 1e-6})
		s.gpu.Behaviours["tuned+MODE=3"] = behaviour{Seconds: 1e-6}
		r := s.tuneRequest()
		r.Proposer = &keeper{proposer: proposer{proposals: s.patchProposal(wasteful)}}
		if resumed {
			if err := s.cancelAt("finals on", r); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			r.Resume, r.Proposer = true, nil
		}
		leftOut := 0
		r.Resumed = func(state State) { leftOut = state.LeftOut }
		result, _ := s.tuned(r)
		if result.Best.Name() != "tuned+MODE=3" || leftOut == 1 != resumed {
			t.Errorf("resumed %v: %+v, %d left out", resumed, result.Best, leftOut)
		}
		if text, err := s.Ledger.ReadTuning(t.Context(), result.ID, "patch-7.diff"); err != nil || string(text) != "a diff" {
			t.Errorf("resumed %v: %q, %v", resumed, text, err)
		}
	}
}

// Errors of a proposer's files end a search: what it has found would be lost too.
func TestKeeperErrors(t *testing.T) {
	t.Parallel()
	for _, k := range []*keeper{{openErr: errors.New("no space")}, {closeErr: errors.New("no space"), keepsNone: true}} {
		s := newTuned(t)
		s.landscape()
		r := s.tuneRequest()
		r.Budget.Evaluations, r.Proposer = 1, k
		if _, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {}); err == nil || err.Error() != "no space" {
			t.Error(err)
		}
	}
}

// A search whose strategy has no more variants waits for its proposer, but not for ever.
func TestTuneWaitsForItsProposer(t *testing.T) {
	t.Parallel()
	ended := &keeper{}
	for _, c := range []struct {
		proposer Proposer
		empty    int
		want     bool
	}{
		{nil, 0, false}, {&proposer{}, 0, true}, {&proposer{}, 1, false}, {ended, maxEmpty - 1, true}, {ended, maxEmpty, false}, {&keeper{ended: true}, 0, false},
	} {
		s := &search{request: Request{Proposer: c.proposer}}
		if got := s.mayPropose(c.empty); got != c.want {
			t.Errorf("%T after %d: %v", c.proposer, c.empty, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	(&search{}).pause(ctx, 1)
}

// A variant and a patched kernel whose outputs are right on the GPU do not win if the simulator finds
// them wrong.
func TestSimulatorDecidesTheFinals(t *testing.T) {
	t.Parallel()
	s := newTuned(t)
	simulator := s.simulator()
	s.Device = s.Device.Beside(simulator)
	s.landscape()
	s.gpu.Behaviours["tuned+MODE=2"] = behaviour{Seconds: 2e-6}
	patched := s.patchedSource("at < n || MODE == 2", "at <= n", behaviour{Seconds: 1e-6})
	r := s.tuneRequest()
	r.Proposer = &keeper{proposer: proposer{proposals: s.patchProposal(patched)}}
	result, all := s.tuned(r)
	e := strangersEvaluation(t, all)
	if e.Failure != run.FailedIncorrect || e.Best || !strings.HasPrefix(e.Reason, "on the simulator, n=300 seed 0: out-of-bounds") {
		t.Errorf("the patched kernel: %+v", e)
	}
	if !result.Faster || result.Best.Variant == "tuned+MODE=2" || result.Best.Patch != "" || result.Best.Simulated == nil || result.Best.Simulated.Instances == 0 || result.NoSim {
		t.Errorf("the best is %+v", result.Best)
	}
	wrong := slices.IndexFunc(result.Elites, func(v run.TunedVariant) bool { return v.Variant == "tuned+MODE=2" })
	if wrong < 0 || result.Elites[wrong].Failure != run.FailedIncorrect || !strings.HasPrefix(result.Elites[wrong].Reason, "on the simulator, ") {
		t.Errorf("the elites are %+v", result.Elites)
	}
}
