package spec

import (
	"strings"
	"testing"
)

// withExact is the toy kernel whose stage1 and stage2 have exact exponentials by a rule.
func withExact(t *testing.T, rule string) string {
	t.Helper()
	head, tail, found := strings.Cut(toyText(t), "[[stage]]\nname = \"stage1\"")
	if !found {
		t.Fatal("the toy kernel has no stage1")
	}
	return head + "[[stage]]\nname = \"stage1\"" + strings.ReplaceAll(tail, "speedup = ", "exact_exponentials = '"+rule+"'\nspeedup = ")
}

func TestExponentials(t *testing.T) {
	k, err := loadText(withExact(t, "TILE_N  == 32\tor USE_CP_ASYNC == 0"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Exponentials{
		"stage0": "", "stage1+TILE_N=16": ApproximateExponentials, "stage1+TILE_N=16+USE_CP_ASYNC=0": ExactExponentials, "stage2": ExactExponentials,
	} {
		v, err := k.Variant(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Exponentials(); got != want {
			t.Errorf("%s has %q exponentials, want %q", text, got, want)
		}
	}
	if got := k.Stages[1].ExactExponentials; got != "TILE_N == 32 or USE_CP_ASYNC == 0" {
		t.Errorf("the rule is %q", got)
	}
	// A rule that cannot be evaluated claims nothing.
	if k, err = loadText(withExact(t, "4 // (TILE_N - 16) > 0")); err != nil {
		t.Fatal(err)
	}
	v, err := k.Variant("stage1+TILE_N=16")
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Exponentials(); got != ApproximateExponentials {
		t.Errorf("a division by zero gives %q exponentials", got)
	}
}

// A selection with exact exponentials has only variants with them.
func TestExponentialsOfSelection(t *testing.T) {
	load := func(rule, claim string) (*Kernel, string) {
		t.Helper()
		k, err := loadText(withExact(t, rule) + strings.Replace(toySelection, "parent = ", "exponentials = '"+claim+"'\nparent = ", 1))
		if err != nil {
			return nil, err.Error()
		}
		return k, ""
	}
	for _, claim := range []string{"exact", "approximate"} {
		if k, wrong := load("TILE_N in (16, 32)", claim); wrong != "" || k.Selection("best").Exponentials != Exponentials(claim) {
			t.Errorf("%s: %s", claim, wrong)
		}
	}
	if _, wrong := load("TILE_N == 16", "approximate"); wrong != "" {
		t.Errorf("an approximate selection: %s", wrong)
	}
	const notExact = `[[selection]] "best" has exact exponentials, but not in stage2; its stage has no "exact_exponentials" that holds for it`
	if _, wrong := load("TILE_N == 16", "exact"); strings.Count(wrong, notExact) != 1 || strings.Count(wrong, "\n") != 0 {
		t.Errorf("an exact selection with an approximate variant: %s", wrong)
	}
	const unknown = `"exponentials" in [[selection]] is "fast"; want "exact" or "approximate"`
	if _, wrong := load("TILE_N == 16", "fast"); !strings.HasSuffix(wrong, unknown) {
		t.Errorf("an unknown kind: %s", wrong)
	}
}
