package spec

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/tensor"
)

// all accepts every problem.
func all(Shape) error { return nil }

// withRandom is the kernel of a text with ranges behind it.
func withRandom(t testing.TB, random string) *Random {
	t.Helper()
	return mustLoadDeclared(t, declaredText(t)+"\n"+random).Random
}

// attentionRandom is that of a kernel of attention.
func attentionRandom(t testing.TB, random string) *Random {
	t.Helper()
	k, err := loadText(toyText(t) + "\n" + random)
	if err != nil {
		t.Fatal(err)
	}
	return k.Random
}

func drawn(t testing.TB, r *Random, count int, seed uint64) []string {
	t.Helper()
	d, err := r.Draw(count, seed, all)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, s := range d.Shapes {
		texts = append(texts, s.String())
	}
	return texts
}

// someRandom has every form of a range.
const someRandom = `
[random]
where = ["rows * n <= 1 << 20", "n % 8 == 0 or rows > 1"]
[random.axes]
wide = { choices = [0, 1], weights = [3, 1] }
rows = { from = 1, to = 64, scale = "log" }
steps = { from = 1, to = 40 }
n = "steps * 64 if wide else steps"
`

// The problems of a seed are part of records: another generator would make them unrepeatable. An
// independent program draws these, with the exponential in place of the search.
func TestDrawIsFixed(t *testing.T) {
	r := withRandom(t, someRandom)
	want := []string{"rows=6,n=18", "rows=2,n=1024", "rows=5,n=19", "rows=11,n=704", "rows=35,n=2176"}
	if got := drawn(t, r, 5, 7); !slices.Equal(got, want) {
		t.Errorf("seed 7 draws %q, want %q", got, want)
	}
	if got := drawn(t, r, 3, 7); !slices.Equal(got, want[:3]) {
		t.Errorf("three problems of seed 7 are %q, want the first of %q", got, want)
	}
	if got := drawn(t, r, 5, 8); slices.Equal(got, want) {
		t.Errorf("seeds 7 and 8 draw the same: %q", got)
	}
	if r.Against != AgainstPeers || r.Required != 1 || r.OverheadUS != 0 {
		t.Errorf("the defaults are %q, %v, %v", r.Against, r.Required, r.OverheadUS)
	}
}

func TestDrawObeysTheRules(t *testing.T) {
	r := withRandom(t, someRandom)
	d, err := r.Draw(400, 3, all)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[Shape]bool{}
	for _, s := range d.Shapes {
		rows, n := s.(Axes).Value("rows"), s.(Axes).Value("n")
		if rows < 1 || rows > 64 || n < 1 || n > 2560 || n > 40 && n%64 != 0 || n%8 != 0 && rows == 1 {
			t.Errorf("%s is out of the ranges or breaks a rule", s)
		}
		if seen[s] {
			t.Errorf("%s is drawn twice", s)
		}
		seen[s] = true
	}
}

// The shares of many draws are those of the ranges.
func TestDrawDistribution(t *testing.T) {
	const draws = 20_000
	share := func(d draw, within func(int) bool) float64 {
		count := 0
		for i := range draws {
			value, err := d.take(tensor.Stream(1, randomStream, i), nil)
			if err != nil {
				t.Fatal(err)
			}
			if within(value) {
				count++
			}
		}
		return float64(count) / draws
	}
	is := func(want int) func(int) bool { return func(v int) bool { return v == want } }
	for _, c := range []struct {
		what   string
		d      draw
		within func(int) bool
		want   float64
	}{
		{"the first choice of three", draw{choices: []int{5, 7, 9}}, is(5), 1. / 3},
		{"the last choice of three", draw{choices: []int{5, 7, 9}}, is(9), 1. / 3},
		{"a weight of 45 in 100", draw{choices: []int{64, 128, 256}, weights: []int{45, 45, 10}}, is(128), 0.45},
		{"a weight of 10 in 100", draw{choices: []int{64, 128, 256}, weights: []int{45, 45, 10}}, is(256), 0.10},
		{"the low end of 1 to 4", draw{low: 1, high: 4, multiple: 1}, is(1), 0.25},
		{"the high end of 1 to 4", draw{low: 1, high: 4, multiple: 1}, is(4), 0.25},
		{"a single value", draw{low: 9, high: 9, multiple: 1, log: true}, is(9), 1},
		{"one octave of six", draw{low: 1, high: 64, multiple: 1, log: true}, func(v int) bool { return v > 11 && v <= 22 }, 1. / 6},
		{"the low end of a logarithm", draw{low: 1, high: 64, multiple: 1, log: true}, is(1), math.Log(1.5) / math.Log(64)},
		{"multiples", draw{low: 100, high: 16384, multiple: 64, log: true}, func(v int) bool { return v%64 == 0 && v >= 128 }, 1},
	} {
		if got := share(c.d, c.within); math.Abs(got-c.want) > 0.012 {
			t.Errorf("%s: a share of %.4f, want %.4f", c.what, got, c.want)
		}
	}
}

// A logarithm is rounded as its exponential would be.
func TestLogUniform(t *testing.T) {
	for i := range 2000 {
		u := tensor.UniformFloat(tensor.Stream(5, randomStream, i))
		exact := 3 * math.Pow(70000./3, u)
		if got := logUniform(u, 3, 70000); math.Abs(float64(got)-exact) > 0.5+1e-9 {
			t.Errorf("%v of 3 to 70000 is %d, want %v rounded", u, got, exact)
		}
	}
}

func TestDrawAttention(t *testing.T) {
	r := attentionRandom(t, `
[random]
where = "heads % kv_heads == 0"
required = 0.9
[random.axes]
head_dim = 64
kv_heads = { choices = [1, 2, 3] }
heads = { from = 1, to = 6 }
queries = { from = 16, to = 64, multiple = 16 }
keys = "2 * queries"
causal = { choices = [0, 1] }
`)
	if r.Required != 0.9 {
		t.Errorf("the required ratio is %v", r.Required)
	}
	kinds := map[bool]int{}
	for _, text := range drawn(t, r, 60, 1) {
		s, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		kinds[s.Causal]++
		if s.Batch != 1 || s.SeqK != 2*s.SeqQ || s.SeqQ%16 != 0 || s.HeadDim != 64 || s.KVHeads > 3 {
			t.Errorf("%s is out of the ranges", s)
		}
	}
	if len(kinds) != 2 {
		t.Errorf("causal and other problems: %v", kinds)
	}
	plain := attentionRandom(t, "[random.axes]\nheads = 2\nqueries = { from = 1, to = 9 }\nhead_dim = 64\n")
	for _, text := range drawn(t, plain, 9, 1) {
		if !strings.HasPrefix(text, "1x2x") || strings.Contains(text, ":") {
			t.Errorf("the defaults give %s", text)
		}
	}
}

// Problems that the caller refuses are counted, and the draws go on.
func TestDrawRefused(t *testing.T) {
	r := withRandom(t, "[random.axes]\nrows = { from = 1, to = 100 }\nn = 8\n")
	few := func(s Shape) error {
		if s.(Axes).Value("rows") > 50 {
			return fmt.Errorf("%s has too many rows", s)
		}
		return nil
	}
	d, err := r.Draw(10, 1, few)
	if err != nil {
		t.Fatal(err)
	}
	if d.Refused == 0 || !strings.HasSuffix(d.Why.Error(), "has too many rows") || len(d.Shapes) != 10 {
		t.Errorf("%d refused: %v", d.Refused, d.Why)
	}
	_, err = r.Draw(51, 1, few)
	if err == nil || !strings.Contains(err.Error(), "no problem after the first 50") || !strings.Contains(err.Error(), "were drawn before") ||
		!strings.HasSuffix(err.Error(), "; ask for at most 50, or widen the ranges") {
		t.Errorf("51 of 50 problems: %v", err)
	}
	if _, err := r.Draw(1, 1, func(Shape) error { return errors.New("never") }); err == nil || !strings.Contains(err.Error(), "are refused, such as: never") {
		t.Errorf("every problem is refused: %v", err)
	}
}

func TestRandomErrors(t *testing.T) {
	lines := strings.Count(declaredText(t), "\n")
	for _, c := range []struct{ random, want string }{
		{"[random]", `+1: [random] has no "axes"`},
		{"random = 3", `unknown key`},
		{"[random]\naxs = 1", `+2: unknown key "axs" in [random]; did you mean "axes"?`},
		{"[random.axes]\nn = 8", `+1: [random.axes] has no "rows", an axis without a default`},
		{"[random.axes]\nrows = 1\nn = 8\nrosw = 3", `+4: "rosw" in [random.axes] is no axis, and no expression uses it; did you mean "rows"?`},
		{"[random.axes]\nrows = 1.5\nn = 8", `+2: "rows" in [random.axes] is a float; want a number, an expression, or a table such as { from = 1, to = 64 } or { choices = [64, 128] }`},
		{"[random.axes]\nrows = 'n * 2'\nn = 8", `+2: "rows" in [random.axes] is "n * 2": unknown name "n"; there are none`},
		{"[random.axes]\nrows = { from = 9, to = 3 }\nn = 8", `+2: "rows" of [random.axes] is empty: it is from 9 to 3`},
		{"[random.axes]\nrows = { from = 65, to = 120, multiple = 64 }\nn = 8", `+2: "rows" of [random.axes] is empty: no multiple of 64 is from 65 to 120`},
		{"[random.axes]\nrows = { from = 0, to = 3, scale = 'log' }\nn = 8", `+2: "from" in "rows" of [random.axes] is 0; want an integer from 1 to 2147483647`},
		{"[random.axes]\nrows = { from = 1, to = 3, scale = 'lg' }\nn = 8", `+2: "scale" in "rows" of [random.axes] is "lg"; did you mean "log"?`},
		{"[random.axes]\nrows = { from = 1 }\nn = 8", `+2: "rows" of [random.axes] has no "to"`},
		{"[random.axes]\nrows = { choices = [1, 2], weights = [1] }\nn = 8", `+2: "weights" in "rows" of [random.axes] has 1 items for 2 choices`},
		{"[random.axes]\nrows = { choices = [1, 2], weights = [1, 0] }\nn = 8", `+2: "weights" in "rows" of [random.axes]: weight 0: want 1 to 2147483647`},
		{"[random.axes]\nrows = { choices = [1, 2], to = 3 }\nn = 8", `+2: unknown key "to" in "rows" of [random.axes]`},
		{"[random.axes]\nTHREADS = 1\nrows = 1\nn = 'THREADS'", `+2: axis "THREADS" in [random.axes] has the name of a knob; choose another name`},
		{"[random]\nwhere = 'row > 1'\n[random.axes]\nrows = 1\nn = 8", `+2: "where" in [random] is "row > 1": unknown name "row"; did you mean "rows"?`},
		{"[random]\nwhere = '1 > 0'\n[random.axes]\nrows = 1\nn = 8", `+2: "where" in [random] is "1 > 0": it names no name`},
		{"[random]\nwhere = 'rows > 1'\n[random.axes]\nrows = 1\nn = 8", `+1: [random] has no problem: of 10000 draws 10000 break the rule "rows > 1"; widen the ranges or loosen the rules`},
		{"[random]\nwhere = '1 // rows > 1'\n[random.axes]\nrows = 0\nn = 8", `+2: "where" in [random] ("1 // rows > 1") for rows=0,n=8: `},
		{"[random.axes]\nrows = 0\nn = '8 // rows'", `+3: "n" in [random.axes] ("8 // rows") for rows=0: `},
		{"[random.axes]\nrows = 1\nn = 'rows - 2'", `are no shape, such as: n is -1; want 0 to 2147483647; widen`},
		{"[random]\nagainst = 'copi'\n[random.axes]\nrows = 1\nn = 8", `+2: "against" in [random] is "copi"; did you mean "copy"?`},
		{"[random]\noverhead_us = 4\n[random.axes]\nrows = 1\nn = 8", `+2: "overhead_us" in [random] is for against = "copy" only`},
		{"[random]\nrequired = 0\n[random.axes]\nrows = 1\nn = 8", `+2: "required" in [random] is 0; want a number above 0`},
	} {
		_, err := loadDeclared(declaredText(t) + c.random + "\n")
		if err == nil {
			t.Errorf("%s is accepted", c.random)
			continue
		}
		want := c.want
		if rest, ok := strings.CutPrefix(want, "+"); ok {
			var line int
			fmt.Sscanf(rest, "%d", &line)
			_, rest, _ = strings.Cut(rest, ": ")
			want = fmt.Sprintf("kernel.toml:%d: %s", lines+line, rest)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n gives %v\n want %s", c.random, err, want)
		}
	}
}

// A file whose ranges load draws problems that the kernel parses again.
func FuzzRandom(f *testing.F) {
	f.Add(someRandom, uint64(1))
	f.Add("[random]\nagainst = 'copy'\noverhead_us = 4\nrequired = 0.8\n[random.axes]\nrows = { choices = [1, 2], weights = [1, 3] }\nn = 'rows ** 2'\n", uint64(2))
	f.Add("[random]\nwhere = ['rows // n', 'n < 1e3']\n[random.axes]\nn = { from = 0, to = 9, multiple = 3 }\nrows = 'n << 60'\n", uint64(3))
	declared := declaredText(f)
	f.Fuzz(func(t *testing.T, random string, seed uint64) {
		k, err := loadDeclared(declared + random)
		if err != nil || k.Random == nil {
			return
		}
		d, err := k.Random.Draw(3, seed, all)
		if err != nil {
			if !strings.HasPrefix(err.Error(), File+":") {
				t.Fatalf("no place in %q", err)
			}
			return
		}
		again, err := k.Random.Draw(3, seed, all)
		if err != nil || !slices.Equal(d.Shapes, again.Shapes) {
			t.Fatalf("%v, then %v, %v", d.Shapes, again, err)
		}
		for _, s := range d.Shapes {
			if parsed, err := k.ParseShape(s.String()); parsed != s {
				t.Fatalf("%s is %v, %v", s, parsed, err)
			}
		}
	})
}
