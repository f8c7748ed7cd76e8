package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/tensor"
)

// toyPredicates is a selection with predicates. It is appended to the toy kernel and begins at line
// 99.
const toyPredicates = `
[[selection]]
name = "best"
hypothesis = "no one tile is right for all"

[[selection.predicate]]
name = "multiprocessors"
rule = "132"
about = "of an H200"

[[selection.predicate]]
name = "rounds"
rule = "(heads * ((queries + 15) // 16) + multiprocessors - 1) // multiprocessors"
about = "how often every multiprocessor takes a tile of 16 queries"

[[selection.predicate]]
name = "off_diagonal"
rule = "causal and queries != keys"
about = "a mask that leaves some queries without keys"

[[selection.choice]]
when = "rounds <= 1 or off_diagonal"
variant = "stage1+TILE_N=16"
why = "few rows"

[[selection.choice]]
when = "rounds == 1 + off_diagonal + 1"
variant = "stage1"
why = "two rounds"

[[selection.choice]]
variant = "stage2"
why = "the fastest where there is work enough"
`

func TestPredicates(t *testing.T) {
	k, err := loadText(toyText(t) + toyPredicates)
	if err != nil {
		t.Fatal(err)
	}
	s := k.Selection("best")
	want := []Predicate{
		{Name: "multiprocessors", Rule: "132", About: "of an H200"},
		{
			Name: "rounds", Rule: "(heads * ((queries + 15) // 16) + multiprocessors - 1) // multiprocessors",
			About: "how often every multiprocessor takes a tile of 16 queries",
		},
		{Name: "off_diagonal", Rule: "causal and queries != keys", About: "a mask that leaves some queries without keys"},
	}
	if diff := cmp.Diff(want, s.Predicates, cmpopts.IgnoreUnexported(Predicate{})); diff != "" {
		t.Error(diff)
	}
	check := func(text, want string) {
		t.Helper()
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Choose(shape)
		if err != nil || c.Variant.String() != want {
			t.Errorf("%s selects %s, %v; want %s", text, c.Variant, err, want)
		}
	}
	check("1x132x16x64", "stage1+TILE_N=16")
	check("1x132x17x64", "stage1")
	check("2x66x17x64", "stage1")
	check("1x132x33x64", "stage2")
	check("1x132x33x64:causal", "stage2")
	check("1x132x33x64:kv=32:causal", "stage1+TILE_N=16")
}

// A selection may use the predicates of one above it, and add some.
func TestPredicatesOf(t *testing.T) {
	const fast = `
[[selection]]
name = "fast"
hypothesis = "fewer digits take less time"
predicates_of = "best"

[[selection.predicate]]
name = "few"
rule = "rounds <= 1"
about = "one round"

[[selection.choice]]
when = "few or off_diagonal"
variant = "stage1"
why = "few rows"

[[selection.choice]]
variant = "stage2"
why = "the fastest where there is work enough"
`
	k, err := loadText(toyText(t) + toyPredicates + fast)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range k.Selection("fast").Predicates {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"multiprocessors", "rounds", "off_diagonal", "few"}, names); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{"1x132x16x64": "stage1", "1x132x17x64": "stage2"} {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := k.Selection("fast").Choose(shape); err != nil || c.Variant.String() != want {
			t.Errorf("%s: %v, %v; want %s", text, c.Variant, err, want)
		}
	}
	swap := toySwap(t, toyPredicates+fast)
	swap(`predicates_of = "best"`, `predicates_of = "worst"`, `kernel.toml:136: "predicates_of" in [[selection]] is "worst": there is no such selection above`,
		`kernel.toml:140: "rule" in [[selection.predicate]] is "rounds <= 1": unknown shape property or predicate "rounds"; there are `+
			`batch, heads, kv_heads, queries, keys, head_dim, causal`,
		`kernel.toml:144: "when" in [[selection.choice]] is "few or off_diagonal": unknown shape property or predicate "off_diagonal"; there are `+
			`batch, heads, kv_heads, queries, keys, head_dim, causal, few`)
}

func TestPredicateFails(t *testing.T) {
	k, err := loadText(toyText(t) + strings.Replace(toyPredicates, `"132"`, `"132 + 1 // (keys - 77)"`, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Selection("best").Choose(tensor.Shape{Batch: 1, Heads: 1, SeqQ: 100, SeqK: 77, HeadDim: 64})
	want := `best: predicate multiprocessors ("132 + 1 // (keys - 77)") cannot be evaluated for 1x1x100x64:kv=77: floored division by zero`
	if fmt.Sprint(err) != want {
		t.Errorf("%v; want %s", err, want)
	}
}

func TestPredicateRuleErrors(t *testing.T) {
	swap := toySwap(t, toyPredicates)
	const rule = `rule = "causal and queries != keys"`
	const at = `kernel.toml:116: "rule" in [[selection.predicate]] is `
	swap(rule, `rule = "casual"`, at+`"casual": unknown shape property or predicate "casual"; did you mean "causal"?`)
	swap(rule, `rule = "round > 1 and TILE_N"`,
		at+`"round > 1 and TILE_N": unknown shape property or predicate "round"; did you mean "rounds"?`,
		at+`"round > 1 and TILE_N": unknown shape property or predicate "TILE_N"; there are `+
			`batch, heads, kv_heads, queries, keys, head_dim, causal, multiprocessors, rounds`)
	swap(rule, `rule = "off_diagonal"`, at+`"off_diagonal": predicate "off_diagonal" is declared below; a rule sees only the predicates above it`)
	swap(`rule = "132"`, `rule = "rounds"`,
		`kernel.toml:106: "rule" in [[selection.predicate]] is "rounds": predicate "rounds" is declared below; a rule sees only the predicates above it`)
	swap(rule, `rule = "causal and"`, at+`"causal and": column 11: got end of file, want primary expression`)
	swap(rule, `rule = "'x'"`, at+`"'x'": column 1: a rule may contain only shape properties, predicates, numbers, operators, min, max, abs, and lists after "in"`)
	swap("rounds <= 1 or off", "round <= 1 or off",
		`kernel.toml:120: "when" in [[selection.choice]] is "round <= 1 or off_diagonal": unknown shape property or predicate "round"; did you mean "rounds"?`)
}

func TestPredicateNameErrors(t *testing.T) {
	swap := toySwap(t, toyPredicates)
	const name = `name = "off_diagonal"`
	unknown := func(at int, when string) string {
		return fmt.Sprintf("kernel.toml:%d: \"when\" in [[selection.choice]] is %q: unknown shape property or predicate \"off_diagonal\"; there are ", at, when)
	}
	words := "batch, heads, kv_heads, queries, keys, head_dim, causal, multiprocessors, rounds, "
	check := func(name2, want string) {
		t.Helper()
		swap(name, fmt.Sprintf("name = %q", name2), "kernel.toml:115: "+want,
			unknown(120, "rounds <= 1 or off_diagonal")+words+name2, unknown(125, "rounds == 1 + off_diagonal + 1")+words+name2)
	}
	check("rounds", `[[selection.predicate]] "rounds" is declared twice`)
	check("heads", `[[selection.predicate]] "heads" has the name of a shape property; choose another name`)
	check("max", `[[selection.predicate]] "max" has the name of a function; choose another name`)
	check("lambda", `[[selection.predicate]] "lambda" has the name of a Starlark keyword; choose another name`)
	check("class", `[[selection.predicate]] "class" has the name of a Starlark keyword; choose another name`)
	check("Many", `"name" in [[selection.predicate]] is "Many"; want a lower-case letter, then lower-case letters, digits or _`)
	check("a-b", `"name" in [[selection.predicate]] is "a-b"; want a lower-case letter, then lower-case letters, digits or _`)
}

func TestPredicateKeyErrors(t *testing.T) {
	swap := toySwap(t, toyPredicates)
	swap("about = \"of an H200\"\n", "", `kernel.toml:104: [[selection.predicate]] has no "about"`)
	swap("about = \"of an H200\"", "abut = \"of an H200\"", `kernel.toml:104: [[selection.predicate]] has no "about"`,
		`kernel.toml:107: unknown key "abut" in [[selection.predicate]]; did you mean "about"?`)
	swap("[[selection.predicate]]\nname = \"multi", "[[selection.predicat]]\nname = \"multi",
		`kernel.toml:104: unknown key "predicat" in [[selection]]; did you mean "predicate"?`,
		`kernel.toml:111: "rule" in [[selection.predicate]] is "(heads * ((queries + 15) // 16) + multiprocessors - 1) // multiprocessors": `+
			`unknown shape property or predicate "multiprocessors"; there are batch, heads, kv_heads, queries, keys, head_dim, causal`)
	swap(`rule = "132"`, `rule = 132`, `kernel.toml:106: "rule" in [[selection.predicate]] is an integer; want a string`)
}

// A predicate must give a boolean or an integer on every shape of the file.
func TestPredicateTypes(t *testing.T) {
	swap := toySwap(t, toyPredicates)
	const rule = `rule = "causal and queries != keys"`
	swap(rule, `rule = "queries / 2"`, `kernel.toml:116: best: predicate off_diagonal ("queries / 2") cannot be evaluated for 1x1x32x64: `+
		`the result is a float; want a boolean or an integer (// divides without a fraction)`)
	swap(rule, `rule = "heads + (queries > 2)"`, `kernel.toml:116: best: predicate off_diagonal ("heads + (queries > 2)") cannot be evaluated for 1x1x32x64: `+
		`unknown binary op: int + bool`)
	swap(rule, `rule = "1 // (keys - 512)"`,
		`kernel.toml:116: best: predicate off_diagonal ("1 // (keys - 512)") cannot be evaluated for 1x8x512x64: floored division by zero`)
	swap(rule, `rule = "heads << 70"`, `kernel.toml:116: best: predicate off_diagonal ("heads << 70") cannot be evaluated for 1x1x32x64: `+
		`the result 1180591620717411303424 does not fit 64 bits`)
	swap(rule, `rule = "heads << 500"`, `kernel.toml:116: best: predicate off_diagonal ("heads << 500") cannot be evaluated for 1x1x32x64: `+
		`the result 3273390607896141870013189696827599152216... (151 digits) does not fit 64 bits`)
}
