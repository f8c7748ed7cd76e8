package tuner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attune/internal/run"
)

// editable is a copy of the tuned kernel on the simulator, whose files the test may edit.
func editable(t *testing.T) (s *setup, edit func(file, old, replacement string)) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tunedKernel)); err != nil {
		t.Fatal(err)
	}
	s = newDeclared(t, dir)
	return s, func(file, old, replacement string) {
		t.Helper()
		file = filepath.Join(dir, file)
		text, err := os.ReadFile(file)
		changed := strings.Replace(string(text), old, replacement, 1)
		if err := errors.Join(err, os.WriteFile(file, []byte(changed), 0o600)); err != nil || changed == string(text) {
			t.Fatalf("%s is not edited: %v", file, err)
		}
	}
}

// A search builds all variants from the sources at its start, whatever is edited meanwhile.
func TestTuneReadsSourcesOnce(t *testing.T) {
	t.Parallel()
	s, edit := editable(t)
	r := s.tuneRequest()
	r.Shapes, r.Strategy, r.Fixed = r.Small, "grid", []string{"SCRATCH", "UNUSED", "MODE"}
	edited := false
	failures := map[string]string{}
	result, err := Search(t.Context(), s.Lab, r, func(e run.TuneEvaluation) {
		failures[e.Variant] = e.Failure
		if !edited {
			edit("tuned.cu", "2.0f", "3.0f")
			edited = true
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if failure, evaluated := failures["tuned+THREADS=256+ITEMS=2"]; failure != "" || !evaluated || result.Failed() > 0 {
		t.Errorf("edited during the search: %q", failures)
	}
}

// The compiler reads headers of -I where they are. A search ends when one changes.
func TestTuneEndsWhenAHeaderChanges(t *testing.T) {
	t.Parallel()
	s, edit := editable(t)
	headers := t.TempDir()
	header := filepath.Join(headers, "factor.cuh")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(header, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("#define FACTOR 2.0f\n")
	edit("tuned.cu", "2.0f", "FACTOR")
	edit("tuned.cu", "#if MODE == 4", "#include <factor.cuh>\n#if MODE == 4")
	s.Kernel.Declared.Flags = []string{"-I" + headers}
	r := s.tuneRequest()
	r.Shapes, r.Strategy, r.Fixed = r.Small, "grid", []string{"SCRATCH", "UNUSED", "MODE"}
	evaluations := 0
	_, err := Search(t.Context(), s.Lab, r, func(run.TuneEvaluation) {
		if evaluations++; evaluations == 1 {
			write("#define FACTOR 3.0f\n")
		}
	})
	if err == nil || !strings.Contains(err.Error(), "a header of a folder of -I changed during the search") {
		t.Errorf("after %d evaluations: %v", evaluations, err)
	}
}

// Knobs of the best variant that do not change its simulated cost are reset, also if the search did
// not evaluate the variant without them.
func TestSimulatedTiesAreReset(t *testing.T) {
	t.Parallel()
	s, edit := editable(t)
	edit("tuned.cu", "factor * value", "(UNUSED ? __fmul_rz(factor, value) : __fmul_ru(factor, value))")
	r := s.tuneRequest()
	best := "tuned+ITEMS=2"
	r.Strategy, r.Fixed, r.Budget.Evaluations = "grid", []string{"SCRATCH", "MODE"}, 3
	r.Proposer = &proposer{proposals: []Candidate{{Variant: s.variant(best + "+UNUSED=1"), Origin: "a friend"}}}
	result, all := s.tuned(r)
	tie := evaluationOf(t, all, best+"+UNUSED=1")
	if result.Best.Name() != best || *result.Best.Cost != *tie.Cost || result.Best.Number != tie.Number || !result.Faster {
		t.Errorf("best %+v; evaluated %+v", result.Best, tie)
	}
	if result.Best.CodeHash == tie.CodeHash || len(result.Best.Shapes) != 1 {
		t.Errorf("%+v", result.Best)
	}
}
