package spec

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// twoSources returns the toy kernel with a second source. Its stage9 has the knob KV_STAGES of its
// own, and lacks the knobs of the first source except TILE_N.
func twoSources(t *testing.T, replace ...string) (*Kernel, error) {
	t.Helper()
	text := toyText(t)
	for _, name := range []string{"USE_CP_ASYNC", "USE_WMMA_QK", "USE_WMMA_PV", "USE_XOR_SWIZZLE"} {
		text = strings.Replace(text, "name = \""+name+"\"\n", "name = \""+name+"\"\nsource = \"ada/toy.cu\"\n", 1)
	}
	text = strings.Replace(text, "[[constraint]]", `[[knob]]
name = "KV_STAGES"
source = "hopper/toy.cu"
layer = "micro"
values = [1, 2, 3]
default = 1
about = "tiles of K and V in the pipeline"

[[constraint]]
source = "hopper/toy.cu"
rule = "TILE_N >= 32"
why = "a copy has at least 32 rows"

[[constraint]]
rule = "KV_STAGES * TILE_N <= 96"
why = "shared memory holds 96 rows"

[[constraint]]`, 1)
	text = strings.Replace(text, "[[stage]]", `[[stage]]
name = "stage9"
source = "hopper/toy.cu"
knobs = { TILE_N = 32, KV_STAGES = 2 }
hypothesis = "Hopper needs another algorithm"
error_share = 0.05
budget = { registers = 128, shared_bytes = 49152, spill_bytes = 0 }
archs = ["sm_90a"]

[[stage]]`, 1)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("there is no %q", replace[i])
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	return loadText(text)
}

func TestSources(t *testing.T) {
	k, err := twoSources(t)
	if err != nil {
		t.Fatal(err)
	}
	check := func(text, want string) {
		t.Helper()
		v, err := k.Variant(text)
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(v.Values())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	check("stage9", "[TILE_N=32 KV_STAGES=2]")
	check("stage9+KV_STAGES=3", "[TILE_N=32 KV_STAGES=3]")
	check("stage0+TILE_N=16", "[USE_CP_ASYNC=0 USE_WMMA_QK=0 USE_WMMA_PV=0 USE_XOR_SWIZZLE=0 TILE_N=16]")
	check("stage9+USE_WMMA_QK=1", `stage "stage9" has no knob USE_WMMA_QK; only stages of ada/toy.cu have it`)
	check("stage0+KV_STAGES=2", `stage "stage0" has no knob KV_STAGES; only stages of hopper/toy.cu have it`)
	check("stage9+TILE_N=64", `stage9+TILE_N=64 breaks the rule "KV_STAGES * TILE_N <= 96" with TILE_N=64, KV_STAGES=2: shared memory holds 96 rows`)
	check("stage9+TILE_N=16", `stage9+TILE_N=16 breaks the rule "TILE_N >= 32" with TILE_N=16: a copy has at least 32 rows`)

	ninth, err := k.Variant("stage9")
	if err != nil {
		t.Fatal(err)
	}
	if _, has := ninth.Value("USE_WMMA_QK"); has {
		t.Error("stage9 has a knob of another source")
	}
	if stages, has := ninth.Value("KV_STAGES"); stages != 2 || !has {
		t.Errorf("KV_STAGES of stage9 is %d, %v", stages, has)
	}
	zeroth, err := k.Variant("stage0")
	if err != nil {
		t.Fatal(err)
	}
	if got := ninth.Diff(zeroth); got != "hopper/toy.cu+TILE_N=32+KV_STAGES=2" {
		t.Errorf("the change is %q", got)
	}
}

// Each source has its own cover: every value of its own knobs and of no others.
func TestCoverOfTwoSources(t *testing.T) {
	k, err := twoSources(t)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, v := range k.Cover() {
		if wrong := k.check(v); len(wrong) > 0 {
			t.Error(wrong)
		}
		for _, s := range v.Values() {
			seen[v.Stage().Source+" "+s.String()] = true
		}
	}
	for _, want := range []string{"hopper/toy.cu KV_STAGES=3", "hopper/toy.cu TILE_N=64", "ada/toy.cu USE_XOR_SWIZZLE=1", "ada/toy.cu TILE_N=16"} {
		if !seen[want] {
			t.Errorf("no variant has %s", want)
		}
	}
	for _, never := range []string{"hopper/toy.cu TILE_N=16", "hopper/toy.cu USE_WMMA_QK=0", "ada/toy.cu KV_STAGES=1"} {
		if seen[never] {
			t.Errorf("a variant has %s", never)
		}
	}
	if sources := len(slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, v := range k.Cover() {
			if !yield(v.Stage().Source) {
				return
			}
		}
	}))); sources != 2 {
		t.Errorf("the cover has %d sources, want 2", sources)
	}
}

// A knob and a rule may belong to several sources.
func TestSourceLists(t *testing.T) {
	both := "source = [\"ada/toy.cu\", \"hopper/toy.cu\"]\n"
	k, err := twoSources(t,
		"name = \"USE_XOR_SWIZZLE\"\nsource = \"ada/toy.cu\"\n", "name = \"USE_XOR_SWIZZLE\"\n"+both,
		"[[constraint]]\nsource = \"hopper/toy.cu\"\n", "[[constraint]]\n"+both+"rule = \"TILE_N != 64 or not USE_XOR_SWIZZLE\"\n"+
			"why = \"no swizzle for 64 rows\"\n\n[[constraint]]\nsource = [\"hopper/toy.cu\"]\n",
		`rule = "KV_STAGES * TILE_N <= 96"`, `rule = "KV_STAGES * TILE_N <= 96 or USE_XOR_SWIZZLE"`)
	if err != nil {
		t.Fatal(err)
	}
	check := func(text, want string) {
		t.Helper()
		if _, err := k.Variant(text); fmt.Sprint(err) != want {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	canonical := map[string]string{"stage9": "stage9+USE_XOR_SWIZZLE=1+TILE_N=64", "stage0": "stage0+USE_XOR_SWIZZLE=1"}
	for _, stage := range []string{"stage9", "stage0"} {
		check(stage+"+USE_XOR_SWIZZLE=1+TILE_N=32", "<nil>")
		check(stage+"+USE_XOR_SWIZZLE=1+TILE_N=64", canonical[stage]+
			` breaks the rule "TILE_N != 64 or not USE_XOR_SWIZZLE" with USE_XOR_SWIZZLE=1, TILE_N=64: no swizzle for 64 rows`)
	}
	check("stage9+TILE_N=16", `stage9+TILE_N=16 breaks the rule "TILE_N >= 32" with TILE_N=16: a copy has at least 32 rows`)
	check("stage9+USE_WMMA_QK=1", `stage "stage9" has no knob USE_WMMA_QK; only stages of ada/toy.cu have it`)

	// A rule without a list binds the sources that have all its knobs.
	if got := k.Constraints[2]; got.Rule != "KV_STAGES * TILE_N <= 96 or USE_XOR_SWIZZLE" || !slices.Equal(got.Sources, []string{"hopper/toy.cu"}) {
		t.Errorf("%q binds %v", got.Rule, got.Sources)
	}
}

func TestWrongSources(t *testing.T) {
	check := func(old, text, want string) {
		t.Helper()
		_, err := twoSources(t, old, text)
		if got := fmt.Sprint(err); !strings.Contains(got, want) || strings.Count(got, "\n") > 0 {
			t.Errorf("with %q: %q, want %q", text, got, want)
		}
	}
	check("name = \"KV_STAGES\"\nsource = \"hopper/toy.cu\"", "name = \"KV_STAGES\"\nsource = 3", `"source" in [[knob]] is an integer; want a string or an array of strings`)
	check("source = \"hopper/toy.cu\"\nrule", "source = \"hoper/toy.cu\"\nrule", `no stage has the source "hoper/toy.cu" of [[constraint]]; did you mean "hopper/toy.cu"?`)
	check("name = \"KV_STAGES\"\nsource = \"hopper/toy.cu\"", "name = \"KV_STAGES\"\nsource = [\"hopper/toy.cu\", \"hoper/toy.cu\"]",
		`no stage has the source "hoper/toy.cu" of [[knob]]; did you mean "hopper/toy.cu"?`)
	check("name = \"KV_STAGES\"\nsource = \"hopper/toy.cu\"", "name = \"KV_STAGES\"\nsource = [\"hopper/toy.cu\", \"hopper/toy.cu\"]",
		`"source" in [[knob]] has hopper/toy.cu twice`)
	check("source = \"hopper/toy.cu\"\nrule = \"TILE_N >= 32\"", "source = []\nrule = \"TILE_N >= 32\"", `"source" in [[constraint]] is empty; want sources`)
	check("source = \"hopper/toy.cu\"\nrule = \"TILE_N >= 32\"", "source = \"\"\nrule = \"TILE_N >= 32\"", `"source" in [[constraint]] is empty`)
	check("source = \"hopper/toy.cu\"\nrule = \"TILE_N >= 32\"", "source = [\"ada/toy.cu\", \"hopper/toy.cu\"]\nrule = \"TILE_N >= 32 or KV_STAGES\"",
		`rule "TILE_N >= 32 or KV_STAGES" applies to the stages of ada/toy.cu, which have no knob KV_STAGES`)
	check(`rule = "TILE_N >= 32"`, `rule = "TILE_N >= 32 or USE_WMMA_QK"`,
		`rule "TILE_N >= 32 or USE_WMMA_QK" applies to the stages of hopper/toy.cu, which have no knob USE_WMMA_QK`)
	check(`rule = "KV_STAGES * TILE_N <= 96"`, `rule = "KV_STAGES * TILE_N <= 96 or USE_WMMA_QK"`,
		`rule "KV_STAGES * TILE_N <= 96 or USE_WMMA_QK" applies to the stages of ada/toy.cu, which have no knob KV_STAGES`)
	check("knobs = { TILE_N = 32, KV_STAGES = 2 }", "knobs = { TILE_N = 32, KV_STAGES = 2, USE_WMMA_QK = 1 }", `stage "stage9" has no knob USE_WMMA_QK; only stages of ada/toy.cu have it`)
}
