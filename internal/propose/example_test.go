package propose

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/examples"
	"attune/internal/form"
	"attune/internal/python"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// exampleSubject is the search of an example.
func exampleSubject(t *testing.T, name string) Subject {
	t.Helper()
	folder, ok := examples.Folder(name)
	if !ok {
		t.Fatalf("no example %s", name)
	}
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	v := kernel.Stages[0].Variant()
	sources, err := toolchain.NewBuilder(folder, nil, "").Sources(form.Target(kernel, v, "sm_90a"))
	if err != nil {
		t.Fatal(err)
	}
	return Subject{Kernel: kernel, Default: v, Objective: "cost", Folder: folder, Sources: sources}
}

// example starts a proposer of examples/proposer.
func example(t *testing.T, script, kernel string) *Proposer {
	t.Helper()
	python3, err := python.Find("")
	if err != nil {
		t.Skipf("needs python3: %v", err)
	}
	note := func(text string) { t.Error(text) }
	p := New(Options{Command: []string{python3, "../../examples/proposer/" + script}, Note: note}, exampleSubject(t, kernel))
	t.Cleanup(func() { p.Close() })
	return p
}

// score is a variant with a cost that grows with the distance from the best knobs.
func score(v spec.Variant, patch int, best map[string]float64) Score {
	s := Score{Variant: v.String(), Knobs: map[string]int{}, Patch: patch}
	for _, setting := range v.Values() {
		s.Knobs[setting.Knob] = setting.Value
		s.Cost += math.Abs(math.Log2(float64(setting.Value)+1) - math.Log2(best[setting.Knob]+1))
	}
	return s
}

// The climber finds the best variant of a space without local optima, and ends.
func TestExampleClimb(t *testing.T) {
	t.Parallel()
	p := example(t, "climb.py", "rmsnorm")
	best := map[string]float64{"THREADS": 1024, "CHUNKS": 8, "EARLY_WEIGHTS": 0}
	start := score(p.subject.Default, 0, best)
	elites := []Score{start}
	proposed := map[string]bool{}
	for range 40 {
		candidates, err := p.Ask(t.Context(), State{Evaluations: len(elites), Default: &start, Best: &elites[0], Elites: elites})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range candidates {
			if proposed[c.Variant.String()] {
				t.Errorf("%s is proposed twice", c.Variant)
			}
			proposed[c.Variant.String()] = true
			elites = append(elites, score(c.Variant, 0, best))
		}
		slices.SortStableFunc(elites, func(a, b Score) int { return int(math.Copysign(math.Ceil(math.Abs(a.Cost-b.Cost)), a.Cost-b.Cost)) })
		elites = elites[:min(3, len(elites))]
		if p.Ended() {
			break
		}
	}
	if !p.Ended() || elites[0].Variant != "rmsnorm+THREADS=1024+CHUNKS=8+EARLY_WEIGHTS=0" {
		t.Errorf("ended %v at %+v after %d proposals", p.Ended(), elites[0], len(proposed))
	}
}

// The rewriter proposes patches that apply, and later the best one with other knobs.
func TestExampleRewrite(t *testing.T) {
	t.Parallel()
	p := example(t, "rewrite.py", "reduce")
	start := score(p.subject.Default, 0, nil)
	state := State{Default: &start, Best: &start, Elites: []Score{start}}
	candidates, err := p.Ask(t.Context(), state)
	if err != nil || len(candidates) != 3 {
		t.Fatalf("%+v, %v", candidates, err)
	}
	for i, want := range []string{"__ldcs(&quads[", "#pragma unroll 4\n", "#pragma unroll 2\n"} {
		c := candidates[i]
		if text := string(c.Files["reduce.cu"]); c.Patch != i+1 || len(c.Files) != 1 || !strings.Contains(text, want) || c.About == "" {
			t.Errorf("%+v", slices.Collect(maps.Keys(c.Files)))
		}
	}
	other, err := p.subject.Kernel.Variant("reduce+THREADS=128")
	if err != nil {
		t.Fatal(err)
	}
	best := score(other, 0, nil)
	state.Best, state.Elites = &best, []Score{best, score(p.subject.Default, 2, nil)}
	for _, want := range []int{1, 0} {
		if candidates, err = p.Ask(t.Context(), state); err != nil || len(candidates) != want {
			t.Fatalf("%+v, %v", candidates, err)
		}
		if want == 1 && (candidates[0].Patch != 2 || candidates[0].Variant.String() != "reduce+THREADS=128") {
			t.Errorf("%+v", candidates[0])
		}
	}
}
