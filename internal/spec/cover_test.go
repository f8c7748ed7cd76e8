package spec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCover(t *testing.T) {
	k := loadToy(t)
	checkCover(t, k)
	if n, all := len(k.Cover()), len(assignments(k)); n > 9 || n >= all {
		t.Errorf("the cover has %d of %d variants", n, all)
	}
}

// The shipped kernel has too many variants to try them all. Its cover must be small and
// deterministic.
func TestCoverOfShippedKernel(t *testing.T) {
	k, err := Load(os.DirFS(filepath.Join("..", "..", "kernels")))
	if err != nil {
		t.Fatal(err)
	}
	cover := k.Cover()
	if len(cover) > 90 {
		t.Errorf("the cover has %d variants, want at most 90", len(cover))
	}
	for _, v := range cover {
		if same, err := k.Variant(v.String()); err != nil || same.String() != v.String() {
			t.Errorf("%s: %v, %v", v, same, err)
		}
	}
	if diff := cmp.Diff(texts(cover), texts(k.Cover())); diff != "" {
		t.Errorf("two calls give different sets:\n%s", diff)
	}
}

func TestCoverOfSmallKernels(t *testing.T) {
	check := func(knobs []Knob, rules []string, stage []int, want ...string) {
		t.Helper()
		k := kernelOf(t, knobs, rules, stage)
		if diff := cmp.Diff(want, texts(k.Cover())); diff != "" {
			t.Errorf("knobs %v under %q (-want +got):\n%s", knobs, rules, diff)
		}
	}
	a, b := Knob{Name: "A", Values: []int{0, 1}}, Knob{Name: "B", Values: []int{7, 5}}
	check(nil, nil, nil, "s")
	check([]Knob{a}, nil, []int{0}, "s", "s+A=1")
	check([]Knob{a}, []string{"A"}, []int{1}, "s")
	check([]Knob{a, b}, nil, []int{0, 7}, "s", "s+B=5", "s+A=1", "s+A=1+B=5")
	check([]Knob{a, b}, []string{"A or B == 7"}, []int{0, 7}, "s", "s+A=1", "s+A=1+B=5")
	// A rule that cannot be evaluated allows nothing.
	check([]Knob{a, b}, []string{"B // A == B"}, []int{1, 7}, "s", "s+B=5")
}

// No rule forbids A=0 with B=0; only the search finds that they leave no values for C, D and E.
func TestCoverOfImpossiblePair(t *testing.T) {
	var knobs []Knob
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		knobs = append(knobs, Knob{Name: name, Values: []int{0, 1}})
	}
	k := kernelOf(t, knobs, []string{"A or B or C != D", "A or B or D != E", "A or B or C != E"}, []int{1, 1, 0, 0, 0})
	checkCover(t, k)
}

// Each variant is named after the nearest stage, and every source has its own cover.
func TestCoverUsesNearestStage(t *testing.T) {
	a, b, c := Knob{Name: "A", Values: []int{0, 1}}, Knob{Name: "B", Values: []int{0, 1}}, Knob{Name: "C", Values: []int{0, 1}}
	k := kernelOf(t, []Knob{a, b, c}, []string{"A == B"}, []int{0, 0, 0})
	second := &Stage{Name: "t", Source: "s.cu", kernel: k, values: []int{1, 1, 0}}
	otherSource := &Stage{Name: "u", Source: "u.cu", kernel: k, values: []int{1, 1, 1}}
	k.Stages = append(k.Stages, second, otherSource)
	want := []string{"s", "s+C=1", "t", "t+C=1", "u+A=0+B=0+C=0", "u+A=0+B=0", "u+C=0", "u"}
	if diff := cmp.Diff(want, texts(k.Cover())); diff != "" {
		t.Error(diff)
	}
}

func FuzzCover(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		if k := randomKernel(t, rand.New(rand.NewPCG(seed, 1))); k != nil {
			checkCover(t, k)
		}
	})
}

func BenchmarkCover(b *testing.B) {
	k, err := Load(os.DirFS(filepath.Join("..", "..", "kernels")))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.ReportMetric(float64(len(k.Cover())), "variants")
	}
}

// checkCover compares a cover with all allowed assignments: it has all their pairs, only allowed
// variants, and none that could be removed.
func checkCover(t *testing.T, k *Kernel) {
	t.Helper()
	cover := k.Cover()
	var sets [][]int
	for _, v := range cover {
		sets = append(sets, v.values)
		if broken := k.check(v); len(broken) > 0 {
			t.Fatalf("%s is not allowed: %v", v, broken)
		}
	}
	all := assignments(k)
	want, got := pairsOf(all), pairsOf(sets)
	for pair := range want {
		if !got[pair] {
			t.Fatalf("knobs %v under %v: no variant of %v has %v", k.Knobs, rulesOf(k), texts(cover), pair)
		}
	}
	for i, v := range cover {
		others := slices.Delete(slices.Clone(sets), i, i+1)
		if len(cover) > 1 && len(pairsOf(others)) == len(want) {
			t.Fatalf("knobs %v under %v: %s of %v is not needed", k.Knobs, rulesOf(k), v, texts(cover))
		}
	}
	if diff := cmp.Diff(texts(cover), texts(k.Cover())); diff != "" {
		t.Fatalf("two calls give different sets:\n%s", diff)
	}
}

// pairsOf returns all pairs of the assignments, by knob and value; a knob forms a pair with itself
// too.
func pairsOf(assignments [][]int) map[[4]int]bool {
	found := map[[4]int]bool{}
	for _, values := range assignments {
		for i, a := range values {
			for j, b := range values[i:] {
				found[[4]int{i, a, i + j, b}] = true
			}
		}
	}
	return found
}

// assignments returns every assignment that obeys the rules.
func assignments(k *Kernel) [][]int {
	all := [][]int{{}}
	for _, knob := range k.Knobs {
		var longer [][]int
		for _, values := range all {
			for _, v := range knob.Values {
				longer = append(longer, append(slices.Clone(values), v))
			}
		}
		all = longer
	}
	return slices.DeleteFunc(all, func(values []int) bool {
		for _, c := range k.Constraints {
			if ok, _ := c.Holds(values); !ok {
				return true
			}
		}
		return false
	})
}

// kernelOf returns a kernel with one stage, s, of the given values.
func kernelOf(t *testing.T, knobs []Knob, rules []string, stage []int) *Kernel {
	t.Helper()
	k := &Kernel{Knobs: knobs}
	for _, rule := range rules {
		c, wrong := newConstraint(rule, "", k.knobNames())
		if len(wrong) > 0 {
			t.Fatalf("%q: %v", rule, wrong)
		}
		k.Constraints = append(k.Constraints, c)
	}
	k.Stages = []*Stage{{Name: "s", Source: "s.cu", kernel: k, values: stage}}
	return k
}

// randomKernel returns a kernel with a few knobs and rules, nil if they allow no variant.
func randomKernel(t *testing.T, random *rand.Rand) *Kernel {
	t.Helper()
	var knobs []Knob
	for i := range 1 + random.IntN(6) {
		knobs = append(knobs, Knob{Name: string(rune('A' + i)), Values: random.Perm(6)[:1+random.IntN(4)]})
	}
	pick := func() string { return knobs[random.IntN(len(knobs))].Name }
	var rules []string
	for range random.IntN(6) {
		a, b, c, n := pick(), pick(), pick(), random.IntN(8)
		rules = append(rules, []string{
			fmt.Sprintf("%s or not %s", a, b),
			fmt.Sprintf("%s + %s + %s != %d", a, b, c, n),
			fmt.Sprintf("%s * %s <= %d", a, b, 2*n),
			fmt.Sprintf("%s %% %s == 0 or %s > %d", a, b, c, n/2), // fails for 0
			fmt.Sprintf("%s in (%d, %s, %s)", a, n, b, c),
			fmt.Sprintf("%s != %s", a, b),
		}[random.IntN(6)])
	}
	k := kernelOf(t, knobs, rules, nil)
	all := assignments(k)
	if len(all) == 0 {
		return nil
	}
	k.Stages[0].values = all[random.IntN(len(all))]
	return k
}

func texts(variants []Variant) []string {
	var all []string
	for _, v := range variants {
		all = append(all, v.String())
	}
	return all
}

func rulesOf(k *Kernel) []string {
	var all []string
	for _, c := range k.Constraints {
		all = append(all, c.Rule)
	}
	return all
}
