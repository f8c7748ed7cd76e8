package rule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.starlark.net/lib/math"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// expressions draws rules over a, b and c.
type expressions struct{ *rand.Rand }

func (r expressions) draw(depth int) string {
	if depth == 0 {
		switch r.IntN(6) {
		case 0:
			return strconv.Itoa(r.IntN(200))
		case 1:
			return []string{"0.5", "2.0", "1e300", "True", "False", "9223372036854775807", "18446744073709551616", "inf", "nan"}[r.IntN(9)]
		}
		return string("abc"[r.IntN(3)])
	}
	x, y := r.draw(depth-1), r.draw(r.IntN(depth))
	switch r.IntN(12) {
	case 0:
		return fmt.Sprintf("(%s if %s else %s)", x, r.draw(depth-1), y)
	case 1:
		return fmt.Sprintf("%s(%s, %s)", []string{"min", "max"}[r.IntN(2)], x, y)
	case 2:
		return "(" + []string{"not ", "-", "+", "~", "abs", "int", "float", "ceil", "floor", "sqrt"}[r.IntN(10)] + "(" + x + "))"
	case 3:
		return fmt.Sprintf("(%s %s (%s, %s))", x, []string{"in", "not in"}[r.IntN(2)], y, r.draw(0))
	case 4, 5:
		return fmt.Sprintf("(%s %s %s)", x, []string{"and", "or"}[r.IntN(2)], y)
	case 6, 7:
		return fmt.Sprintf("(%s %s %s)", x, []string{"==", "!=", "<", "<=", ">", ">="}[r.IntN(6)], y)
	case 8:
		return fmt.Sprintf("(%s %s %d)", x, []string{"//", "%", "/", ">>", "<<", "//-", "%-"}[r.IntN(7)], 1+r.IntN(99))
	}
	return fmt.Sprintf("(%s %s %s)", x, []string{"+", "-", "*", "&", "|", "^", "//", "%", "/", "<<", ">>"}[r.IntN(11)], y)
}

// starlarkValue evaluates a rule by Starlark's interpreter. It returns the type and the value, or that
// there is none.
func starlarkValue(text string, a, b, c int64) string {
	known := starlark.StringDict{"a": starlark.MakeInt64(a), "b": starlark.MakeInt64(b), "c": starlark.MakeInt64(c)}
	for _, name := range []string{"ceil", "floor", "sqrt"} {
		known[name] = math.Module.Members[name]
	}
	for name, text := range map[string]string{"inf": `float("inf")`, "nan": `float("nan")`} {
		known[name], _ = starlark.EvalOptions(new(syntax.FileOptions), new(starlark.Thread), "constant", text, nil)
	}
	v, err := starlark.EvalOptions(new(syntax.FileOptions), new(starlark.Thread), "rule", text, known)
	if err != nil {
		return "no value"
	}
	if x, ok := v.(starlark.Float); ok {
		return Real(float64(x)).describe()
	}
	return v.Type() + " " + v.String()
}

func (v Value) describe() string {
	if v.Err() != nil {
		return "no value"
	}
	return v.Type() + " " + v.String()
}

// Rules have the values that Starlark's interpreter gives them, at the edges of 64 bits too.
func TestRulesAgreeWithStarlark(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	r := rand.New(rand.NewPCG(5, 6))
	edges := []int64{0, 1, -1, 2, 7, -3, 64, 1 << 31, 1<<31 - 1, -1 << 31, 1 << 53, 1<<53 + 1, 1<<62 + 1, 1<<63 - 1, -1 << 63}
	seen := map[string]int{}
	for range 20000 {
		text := expressions{r}.draw(1 + r.IntN(4))
		compiled, wrong := Parse(text, Vocabulary{Names: []string{"a", "b", "c"}, Language: Numeric})
		if len(wrong) > 0 {
			t.Fatalf("%s: %v", text, wrong)
		}
		a, b, c := edges[r.IntN(len(edges))], edges[r.IntN(len(edges))], edges[r.IntN(len(edges))]
		got, want := compiled.Eval([]Value{Int(a), Int(b), Int(c)}).describe(), starlarkValue(text, a, b, c)
		if got != want {
			t.Fatalf("%s with a = %d, b = %d, c = %d is %s; Starlark has %s", text, a, b, c, got, want)
		}
		kind, _, _ := strings.Cut(got, " ")
		seen[kind]++
	}
	for _, kind := range []string{"int", "float", "bool", "no"} {
		if seen[kind] < 1000 {
			t.Errorf("%d results are of the type %s; the rules are too alike: %v", seen[kind], kind, seen)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"not a or b", "a in (1, 2, b) and c // b % 3 != -a", "min(a, 1 << b) if a else (b / 0.5 > 3)", "(1 << 511) * a", "pow(a, pow(9, b))"} {
		f.Add(text, int64(7), int64(100))
	}
	f.Fuzz(func(t *testing.T, text string, a, b int64) {
		for _, language := range []Language{Plain, Numeric, Imported} {
			r, wrong := Parse(text, Vocabulary{Names: []string{"a", "b", "c"}, Language: language})
			if (r == nil) != (len(wrong) > 0) {
				t.Fatalf("%q: %v, %v", text, r, wrong)
			}
			if r != nil && r.Holds([]Value{Int(a), Int(b), Real(0.5)}) && r.Eval([]Value{Int(a), Int(b), Real(0.5)}).Err() != nil {
				t.Fatalf("%q holds without a value", text)
			}
		}
	})
}

// Functions that only importers use.
func TestImported(t *testing.T) {
	for text, want := range map[string]string{
		"pow(2, 100)": "int 1267650600228229401496703205376", "pow(2, -1)": "float 0.5", "pow(-1, 7)": "int -1", "pow(-1, 8)": "int 1", "pow(0, 0)": "int 1",
		"pow(1, 1 << 70)": "int 1", "pow(-1, (1 << 70) + 1)": "int -1", "pow(9, pow(9, 9))": "no value", "pow(4, 0.5)": "float 2.0", "pow(-1, 0.5)": "no value", "round(2.5)": "int 2",
		"log2(8)": "float 3.0", "log(0)": "no value", "number(True) + 1": "int 2", "number('x')": "string x", "'a' < 'b'": "bool True", "'a' + 1": "no value",
		"abs('a')": "no value", "-'a'": "no value", "'a' == 1": "bool False", "min('b', 'a')": "string a", "1 < 'a'": "no value",
	} {
		if got := parseImported(t, text).Eval(nil).describe(); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// A rule can be split into the terms of its conjunction, and moved to another vocabulary.
func TestTermsAndRename(t *testing.T) {
	for text, want := range map[string]int{"a and b and c": 3, "(a and b) and c": 2, "a and b or c": 1, "(a and b)": 1, "a": 1} {
		if terms := parseImported(t, text, "a", "b", "c").Terms(); len(terms) != want || terms[0].String() != text {
			t.Errorf("%s has %d terms %v, want %d", text, len(terms), terms, want)
		}
	}
	r := parseImported(t, "a < b", "a", "b").Rename([]int{4, 1})
	if !slices.Equal(r.Uses(), []int{1, 4}) || !r.Holds([]Value{4: Int(1), 1: Int(2)}) {
		t.Errorf("%v uses %v", r, r.Uses())
	}
}

// A search ends after its checks, and knows that it is not complete.
func TestExhaustedSearch(t *testing.T) {
	var names []string
	var values [][]Value
	for i := range 8 {
		names = append(names, fmt.Sprint("k", i))
		values = append(values, []Value{Int(0), Int(1), Int(2)})
	}
	s := NewSolver(values, []*Rule{parseImported(t, "("+strings.Join(names, " + ")+") * 7 % 11 == 12", names...)}, nil)
	first := func(left Domains) (int, uint16) {
		at := slices.IndexFunc(left, func(values []uint16) bool { return len(values) > 1 })
		return at, left[at][0]
	}
	for checks, exhausted := range map[int]bool{100: true, 1 << 20: false} {
		search := s.Search(checks)
		left, ok := search.All()
		if ok {
			_, ok = search.Complete(left, first)
		}
		if ok || search.Exhausted() != exhausted {
			t.Errorf("%d checks: found %v, exhausted %v", checks, ok, search.Exhausted())
		}
	}
}

func BenchmarkEval(b *testing.B) {
	names := []string{"bx", "by", "tx", "ty", "shared"}
	values := []Value{Int(64), Int(4), Int(2), Int(3), Int(1)}
	for _, text := range []string{"bx * by <= 1024", "bx % 32 != 0 or shared", "shared == 0 or (bx * tx + 14) * (by * ty + 14) < 12 * 1024"} {
		r, wrong := Parse(text, Vocabulary{Names: names})
		if len(wrong) > 0 {
			b.Fatal(wrong)
		}
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !r.Holds(values) {
					b.Fatal("does not hold")
				}
			}
		})
	}
}
