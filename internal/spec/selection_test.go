package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/tensor"
)

// toySelection is appended to the toy kernel and begins at line 99.
const toySelection = `
[[selection]]
name = "best"
parent = "stage0"
speedup = 1.5
hypothesis = "no one tile is right for all"

[[selection.choice]]
when = "heads * queries <= 64 and keys <= 1024"
variant = "stage1+TILE_N=16"
why = "few rows"

[[selection.choice]]
when = "causal and queries != keys"
variant = "stage1+TILE_N=16"
why = "a mask that is off the diagonal"

[[selection.choice]]
variant = "stage2"
why = "the fastest where there is work enough"
`

func loadSelection(t *testing.T) (*Kernel, *Selection) {
	t.Helper()
	k, err := loadText(toyText(t) + toySelection)
	if err != nil {
		t.Fatal(err)
	}
	s := k.Selection("best")
	if s == nil || k.Selection("stage1") != nil {
		t.Fatalf("the selections are %+v", k.Selections)
	}
	return k, s
}

func TestLoadSelection(t *testing.T) {
	_, s := loadSelection(t)
	want := &Selection{
		Name: "best", Hypothesis: "no one tile is right for all", Speedup: 1.5, Archs: []string{"sm_80", "sm_89"},
		Choices: []Choice{
			{When: "heads * queries <= 64 and keys <= 1024", Why: "few rows"},
			{When: "causal and queries != keys", Why: "a mask that is off the diagonal"},
			{Why: "the fastest where there is work enough"},
		},
	}
	if diff := cmp.Diff(want, s, cmpopts.IgnoreUnexported(Selection{}, Choice{}), cmpopts.IgnoreTypes(Variant{})); diff != "" {
		t.Error(diff)
	}
	if parent, ok := s.Parent(); !ok || parent.String() != "stage0" {
		t.Errorf("the parent is %v, %v", parent, ok)
	}
	if got := fmt.Sprint(s.Variants()); got != "[stage1+TILE_N=16 stage2]" {
		t.Errorf("its variants are %s", got)
	}
}

func TestChoose(t *testing.T) {
	_, s := loadSelection(t)
	check := func(text, want, why string) {
		t.Helper()
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Choose(shape)
		if err != nil || c.Variant.String() != want || !strings.Contains(c.Why, why) {
			t.Errorf("%s selects %s, %q, %v; want %s, %q", text, c.Variant, c.Why, err, want, why)
		}
	}
	check("1x1x64x64", "stage1+TILE_N=16", "few rows")
	check("1x1x65x64", "stage2", "work enough")
	check("2x2x16x64", "stage1+TILE_N=16", "few rows") // heads over all batches
	check("2x3x16x64", "stage2", "work enough")
	check("1x1x64x64:kv=1025", "stage2", "work enough")
	check("1x1x64x64:kv=1025:causal", "stage1+TILE_N=16", "a mask") // the first that holds
	check("1x1x64x64:kv=1024:causal", "stage1+TILE_N=16", "few rows")
	check("4x8x512x64:causal", "stage2", "work enough")
}

func TestChooseByKVHeads(t *testing.T) {
	k, err := loadText(toyText(t) + strings.Replace(toySelection, "causal and queries != keys", "heads >= 4 * kv_heads", 1))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"2x8x512x64:kvheads=2": "stage1+TILE_N=16", "2x8x512x64:kvheads=4": "stage2", "2x8x512x64": "stage2"} {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := k.Selection("best").Choose(shape); err != nil || c.Variant.String() != want {
			t.Errorf("%s selects %s, %v; want %s", text, c.Variant, err, want)
		}
	}
}

func TestChooseFails(t *testing.T) {
	k, err := loadText(toyText(t) + strings.Replace(toySelection, "causal and queries != keys", "batch // (keys - 77) > 5", 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Selection("best").Choose(tensor.Shape{Batch: 1, Heads: 1, SeqQ: 100, SeqK: 77, HeadDim: 64})
	if want := `best: "batch // (keys - 77) > 5" cannot be evaluated for 1x1x100x64:kv=77: floored division by zero`; fmt.Sprint(err) != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// Where a variant is needed, the name of a selection is an error that lists its variants.
func TestSelectionIsNotAVariant(t *testing.T) {
	k, _ := loadSelection(t)
	for _, text := range []string{"best", "best+TILE_N=16"} {
		_, err := k.Variant(text)
		want := "best is a selection: its variant depends on the shape; name one variant: stage1+TILE_N=16, stage2 " +
			"(`attune list selections` shows the shapes of each)"
		if fmt.Sprint(err) != want {
			t.Errorf("%v", err)
		}
	}
	if _, err := k.Variant("bets"); fmt.Sprint(err) != `unknown stage "bets"; did you mean "best"?` {
		t.Errorf("%v", err)
	}
}

func TestLoadSelectionErrors(t *testing.T) {
	swap := toySwap(t, toySelection)
	swap(`name = "best"`, `nam = "best"`,
		`kernel.toml:100: [[selection]] has no "name"`,
		`kernel.toml:101: unknown key "nam" in [[selection]]; did you mean "name"?`)
	swap(`name = "best"`, `name = "Best"`,
		`kernel.toml:101: "name" in [[selection]] is "Best"; want a lower-case letter, then lower-case letters, digits, _ or -`)
	swap(`name = "best"`, `name = "stage1"`, `kernel.toml:101: [[selection]] "stage1" has the name of a stage; choose another name`)
	swap(toySelection, toySelection+toySelection, `kernel.toml:121: [[selection]] "best" is declared twice`)
	swap("parent = \"stage0\"\nspeedup = 1.5", "speedup = 1.5", `kernel.toml:102: [[selection]] has a "speedup" but no "parent" to compare with`)
	swap("parent = \"stage0\"\nspeedup = 1.5\n", "", "<nil>")
	swap("speedup = 1.5\n", "", `kernel.toml:100: [[selection]] has no "speedup"`)
	swap(`parent = "stage0"`, `parent = "stag0"`, `kernel.toml:102: "parent" in [[selection]]: unknown stage "stag0"; did you mean "stage0"?`)
	swap(`hypothesis = "no one`, `hypotesis = "no one`, `kernel.toml:100: [[selection]] has no "hypothesis"`,
		`kernel.toml:104: unknown key "hypotesis" in [[selection]]; did you mean "hypothesis"?`)
	swap("[[selection.choice]]\nwhen = \"heads", "[[selection.choise]]\nwhen = \"heads",
		`kernel.toml:106: unknown key "choise" in [[selection]]; did you mean "choice"?`)
	swap(toySelection, "[[selection]]\nname = 'x'\nhypothesis = 'x'", `kernel.toml:99: [[selection]] has no "choice"`)
	swap(toySelection, "[[selection]]\nname = 'x'\nhypothesis = 'x'\nchoice = []", `kernel.toml:102: "choice" in [[selection]] is empty`)
	swap(toySelection, "[[selection]]\nname = 'x'\nhypothesis = 'x'\nchoice = 1",
		`kernel.toml:102: "choice" in [[selection]] is an integer; want an array of tables, each under [[selection.choice]]`)
}

func TestChoiceErrors(t *testing.T) {
	swap := toySwap(t, toySelection)
	swap("why = \"few rows\"\n", "", `kernel.toml:106: [[selection.choice]] has no "why"`)
	swap("variant = \"stage2\"\n", "", `kernel.toml:116: [[selection.choice]] has no "variant"`)
	swap(`variant = "stage2"`, `variant = "stage2"`+"\n"+`wen = "causal"`,
		`kernel.toml:118: unknown key "wen" in [[selection.choice]]; did you mean "when"?`)
	swap(`variant = "stage2"`, `variant = "stag2"`, `kernel.toml:117: "variant" in [[selection.choice]]: unknown stage "stag2"; did you mean "stage2"?`)
	swap(`variant = "stage2"`, `variant = "stage2+TILE_M=1"`,
		`kernel.toml:117: "variant" in [[selection.choice]]: unknown knob "TILE_M" in "stage2+TILE_M=1"; did you mean "TILE_N"?`)
	swap(`variant = "stage2"`, `variant = "stage2+USE_WMMA_QK=0"`,
		`kernel.toml:117: stage2+USE_WMMA_QK=0 breaks the rule "not USE_WMMA_PV or USE_WMMA_QK" with USE_WMMA_QK=0, USE_WMMA_PV=1: `+
			`P·V on tensor cores reads the score tile that the WMMA Q·K wrote`)
	swap("when = \"causal and queries != keys\"\n", "",
		`kernel.toml:115: this [[selection.choice]] is unreachable: the one before it has no "when" and applies to all shapes`)
	swap(`variant = "stage2"`, "when = \"causal\"\nvariant = \"stage2\"",
		`kernel.toml:117: the last [[selection.choice]] has a "when"; remove it, so that the choice applies to all remaining shapes`)
	swap("causal and queries != keys", "casual and querys != keys",
		`kernel.toml:112: "when" in [[selection.choice]] is "casual and querys != keys": unknown shape property "casual"; did you mean "causal"?`,
		`kernel.toml:112: "when" in [[selection.choice]] is "casual and querys != keys": unknown shape property "querys"; did you mean "queries"?`)
	swap("causal and queries != keys", "TILE_N == 16",
		`kernel.toml:112: "when" in [[selection.choice]] is "TILE_N == 16": unknown shape property "TILE_N"; `+
			`there are batch, heads, kv_heads, queries, keys, head_dim, causal`)
	swap("causal and queries != keys", "True", `kernel.toml:112: "when" in [[selection.choice]] is "True": it names no shape property`)
	swap("causal and queries != keys", "'x' == keys", `kernel.toml:112: "when" in [[selection.choice]] is "'x' == keys": `+
		`column 1: a rule may contain only shape properties, numbers, operators, min, max, abs, and lists after "in"`)
	swap("causal and queries != keys", "", `kernel.toml:112: "when" in [[selection.choice]] is empty`)

	// Conditions that fail, variants without a common architecture.
	swap("causal and queries != keys", "1 // (keys - 512)",
		`kernel.toml:112: best: "1 // (keys - 512)" cannot be evaluated for 1x8x512x64: floored division by zero`)
	swap(`archs = ["sm_80", "sm_89", "sm_90a"]

[[stage]]
name = "stage2"`, `archs = ["sm_90a"]

[[stage]]
name = "stage2"`,
		`kernel.toml:100: no architecture runs all variants of [[selection]] "best": stage1+TILE_N=16 is for sm_90a; stage2 is for sm_80, sm_89`)
}

// A choice that applies only to shapes of another head dim is an error.
func TestSelectionHeadDims(t *testing.T) {
	text := strings.ReplaceAll(strings.ReplaceAll(toyText(t), "TILE_N", "HEAD_DIM"), "HEAD_DIM = 32", "HEAD_DIM = 64")
	text = strings.Replace(text, "name = \"HEAD_DIM\"\n", "name = \"HEAD_DIM\"\naxis = \"head_dim\"\n", 1) +
		strings.ReplaceAll(toySelection, "+TILE_N=16", "+HEAD_DIM=32")
	_, err := loadText(text)
	want := `kernel.toml:109: stage1+HEAD_DIM=32 is built for head dim 32, but all shapes of the file that select it have another, such as 1x1x32x64`
	if fmt.Sprint(err) != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if _, err := loadText(strings.ReplaceAll(text, `when = "`, `when = "head_dim == 32 and `)); err != nil {
		t.Error(err)
	}
}

func TestTermsOfSelection(t *testing.T) {
	k, err := loadText(toyText(t) + strings.Replace(toySelection, "[[selection.choice]]",
		"[[selection.predicate]]\nname = \"rows\"\nrule = \"heads * queries\"\nabout = \"query rows\"\n\n[[selection.choice]]", 1))
	if err != nil {
		t.Fatal(err)
	}
	shape := tensor.Shape{Batch: 2, Heads: 3, SeqQ: 5, SeqK: 7, HeadDim: 64}
	names, values, axes, err := k.Selection("best").Terms(shape)
	if err != nil || len(names) != len(values) || axes != len(names)-1 || names[axes] != "rows" || values[axes] != 30 {
		t.Errorf("got %v, %v, %d axes, %v; want the axes, then rows = 30", names, values, axes, err)
	}
}

func TestSelectionWithChoices(t *testing.T) {
	k, s := loadSelection(t)
	short, long := tensor.Shape{Batch: 1, Heads: 1, SeqQ: 8, SeqK: 8, HeadDim: 64}, tensor.Shape{Batch: 1, Heads: 1, SeqQ: 99, SeqK: 99, HeadDim: 64}
	stage1, stage2 := variantOf(t, k, "stage1"), variantOf(t, k, "stage2")
	other, err := s.WithChoices([]Choice{{When: "keys <= 8", Variant: stage2}, {Variant: stage1}})
	if err != nil {
		t.Fatal(err)
	}
	for shape, want := range map[tensor.Shape]string{short: "stage2", long: "stage1"} {
		if c, err := other.Choose(shape); err != nil || c.Variant.String() != want {
			t.Errorf("%s: got %s, %v; want %s", shape, c.Variant, err, want)
		}
	}
	if c, _ := s.Choose(short); c.Variant.String() != "stage1+TILE_N=16" {
		t.Errorf("the selection itself has changed: it chooses %s", c.Variant)
	}
	exact := *s
	exact.Exponentials = ExactExponentials
	for _, test := range []struct {
		of      *Selection
		choices []Choice
		want    string
	}{
		{s, nil, "needs a choice"},
		{s, []Choice{{When: "keys <= 8", Variant: stage1}}, "choice 1 of 1"},
		{s, []Choice{{Variant: stage1}, {Variant: stage2}}, "choice 1 of 2"},
		{s, []Choice{{When: "kees <= 8", Variant: stage1}, {Variant: stage2}}, `"kees <= 8"`},
		{&exact, []Choice{{Variant: stage1}}, "exact exponentials, but not in stage1"},
	} {
		if _, err := test.of.WithChoices(test.choices); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %v, want %q", test.choices, err, test.want)
		}
	}
}

func variantOf(t *testing.T, k *Kernel, name string) Variant {
	t.Helper()
	v, err := k.Variant(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
