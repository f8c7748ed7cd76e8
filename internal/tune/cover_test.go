package tune

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestFewestForms(t *testing.T) {
	t.Parallel()
	none := math.Inf(1)
	for _, test := range []struct {
		name  string
		times [][]float64
		forms []int
		of    []int
	}{
		{"one form", [][]float64{{1, 2}}, []int{0}, []int{0, 0}},
		{"the second is within 2 % everywhere", [][]float64{{1, 2}, {1.019, 1.9}}, []int{1}, []int{1, 1}},
		{"just over 2 %", [][]float64{{1, 2}, {1.021, 1.9}}, []int{0, 1}, []int{0, 1}},
		{"missing times", [][]float64{{1, none}, {math.NaN(), 5}, {1.5, 9}}, []int{0, 1}, []int{0, 1}},
		{"of two single forms the faster", [][]float64{{1, 1.01}, {1, 1}, {1.01, 1}}, []int{1}, []int{1, 1}},
		// Greedy takes form 0, which covers most shapes, and then needs two more.
		{
			"greedy would take three",
			[][]float64{{9, 1, 1, 1, 1, 9}, {1, 1, 1, 9, 9, 9}, {9, 9, 9, 1, 1, 1}},
			[]int{1, 2},
			[]int{1, 1, 1, 2, 2, 2},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, err := FewestForms(test.times, Tolerance)
			if err != nil || !c.Exact || !slices.Equal(c.Forms, test.forms) || !slices.Equal(c.Of, test.of) {
				t.Errorf("got %+v, %v; want forms %v of shapes %v", c, err, test.forms, test.of)
			}
		})
	}
}

func TestFewestFormsErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		times     [][]float64
		tolerance float64
		want      string
	}{
		{nil, 0.02, "no times"},
		{[][]float64{{}}, 0.02, "no times"},
		{[][]float64{{1, 2}, {1}}, 0.02, "form 1 has times of 1 shapes, form 0 of 2"},
		{[][]float64{{1, 0}}, 0.02, "form 0 takes 0 on shape 1"},
		{[][]float64{{1, math.NaN()}, {1, math.Inf(1)}}, 0.02, "no form takes shape 1"},
		{[][]float64{{1}}, -1, "the tolerance is -1"},
		{[][]float64{{1}}, math.NaN(), "the tolerance is NaN"},
	} {
		if _, err := FewestForms(test.times, test.tolerance); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.times, err, test.want)
		}
	}
}

// checkCover compares a cover with all choices of forms.
func checkCover(t *testing.T, times [][]float64, c *Cover) {
	t.Helper()
	loss, err := losses(times, Tolerance)
	if err != nil {
		t.Fatal(err)
	}
	all := &covering{loss: loss, takes: make([][]int, len(times[0]))}
	fewest, least := len(times)+1, math.Inf(1)
	for set := uint(1); set < 1<<len(times); set++ {
		var chosen []int
		for form := range times {
			if set>>form&1 != 0 {
				chosen = append(chosen, form)
			}
		}
		total, n := all.sum(chosen), bits.OnesCount(set)
		if !math.IsInf(total, 1) && (n < fewest || n == fewest && total < least) {
			fewest, least = n, total
		}
	}
	if got := all.sum(c.Forms); !c.Exact || len(c.Forms) != fewest || math.Abs(got-least) > 1e-9 {
		t.Errorf("%v: got %v with losses of %v; want %d forms with %v", times, c.Forms, got, fewest, least)
	}
	for shape, form := range c.Of {
		if !slices.Contains(c.Forms, form) || math.IsInf(loss[form][shape], 1) {
			t.Errorf("%v: shape %d has form %d, which is not chosen or too slow", times, shape, form)
		}
	}
}

func TestFewestFormsAgainstAllChoices(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		times := make([][]float64, 1+random.IntN(9))
		shapes := 1 + random.IntN(8)
		for form := range times {
			for range shapes {
				times[form] = append(times[form], 1+0.008*float64(random.IntN(6)))
			}
		}
		c, err := FewestForms(times, Tolerance)
		if err != nil {
			t.Fatal(err)
		}
		checkCover(t, times, c)
	}
}

// A search that is cut off still returns a valid choice, and says that it may not be the smallest.
func TestFewestFormsCutOff(t *testing.T) {
	t.Parallel()
	times := [][]float64{{9, 1, 1, 1, 1, 9}, {1, 1, 1, 9, 9, 9}, {9, 9, 9, 1, 1, 1}}
	c, err := fewestForms(times, Tolerance, 1)
	if err != nil || c.Exact || len(c.Forms) != 3 {
		t.Errorf("got %+v, %v; want the greedy choice of all three forms, not exact", c, err)
	}
}

// A hundred forms on forty shapes are as many as a long search of all benchmark shapes leaves.
func TestFewestFormsOfManyShapes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the solver takes seconds")
	}
	random := rand.New(rand.NewPCG(3, 4))
	times := make([][]float64, 100)
	for form := range times {
		for shape := range 40 {
			apart := math.Abs(float64(form)/100 - float64(shape)/40)
			times[form] = append(times[form], 1+apart+0.01*random.Float64())
		}
	}
	c, err := FewestForms(times, Tolerance)
	if err != nil || !c.Exact {
		t.Fatalf("got %+v, %v; want an exact answer", c, err)
	}
}

func FuzzFewestForms(f *testing.F) {
	f.Add(uint8(3), []byte{1, 2, 3, 0, 5, 6, 7, 8, 9})
	f.Add(uint8(1), []byte{0})
	f.Add(uint8(2), []byte{255, 254, 253})
	f.Fuzz(func(t *testing.T, shapes uint8, data []byte) {
		n := 1 + int(shapes%8)
		var times [][]float64
		for len(data) >= n && len(times) < 10 {
			var row []float64
			for _, b := range data[:n] {
				x := math.NaN() // a form that cannot take the shape
				if b > 0 {
					x = 100 + float64(b)/16
				}
				row = append(row, x)
			}
			times, data = append(times, row), data[n:]
		}
		if c, err := FewestForms(times, Tolerance); err == nil {
			checkCover(t, times, c)
		}
	})
}
