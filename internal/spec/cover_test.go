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
	if n, all := len(k.Cover()), len(allowed(k)); n > 9 || n >= all {
		t.Errorf("%d variants of %d cover the toy", n, all)
	}
}

// The kernel that ships has too many variants to try them all; its set must still be small, and the same every time.
func TestCoverOfTheShippedKernel(t *testing.T) {
	k, err := Load(os.DirFS(filepath.Join("..", "..", "kernels", "sdpa")))
	if err != nil {
		t.Fatal(err)
	}
	cover := k.Cover()
	if len(cover) > 90 {
		t.Errorf("%d variants are needed", len(cover))
	}
	for _, v := range cover {
		if same, err := k.Variant(v.String()); err != nil || same.String() != v.String() {
			t.Errorf("%s: %v, %v", v, same, err)
		}
	}
	if diff := cmp.Diff(texts(cover), texts(k.Cover())); diff != "" {
		t.Errorf("the second time it is another set:\n%s", diff)
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
	// A rule without an answer allows nothing.
	check([]Knob{a, b}, []string{"B // A == B"}, []int{1, 7}, "s", "s+B=5")
}

// No rule forbids A=0 with B=0: only the search finds that they leave nothing to C, D and E.
func TestCoverOfAPairThatLeadsNowhere(t *testing.T) {
	var knobs []Knob
	for _, name := range []string{"A", "B", "C", "D", "E"} {
		knobs = append(knobs, Knob{Name: name, Values: []int{0, 1}})
	}
	k := kernelOf(t, knobs, []string{"A or B or C != D", "A or B or D != E", "A or B or C != E"}, []int{1, 1, 0, 0, 0})
	checkCover(t, k)
}

// Each variant is written from the stage that is nearest to it, and every source has a set of its own.
func TestCoverIsWrittenFromTheNearestStage(t *testing.T) {
	a, b, c := Knob{Name: "A", Values: []int{0, 1}}, Knob{Name: "B", Values: []int{0, 1}}, Knob{Name: "C", Values: []int{0, 1}}
	k := kernelOf(t, []Knob{a, b, c}, []string{"A == B"}, []int{0, 0, 0})
	other := &Stage{Name: "t", Source: "s.cu", kernel: k, values: []int{1, 1, 0}}
	apart := &Stage{Name: "u", Source: "u.cu", kernel: k, values: []int{1, 1, 1}}
	k.Stages = append(k.Stages, other, apart)
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
	k, err := Load(os.DirFS(filepath.Join("..", "..", "kernels", "sdpa")))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.ReportMetric(float64(len(k.Cover())), "variants")
	}
}

// checkCover tries every assignment there is: the set has all pairs that the allowed ones have, and no variant that is not
// allowed, none twice and none that could be left out.
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
	all := allowed(k)
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
		t.Fatalf("the second time it is another set:\n%s", diff)
	}
}

// pairsOf is all pairs in assignments, by knob and value; a single knob makes one with itself.
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

// allowed is every assignment that obeys the rules.
func allowed(k *Kernel) [][]int {
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

// kernelOf makes a kernel with one stage, s, that has the given values.
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

// randomKernel makes a kernel with a few knobs and rules, or nil where those allow no variant.
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
			fmt.Sprintf("%s %% %s == 0 or %s > %d", a, b, c, n/2), // no answer for 0
			fmt.Sprintf("%s in (%d, %s, %s)", a, n, b, c),
			fmt.Sprintf("%s != %s", a, b),
		}[random.IntN(6)])
	}
	k := kernelOf(t, knobs, rules, nil)
	all := allowed(k)
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
