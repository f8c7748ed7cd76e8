package tune

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// texts formats lines as "when: form".
func texts(lines []line) []string {
	var all []string
	for _, l := range lines {
		all = append(all, fmt.Sprintf("%s: %d", l.when, l.form))
	}
	return all
}

func TestDeriveTable(t *testing.T) {
	t.Parallel()
	no := math.Inf(1)
	axes := []term{{"queries", true, false}, {"keys", true, false}, {"causal", true, false}, {"rows", false, false}}
	for _, test := range []struct {
		name     string
		examples []example
		want     []string
	}{
		{"one shape", []example{{[]int{1, 1, 0, 1}, []float64{no, 1}}}, []string{": 1"}},
		{
			"a threshold near the geometric mean, a power of two",
			[]example{{[]int{1, 300, 0, 1}, []float64{1, no}}, {[]int{1, 3000, 0, 1}, []float64{no, 1}}},
			[]string{"keys <= 1024: 0", ": 1"},
		},
		{
			"no power of two between",
			[]example{{[]int{1, 300, 0, 1}, []float64{1, no}}, {[]int{1, 310, 0, 1}, []float64{no, 1}}},
			[]string{"keys <= 300: 0", ": 1"},
		},
		{
			"a property that holds or not",
			[]example{{[]int{1, 1, 0, 1}, []float64{1, no}}, {[]int{1, 1, 1, 1}, []float64{no, 1}}},
			[]string{"not causal: 0", ": 1"},
		},
		{
			"an axis comes before a predicate",
			[]example{{[]int{1, 64, 0, 1}, []float64{1, no}}, {[]int{1, 128, 0, 4096}, []float64{no, 1}}},
			[]string{"keys <= 64: 0", ": 1"},
		},
		{
			"the wider gap",
			[]example{{[]int{1, 64, 0, 1}, []float64{1, no}}, {[]int{64, 128, 0, 1}, []float64{no, 1}}},
			[]string{"queries <= 8: 0", ": 1"},
		},
		{
			"two comparisons",
			[]example{
				{[]int{1, 1, 0, 1}, []float64{1, no}},
				{[]int{9, 1, 0, 1}, []float64{no, 1}},
				{[]int{1, 9, 0, 1}, []float64{no, 1}},
				{[]int{9, 9, 0, 1}, []float64{no, 1}},
			},
			[]string{"queries <= 4 and keys <= 4: 0", ": 1"},
		},
		{
			"a form that all may have needs no condition",
			[]example{{[]int{1, 1, 0, 1}, []float64{1, 1.02}}, {[]int{1, 9, 0, 1}, []float64{no, 1}}},
			[]string{": 1"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			lines, err := deriveTable(axes, test.examples)
			if err != nil || !slices.Equal(texts(lines), test.want) {
				t.Errorf("got %q, %v; want %q", texts(lines), err, test.want)
			}
		})
	}
}

// Terms of the present table come first, unless others make the table shorter.
func TestDeriveTableWithTermsInUse(t *testing.T) {
	t.Parallel()
	no := math.Inf(1)
	terms := []term{{"batch", true, false}, {"rows", false, true}}
	same := []example{{[]int{1, 10}, []float64{1, no}}, {[]int{8, 20}, []float64{no, 1}}}
	lines, err := deriveTable(terms, same)
	if want := []string{"rows <= 16: 0", ": 1"}; err != nil || !slices.Equal(texts(lines), want) {
		t.Errorf("got %q, %v; want %q", texts(lines), err, want)
	}
	longer := []example{
		{[]int{1, 10}, []float64{1, no}},
		{[]int{8, 20}, []float64{no, 1}},
		{[]int{1, 40}, []float64{1, no}},
		{[]int{8, 80}, []float64{no, 1}},
	}
	lines, err = deriveTable(terms, longer)
	if want := []string{"batch <= 2: 0", ": 1"}; err != nil || !slices.Equal(texts(lines), want) {
		t.Errorf("got %q, %v; want %q", texts(lines), err, want)
	}
}

// Forms that alternate along both axes need a line each, with an equality where no two comparisons
// separate a shape.
func TestDeriveTableOfScatteredForms(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	terms := []term{{"x", true, false}, {"y", true, false}, {"z", true, false}}
	for range 5 {
		var examples []example
		for x := range 4 {
			for y := range 4 {
				for z := range 2 {
					loss := slices.Repeat([]float64{math.Inf(1)}, 3)
					loss[random.IntN(3)] = 1
					examples = append(examples, example{[]int{x, y, z}, loss})
				}
			}
		}
		lines, err := deriveTable(terms, examples)
		if err != nil {
			t.Fatal(err)
		}
		taken := map[int]bool{}
		for _, l := range lines {
			for _, i := range l.takes {
				if taken[i] || math.IsInf(examples[i].loss[l.form], 1) {
					t.Errorf("%q takes example %d wrongly", l.when, i)
				}
				taken[i] = true
			}
		}
		if len(taken) != len(examples) {
			t.Errorf("%d of %d examples are taken", len(taken), len(examples))
		}
	}
}

func TestDeriveTableErrors(t *testing.T) {
	t.Parallel()
	no := math.Inf(1)
	for _, test := range []struct {
		terms    []term
		examples []example
		want     string
	}{
		{nil, nil, "no shape"},
		{nil, slices.Repeat([]example{{nil, []float64{1}}}, maxExamples+1), "at most 256 shapes; got 257"},
		{
			[]term{{"x", true, false}},
			[]example{{[]int{1}, []float64{1, no}}, {[]int{1}, []float64{no, 1}}},
			"no condition over x separates",
		},
		{nil, []example{{nil, []float64{1, no}}, {nil, []float64{no, 1}}}, "no condition"},
	} {
		if _, err := deriveTable(test.terms, test.examples); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}
