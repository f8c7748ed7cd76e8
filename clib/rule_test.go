package clib

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"attune/internal/rule"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/kernels"
)

// randomShape has small and large extents, and values beside the powers of two at which conditions
// change.
func randomShape(r *rand.Rand) tensor.Shape {
	extent := func(bits int) int {
		n := 1 << r.IntN(bits+1)
		return max(1, n+[]int{-1, 0, 0, 1, r.IntN(n)}[r.IntN(5)])
	}
	for {
		s := tensor.Shape{Batch: extent(5), SeqQ: extent(16), SeqK: extent(16), HeadDim: []int{64, 128, 256}[r.IntN(3)], Causal: r.IntN(2) == 1}
		s.KVHeads, s.Heads = extent(5), 1
		if group := 1 + r.IntN(4); group == 1 {
			s.Heads, s.KVHeads = s.KVHeads, 0
		} else {
			s.Heads = group * s.KVHeads
		}
		if again, err := tensor.ParseShape(s.String()); err == nil && again == s {
			return s
		}
	}
}

// shapeMain reads shapes and prints the value of an expression for each.
const shapeMain = `
#include <inttypes.h>
#include <stdio.h>
int main(void) {
  attune_sdpa_shape s;
  while (scanf("%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, &s.batch, &s.heads,
               &s.kv_heads, &s.queries, &s.keys, &s.head_dim, &s.causal) == 7) {
    PRINT
  }
  return 0;
}
`

func shapeLine(s spec.Shape) string {
	_, values := s.Axes()
	return strings.Trim(fmt.Sprint(values), "[]") + "\n"
}

// The C code of a selection chooses what the lab chooses.
func TestChooserAgreesWithLab(t *testing.T) {
	t.Parallel()
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range kernel.Selections {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			code, err := chooser(s)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			var input strings.Builder
			var shapes []tensor.Shape
			for range 5000 {
				shape := randomShape(r)
				shapes = append(shapes, shape)
				input.WriteString(shapeLine(shape))
			}
			source := "#include \"attune_sdpa_forms.h\"\n" + code + strings.ReplaceAll(shapeMain, "PRINT", `printf("%d\n", attune_sdpa_choose(&s));`)
			lines := strings.Fields(runC(t, source, input.String(), strict...))
			if len(lines) != len(shapes) {
				t.Fatalf("%d of %d shapes have a choice", len(lines), len(shapes))
			}
			chosen := map[int]int{}
			for i, shape := range shapes {
				want, err := s.Choose(shape)
				if err != nil {
					t.Fatal(err)
				}
				got, err := strconv.Atoi(lines[i])
				if err != nil || s.Choices[got].When != want.When {
					t.Fatalf("%s: C chooses line %s of the table, the lab %q", shape, lines[i], want.When)
				}
				chosen[got]++
			}
			if len(chosen) < len(s.Choices)-1 {
				t.Errorf("the shapes reach %d of %d choices; they are too alike", len(chosen), len(s.Choices))
			}
		})
	}
}

// expressions draws rules.
type expressions struct{ *rand.Rand }

func (r expressions) draw(depth int) string {
	names, _ := tensor.Shape{}.Axes()
	if depth == 0 {
		switch r.IntN(6) {
		case 0:
			return strconv.Itoa(r.IntN(200))
		case 1:
			return []string{"0.5", "2.0", "1e3", "3.7", "True", "False"}[r.IntN(6)]
		}
		return names[r.IntN(len(names))]
	}
	x, y := r.draw(depth-1), r.draw(r.IntN(depth))
	switch r.IntN(12) {
	case 0:
		return fmt.Sprintf("(%s if %s else %s)", x, r.draw(depth-1), y)
	case 1:
		return fmt.Sprintf("%s(%s, %s)", []string{"min", "max"}[r.IntN(2)], x, y)
	case 2:
		return []string{"not ", "-", "+", "~", "abs"}[r.IntN(5)] + "(" + x + ")"
	case 3:
		return fmt.Sprintf("(%s %s (%s, %s))", x, []string{"in", "not in"}[r.IntN(2)], y, r.draw(0))
	case 4, 5:
		return fmt.Sprintf("(%s %s %s)", x, []string{"and", "or"}[r.IntN(2)], y)
	case 6, 7:
		return fmt.Sprintf("(%s %s %s)", x, []string{"==", "!=", "<", "<=", ">", ">="}[r.IntN(6)], y)
	case 8:
		return fmt.Sprintf("(%s %s %d)", x, []string{"//", "%", "/", ">>", "<<", "//-", "%-"}[r.IntN(7)], 1+r.IntN(9))
	}
	return fmt.Sprintf("(%s %s %s)", x, []string{"+", "-", "*", "&", "|", "^", "//", "%", "/"}[r.IntN(9)], y)
}

// evaluate is the value of a rule in Starlark, as the lab takes it: the truth, and the integer.
func evaluate(t *testing.T, rule string, shape tensor.Shape) string {
	t.Helper()
	names, values := shape.Axes()
	known := starlark.StringDict{}
	for i, name := range names {
		known[name] = starlark.MakeInt(values[i])
	}
	v, err := starlark.EvalOptions(new(syntax.FileOptions), new(starlark.Thread), "rule", rule, known)
	if err != nil {
		t.Fatalf("%s: translated, but Starlark fails for %s: %v", rule, shape, err)
	}
	truth, number := "0", "-"
	if v.Truth() {
		truth = "1"
	}
	switch v := v.(type) {
	case starlark.Bool:
		number = truth
	case starlark.Int:
		number = v.String()
	}
	return truth + " " + number
}

// Rules in C have the truth and the value that they have in Starlark, and no undefined behaviour.
func TestRulesAgreeWithStarlark(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	const rules, perRule = 250, 40
	r := rand.New(rand.NewPCG(3, 4))
	tr := newTranslator()
	names, _ := tensor.Shape{}.Axes()
	fixed := []string{"min(keys / 7, 0.3 * queries) > 1.5", "max(keys / 7, 0.3 * queries, 2.0) % 2.5 < 0.5", "(keys - queries) * 0.1 + 0.3 == 0.6"}
	var texts, functions, prints []string
	refused := 0
	for len(texts) < rules {
		text := expressions{r}.draw(1 + r.IntN(4))
		if len(texts) < len(fixed) {
			text = fixed[len(texts)]
		}
		compiled, wrong := rule.Parse(text, rule.Vocabulary{Names: names})
		if len(wrong) > 0 { // "1 <= not (x)" is no Starlark
			refused++
			continue
		}
		if _, err := newTranslator().Condition(compiled); err != nil {
			refused++
			continue
		}
		condition, err := tr.Condition(compiled)
		if err != nil {
			t.Fatal(err)
		}
		body := `printf("%d -\n", ` + condition + `);`
		if number, _, err := tr.Number(compiled); err == nil {
			body = fmt.Sprintf(`printf("%%d %%" PRId64 "\n", %s, (int64_t)%s);`, condition, number)
		}
		functions = append(functions, fmt.Sprintf("static void rule_%d(const attune_sdpa_shape *s) { (void)s; %s }\n", len(texts), body))
		prints = append(prints, fmt.Sprintf("rule_%d(&s);", len(texts)))
		texts = append(texts, text)
	}
	source := "#include \"attune_sdpa_forms.h\"\n#include <inttypes.h>\n#include <math.h>\n#include <stdio.h>\n"
	source += strings.Join(tr.Helpers(), "") + strings.Join(functions, "") + strings.ReplaceAll(shapeMain, "PRINT", strings.Join(prints, "\n    "))
	var shapes []tensor.Shape
	var input strings.Builder
	for range perRule {
		shapes = append(shapes, randomShape(r))
		input.WriteString(shapeLine(shapes[len(shapes)-1]))
	}
	lines := strings.Split(strings.TrimSpace(runC(t, source, input.String(), "-std=c11")), "\n") // random rules are odd: no warnings
	for i, shape := range shapes {
		for j, rule := range texts {
			want, got := evaluate(t, rule, shape), lines[i*rules+j]
			if strings.HasSuffix(got, " -") { // a condition only: as a number it may be a float
				want, got = want[:1], got[:1]
			}
			if got != want {
				t.Errorf("%s for %s: C has %s, Starlark %s", rule, shape, got, want)
			}
		}
	}
	t.Logf("%d rules were refused", refused)
	const helpers = 9
	if n := len(tr.Helpers()); n != helpers {
		t.Errorf("the rules call %d functions; want all %d", n, helpers)
	}
}

// load reads a kernel with a selection of its own.
func loadSelection(t *testing.T, choices string) *spec.Selection {
	t.Helper()
	text, err := kernels.SDPA().Open("kernel.toml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	var all strings.Builder
	buffer := make([]byte, 1<<16)
	for {
		n, err := text.Read(buffer)
		all.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	before, _, _ := strings.Cut(all.String(), "# ---- selections")
	_, shapes, _ := strings.Cut(all.String(), "# ---- shapes")
	kernel, err := spec.Load(fstest.MapFS{"kernel.toml": {Data: []byte(before + choices + "\n# ---- shapes" + shapes)}})
	if err != nil {
		t.Fatal(err)
	}
	return kernel.Selections[0]
}

// The errors of a selection name the rule. Predicates that no condition needs are left out.
func TestChooserErrors(t *testing.T) {
	t.Parallel()
	const head = "[[selection]]\nname = \"s\"\nhypothesis = \"h\"\n"
	const choice = "[[selection.choice]]\nwhen = %q\nvariant = \"stage0\"\nwhy = \"w\"\n[[selection.choice]]\nvariant = \"stage0\"\nwhy = \"w\"\n"
	const predicate = "[[selection.predicate]]\nname = %q\nrule = %q\nabout = \"a\"\n"
	s := loadSelection(t, head+fmt.Sprintf(predicate, "large", "heads * queries * keys")+fmt.Sprintf(choice, "heads > 1"))
	if _, err := chooser(s); err == nil || !strings.Contains(err.Error(), `the predicate large, "heads * queries * keys", cannot become C`) {
		t.Errorf("the error is %v", err)
	}
	s = loadSelection(t, head+fmt.Sprintf(choice, "heads * queries * keys > 7"))
	if _, err := chooser(s); err == nil || !strings.Contains(err.Error(), `the condition "heads * queries * keys > 7" cannot become C`) {
		t.Errorf("the error is %v", err)
	}
	s = loadSelection(t, head+fmt.Sprintf(predicate, "a", "heads")+fmt.Sprintf(predicate, "b", "a + 1")+fmt.Sprintf(predicate, "c", "a + 2")+
		fmt.Sprintf(choice, "b > 2"))
	code, err := chooser(s)
	if err != nil || !strings.Contains(code, "const int64_t p_b = (p_a + INT64_C(1));") || strings.Contains(code, "p_c") {
		t.Errorf("%v\n%s", err, code)
	}
	if got := comment("a /* b\n*/ c"); got != "a / * b * / c" {
		t.Errorf("the comment is %q", got)
	}
	if got := closure([]int{0}, [][]int{{1}, {0, 2}, nil}); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("the closure is %v", got)
	}
}
