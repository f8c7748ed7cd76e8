package propose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attune/internal/lab"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/internal/tune"
	"attune/internal/tuner"
)

// newTuner is a part of the test kernel without a compiler or a device.
func newTuner(t *testing.T, command []string, note func(string)) (*Tuner, tuner.State) {
	t.Helper()
	folder := kernelFolder()
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab.Lab{Kernel: kernel, Builder: toolchain.NewBuilder(folder, nil, "")}
	v := kernel.Stages[0].Variant()
	part, err := ForLab(l, tuner.Request{Variant: v, Arch: "sm_80"}, Options{Command: command, Note: note})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { part.Close() })
	space, err := tune.OfVariant(v, "UNROLL")
	if err != nil {
		t.Fatal(err)
	}
	cost := 2e-6
	e := run.TuneEvaluation{Variant: "k", Origin: "default", Objective: run.ObjectiveTime, Cost: &cost}
	return part, tuner.State{Space: space, Default: e, Best: e, Elites: []run.TuneEvaluation{e}, Evaluations: 1}
}

// Proposals without a result are reported as skipped, and fixed knobs stay.
func TestTuner(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "heard")
	var notes []string
	part, state := newTuner(t, program(t, "hear", log,
		`{"type":"proposals","variants":[{"knobs":{"THREADS":32}},{"knobs":{"THREADS":128}},{"knobs":{"UNROLL":2}}]}`,
		`{"type":"done"}`), func(text string) { notes = append(notes, text) })
	proposals, err := part.Propose(t.Context(), state)
	if err != nil || len(proposals) != 2 || proposals[0].Origin != "proposal 1" || proposals[0].Patch != nil || proposals[0].Parent != "k" {
		t.Fatalf("%+v, %v", proposals, err)
	}
	if len(notes) != 1 || !strings.HasSuffix(notes[0], "the search keeps UNROLL=1") {
		t.Errorf("%q", notes)
	}
	for _, e := range []run.TuneEvaluation{{Variant: "k", Origin: "evo"}, {Variant: "k+THREADS=32", Origin: "proposal 1", Failure: run.FailedCompile, Reason: "no"}} {
		if err := part.Done(e); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if proposals, err = part.Propose(t.Context(), state); err != nil || proposals != nil {
			t.Errorf("%+v, %v", proposals, err)
		}
	}
	heard, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(heard), "\n")
	if len(lines) != 4 { // hello, two states, the end
		t.Fatalf("%s", heard)
	}
	for i, want := range []string{
		`{"name":"UNROLL","layer":"macro","values":[1],"default":1}`,
		`"elites":[{"variant":"k","knobs":{"THREADS":64,"UNROLL":1},"p50_us":2,"origin":"default"}]`,
		`{"proposal":1,"variant":"k+THREADS=32","stage":"build","reason":"compile: no"},` +
			`{"proposal":2,"variant":"k+THREADS=128","stage":"skipped","reason":"the search has evaluated this variant, is about to, or has ended"}]`,
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("message %d is %s\nwant %s", i+1, lines[i], want)
		}
	}
}

func TestResultsOfEvaluations(t *testing.T) {
	t.Parallel()
	cost := 3.0
	for _, c := range []struct {
		e    run.TuneEvaluation
		want Result
	}{
		{run.TuneEvaluation{Objective: run.ObjectiveTime, Cost: &cost}, Result{Stage: "measured", P50US: 3e6}},
		{run.TuneEvaluation{Objective: run.ObjectiveEnergy, Cost: &cost, Best: true}, Result{Stage: "measured", Cost: 3, Best: true}},
		{run.TuneEvaluation{Objective: run.ObjectiveCost, Cost: &cost, SameAs: "k"}, Result{Stage: "measured", Cost: 3, Reason: "its machine code is that of k"}},
		{run.TuneEvaluation{Failure: run.FailedResources, Reason: "r"}, Result{Stage: "resources", Reason: "resources: r"}},
		{run.TuneEvaluation{Failure: run.FailedCrashed, Reason: "r"}, Result{Stage: "correctness", Reason: "crashed: r"}},
		{run.TuneEvaluation{Failure: run.FailedIncorrect, Reason: "r", Against: "k"}, Result{Stage: "timing", Reason: "incorrect: r"}},
		{
			run.TuneEvaluation{Objective: run.ObjectiveCost, Cost: &cost},
			Result{Stage: "measured", Cost: 3, Patch: 2, Reason: "the patch changes no machine code of this variant; it counts as the variant without it"},
		},
	} {
		part, _ := newTuner(t, nil, nil)
		c.e.Origin = "proposal 7"
		part.open[c.e.Origin] = Candidate{Proposal: 7, Patch: c.want.Patch}
		c.want.Proposal = 7
		if err := part.Done(c.e); err != nil || len(part.last) != 1 || part.last[0] != c.want {
			t.Errorf("%+v: %+v, %v", c.e, part.last, err)
		}
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	part, _ := newTuner(t, nil, nil)
	const diff = "--- h.cuh\n+++ h.cuh\n@@ -1 +1 @@\n-// h\n+x\n"
	p, err := part.Restore(t.Context(), "k+UNROLL=2", "proposal 1", []byte(diff))
	if err != nil || p.Variant.String() != "k+UNROLL=2" || p.Patch == nil || p.Patch.Lab == part.lab || string(p.Patch.Diff) != diff {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := part.Restore(t.Context(), "j", "", []byte(diff)); err == nil {
		t.Error("an unknown variant is restored")
	}
	if _, err := part.Restore(t.Context(), "k", "", []byte("x")); err == nil {
		t.Error("a broken patch is restored")
	}
}

func TestTunerErrors(t *testing.T) {
	t.Parallel()
	folder := kernelFolder()
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	delete(folder, "k.cu")
	l := &lab.Lab{Kernel: kernel, Builder: toolchain.NewBuilder(folder, nil, "")}
	if _, err := ForLab(l, tuner.Request{Variant: kernel.Stages[0].Variant()}, Options{}); err == nil || !strings.Contains(err.Error(), "k.cu") {
		t.Error(err)
	}
	part, state := newTuner(t, program(t, "say", `{"type":"proposals","variants":[{}]}`), nil)
	if err := part.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if files := part.Files(); len(files) != 1 || files[0] != RecordFile {
		t.Errorf("%q", files)
	}
	if _, err := part.Propose(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	part.waiting = append(part.waiting, "proposal 9")
	part.open["proposal 9"] = Candidate{Proposal: 9, Variant: part.subject.Default}
	if err := part.Close(); err != nil || len(part.open) != 0 || part.last[len(part.last)-1].Stage != "skipped" {
		t.Errorf("%+v, %v", part.last, err)
	}
	if err := part.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	part, state = newTuner(t, program(t, "say", `{"type":"proposals","variants":[{}]}`), nil)
	if err := part.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if _, err := part.Propose(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	part.record.file.Close()
	if _, err := part.Propose(t.Context(), state); err == nil {
		t.Error("a result that cannot be recorded is lost")
	}
	none, _ := newTuner(t, nil, nil)
	if files := none.Files(); files != nil {
		t.Errorf("%q", files)
	}
}
