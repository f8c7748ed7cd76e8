package tune

import (
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"attune/internal/spec"
)

func mustKernel(t *testing.T, text string) *spec.Kernel {
	t.Helper()
	kernel, err := spec.Load(fstest.MapFS{"kernel.toml": {Data: []byte(text)}, "copy.cu": {}, "reference.py": {}})
	if err != nil {
		t.Fatal(err)
	}
	return kernel
}

// attentionText is the kernel.toml of the attention kernels.
func attentionText(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../../kernels/kernel.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// asMeasured makes up costs: the form that the selection chooses for a shape takes 1, others of the
// same head dim 1.1.
func asMeasured(t *testing.T, kernel *spec.Kernel, selection string, holdout int, shapes ...string) Measured {
	t.Helper()
	s := kernel.Selection(selection)
	m := Measured{Selection: s, Forms: s.Variants(), Holdout: Holdout(len(shapes), holdout)}
	for _, text := range shapes {
		shape, err := kernel.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		m.Shapes = append(m.Shapes, shape)
	}
	for _, form := range m.Forms {
		var row []float64
		for _, shape := range m.Shapes {
			chosen, err := s.Choose(shape)
			if err != nil {
				t.Fatal(err)
			}
			cost := 1.1
			if form.Fits(shape) != nil {
				cost = math.NaN()
			} else if chosen.Variant.String() == form.String() {
				cost = 1
			}
			row = append(row, cost)
		}
		m.Costs = append(m.Costs, row)
	}
	return m
}

// pasted is the text of a kernel with the choices of a selection replaced.
func pasted(t *testing.T, text, selection, choices string) string {
	t.Helper()
	at := strings.Index(text, "name = \""+selection+"\"\n")
	first := at + strings.Index(text[at:], "[[selection.choice]]")
	end := regexp.MustCompile(`(?m)^(\[\[selection\]\]|\[\[shapes\]\]|\[work\]|# ----)`).FindStringIndex(text[first:])
	if at < 0 || end == nil {
		t.Fatalf("the kernel has no choices of %s", selection)
	}
	return text[:first] + choices + "\n" + text[first+end[0]:]
}

var attentionShapes = []string{
	"1x1x32x64", "1x8x128x64", "1x8x512x64", "2x8x512x64", "1x8x2048x64", "2x8x2048x64", "4x16x4096x64", "4x16x4096x64:causal",
	"1x8x512x128", "4x16x4096x128", "4x16x4096x128:causal", "8x16x512x128", "4x16x8192x64", "1x4x128x128", "8x16x1024x64:causal", "1x4x256x128",
}

// The proposed table is pasted into kernel.toml. Read again, it chooses what the proposal says, on
// every shape, and the head dim without a tuned shape keeps its lines.
func TestProposalReadByKernel(t *testing.T) {
	t.Parallel()
	text := attentionText(t)
	m := asMeasured(t, mustKernel(t, text), "stage7", 4, attentionShapes...)
	p, err := Propose(m)
	if err != nil {
		t.Fatal(err)
	}
	table := mustKernel(t, pasted(t, text, "stage7", p.TOML())).Selection("stage7")
	for i, row := range p.Shapes {
		c, err := table.Choose(m.Shapes[i])
		if err != nil || c.Variant.String() != row.Proposed.Variant {
			t.Errorf("%s: the table chooses %s, %v; want %s", row.Shape, c.Variant, err, row.Proposed.Variant)
		}
		if !row.Holdout && (row.Loss == nil || *row.Loss > Tolerance) {
			t.Errorf("%s was tuned, and gets %s with a loss of %v", row.Shape, row.Proposed.Variant, row.Loss)
		}
	}
	for _, name := range []string{"1x4x512x256", "4x16x4096x256"} {
		shape, _ := m.Selection.Variants()[0].Stage().Kernel().ParseShape(name)
		before, _ := m.Selection.Choose(shape)
		after, err := table.Choose(shape)
		if err != nil || after.Variant.String() != before.Variant.String() {
			t.Errorf("%s was not tuned, but changes from %s to %s, %v", name, before.Variant, after.Variant, err)
		}
	}
	if !p.Fewest || p.Forms > p.PresentForms || p.Speedup == nil || math.Abs(*p.Speedup-1) > 0.1 {
		t.Errorf("got %d forms for %d, fewest %v, speedup %v", p.Forms, p.PresentForms, p.Fewest, p.Speedup)
	}
	// Nothing here selects the forms for 2048 and more keys of few queries, among others.
	if !slices.Contains(p.Dropped, "stage7b+HEAD_DIM=128+TILE_M=64+KEY_GROUPS=2+KV_STAGES=2+USE_OVERLAP=0+EXP2_LINEAR_EIGHTHS=4+EXP2_SEGMENTS=2") {
		t.Errorf("dropped are %q", p.Dropped)
	}
}

const copyKernel = `
name = "copy"
[shapes]
small = { n = 64 }
large = { n = 8192 }
[[arg]]
name = "y"
type = "f32"
shape = ["n"]
out = true
[launch]
grid = ["n"]
block = ["THREADS"]
[reference]
python = "reference.py"
[[knob]]
name = "THREADS"
values = [64, 128, 256]
default = 64
[[selection]]
name = "best"
hypothesis = "few elements need few threads"
[[selection.choice]]
when = "n <= 100"
variant = "copy"
why = "few elements"
[[selection.choice]]
variant = "copy+THREADS=256"
why = "many elements"
[work]
bytes = "4 * n"
`

// declaredMeasured is a table of costs of the copy kernel: on each shape of each form, 64, 128 and 256
// threads.
func declaredMeasured(t *testing.T, shapes []string, holdout []bool, costs [][]float64) Measured {
	t.Helper()
	kernel := mustKernel(t, copyKernel)
	m := Measured{Selection: kernel.Selection("best"), Holdout: holdout, Costs: costs}
	for _, name := range []string{"copy", "copy+THREADS=128", "copy+THREADS=256"} {
		v, err := kernel.Variant(name)
		if err != nil {
			t.Fatal(err)
		}
		m.Forms = append(m.Forms, v)
	}
	for _, text := range shapes {
		shape, err := kernel.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		m.Shapes = append(m.Shapes, shape)
	}
	return m
}

func TestProposalOfDeclaredKernel(t *testing.T) {
	t.Parallel()
	shapes := []string{"n=64", "n=128", "n=4096", "n=8192"}
	m := declaredMeasured(t, shapes, make([]bool, 4), [][]float64{{10, 13, 50, 99}, {10.1, 12, 40, 79}, {14, 15, 30, 60}})
	p, err := Propose(m)
	if err != nil {
		t.Fatal(err)
	}
	want := `[[selection.choice]]
when = "n <= 512"
variant = "copy+THREADS=128"
why = "at most 1.0 % over the best form measured on n=64, n=128"

[[selection.choice]]
variant = "copy+THREADS=256"
why = "the best form measured on n=4096, n=8192"
`
	if p.TOML() != want {
		t.Errorf("got\n%s\nwant\n%s", p.TOML(), want)
	}
	mustKernel(t, pasted(t, copyKernel, "best", p.TOML()))
	// 64 elements are 1 % slower than with 64 threads, 128 elements are 15/12 as fast.
	if want := math.Pow(10/10.1*15/12, 0.25); math.Abs(*p.Speedup-want) > 1e-9 || p.Forms != 2 || p.PresentForms != 2 {
		t.Errorf("got a speedup of %v with %d forms for %d; want %v with 2 for 2", *p.Speedup, p.Forms, p.PresentForms, want)
	}
	if len(p.Dropped) > 0 {
		t.Errorf("dropped are %q, want none", p.Dropped)
	}
	if worst := p.WorstChange(); worst.Shape != "n=64" {
		t.Errorf("the worst change is on %s, want n=64", worst.Shape)
	}
	if worst := p.WorstLoss(false); worst.Shape != "n=64" || p.WorstLoss(true) != nil || !p.Holds() {
		t.Errorf("the worst loss is on %s, want n=64; nothing is held out", worst.Shape)
	}
}

// A held-out shape on which the table is wrong shows.
func TestProposalWithHoldoutLoss(t *testing.T) {
	t.Parallel()
	shapes, held := []string{"n=64", "n=4096", "n=256"}, []bool{false, false, true}
	p, err := Propose(declaredMeasured(t, shapes, held, [][]float64{{10, 40, 30}, {14, 39, 20}, {15, 30, 21}}))
	if err != nil {
		t.Fatal(err)
	}
	worst := p.WorstLoss(true)
	if p.Holds() || worst == nil || worst.Shape != "n=256" || math.Abs(*worst.Loss-0.5) > 1e-9 || worst.Best.Variant != "copy+THREADS=128" {
		t.Errorf("got %+v, holds %v; want a loss of 50 %% on n=256", worst, p.Holds())
	}
	none := math.Inf(1)
	p, err = Propose(declaredMeasured(t, shapes, held, [][]float64{{10, 40, none}, {14, 39, 20}, {15, 30, 21}}))
	if err != nil {
		t.Fatal(err)
	}
	if worst := p.WorstLoss(true); worst.Loss != nil || p.Holds() || p.Speedup != nil {
		t.Errorf("got %+v; a form that cannot take the shape is a loss without a figure", worst)
	}
}

func TestProposalErrors(t *testing.T) {
	t.Parallel()
	none := math.NaN()
	for _, test := range []struct {
		shapes []string
		held   []bool
		costs  [][]float64
		want   string
	}{
		{[]string{"n=64"}, []bool{true}, [][]float64{{1}, {1}, {1}}, "best: every shape is held out"},
		{[]string{"n=64", "n=128"}, []bool{false, false}, [][]float64{{1, none}, {1, none}, {1, none}}, "best: no form has a cost on n=128"},
		{[]string{"n=64"}, []bool{false}, [][]float64{{1}, {-1}, {1}}, "best: form 1 takes -1"},
		{
			[]string{"n=64", "n=64"},
			[]bool{false, false},
			[][]float64{{1, 2}, {2, 1}, {2, 2}},
			"no condition over n separates them",
		},
	} {
		if _, err := Propose(declaredMeasured(t, test.shapes, test.held, test.costs)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.shapes, err, test.want)
		}
	}
}

// An approximation is no form of a selection that claims exact exponentials.
func TestProposalKeepsClaim(t *testing.T) {
	t.Parallel()
	kernel := mustKernel(t, attentionText(t))
	m := asMeasured(t, kernel, "stage7", 0, "1x8x512x64")
	fast, err := kernel.Variant("stage7b+EXP2_LINEAR_EIGHTHS=8")
	if err != nil {
		t.Fatal(err)
	}
	m.Forms, m.Costs = append(m.Forms, fast), append(m.Costs, []float64{0.5})
	if _, err := Propose(m); err == nil || !strings.Contains(err.Error(), "exact exponentials") {
		t.Errorf("got %v, want the claim", err)
	}
}

// A selection whose conditions fail on a shape cannot be compared.
func TestProposalWhereTermsFail(t *testing.T) {
	t.Parallel()
	kernel := mustKernel(t, strings.Replace(copyKernel, "n <= 100", "100 // (n - 77) > 0", 1))
	shape, err := kernel.ParseShape("n=77")
	if err != nil {
		t.Fatal(err)
	}
	m := Measured{
		Selection: kernel.Selection("best"), Forms: kernel.Selection("best").Variants(),
		Shapes: []spec.Shape{shape}, Holdout: []bool{false}, Costs: [][]float64{{1}, {2}},
	}
	if _, err := Propose(m); err == nil || !strings.Contains(err.Error(), "n=77") {
		t.Errorf("got %v, want the shape", err)
	}
}

func TestConditionsOfSizes(t *testing.T) {
	t.Parallel()
	axes := []string{"head_dim", "group"}
	for _, test := range []struct {
		of         sizes
		when, want string
	}{
		{nil, "keys <= 8", "keys <= 8"},
		{sizes{64}, "", "head_dim == 64"},
		{sizes{64}, "keys <= 8", "head_dim == 64 and keys <= 8"},
		{sizes{64}, "head_dim == 64", "head_dim == 64"},
		{sizes{64}, "head_dim == 64 and keys <= 8", "head_dim == 64 and keys <= 8"},
		{sizes{64}, "head_dim == 64 and keys <= 8 or causal", "head_dim == 64 and (head_dim == 64 and keys <= 8 or causal)"},
		{sizes{64}, "causal or keys <= 8", "head_dim == 64 and (causal or keys <= 8)"},
		{sizes{64, 8}, "keys <= 8", "head_dim == 64 and group == 8 and keys <= 8"},
	} {
		if got := test.of.condition(axes[:len(test.of)], test.when); got != test.want {
			t.Errorf("%v, %q: got %q, want %q", test.of, test.when, got, test.want)
		}
	}
}

func TestHoldout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		shapes, every int
		want          []bool
	}{
		{3, 4, []bool{false, false, false}},
		{5, 4, []bool{false, false, false, true, false}},
		{4, 2, []bool{false, true, false, true}},
		{2, 0, []bool{false, false}},
		{2, 1, []bool{false, false}},
	} {
		if got := Holdout(test.shapes, test.every); !slices.Equal(got, test.want) {
			t.Errorf("%d shapes, every %d: got %v, want %v", test.shapes, test.every, got, test.want)
		}
	}
}
