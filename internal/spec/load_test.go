package spec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/finding"
	"attune/internal/tensor"
)

func toyText(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", File))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func loadText(text string) (*Kernel, error) {
	return Load(fstest.MapFS{File: {Data: []byte(text)}})
}

func TestLoad(t *testing.T) {
	k := loadToy(t)
	shapes := func(texts ...string) (all []Shape) {
		for _, text := range texts {
			s, err := tensor.ParseShape(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		return all
	}
	budget := Budget{Registers: 128, SharedBytes: 49152}
	want := &Kernel{
		Name:  "toy",
		About: "a small attention kernel with enough knobs and stages to test the loader",
		Knobs: []Knob{
			{Name: "USE_CP_ASYNC", Layer: Macro, Values: []int{0, 1}, Default: 0, About: "K and V tiles are copied one tile ahead of the arithmetic"},
			{Name: "USE_WMMA_QK", Layer: Macro, Values: []int{0, 1}, Default: 0, About: "Q·K on tensor cores"},
			{Name: "USE_WMMA_PV", Layer: Macro, Values: []int{0, 1}, Default: 0, About: "P·V on tensor cores"},
			{Name: "USE_XOR_SWIZZLE", Layer: Micro, Values: []int{0, 1}, Default: 0, About: "shared memory is swizzled, to avoid bank conflicts between rows"},
			{Name: "TILE_N", Layer: Micro, Values: []int{16, 32, 64}, Default: 64, About: "keys in a tile"},
		},
		Constraints: []*Constraint{
			{Rule: "not USE_WMMA_PV or USE_WMMA_QK", Why: "P·V on tensor cores reads the score tile that the WMMA Q·K wrote"},
			{Rule: "TILE_N in (32, 64) or not USE_XOR_SWIZZLE", Why: "the swizzle permutes at least 32 rows"},
		},
		Stages: []*Stage{
			{
				Name: "stage0", Source: "ada/toy.cu", Hypothesis: "the scalar kernel is correct",
				ErrorShare: 0.05, Budget: budget, Archs: []string{"sm_80", "sm_89", "sm_90a"},
			},
			{
				Name: "stage1", Source: "ada/toy.cu", Hypothesis: "loads hide behind the arithmetic", Speedup: 1.10,
				ErrorShare: 0.05, Budget: budget, Archs: []string{"sm_80", "sm_89", "sm_90a"},
			},
			{
				Name: "stage2", Source: "ada/toy.cu", Hypothesis: "P·V takes longer than Q·K", Speedup: 1.15,
				ErrorShare: 0.25, Budget: Budget{Registers: 120, SharedBytes: 49152}, Archs: []string{"sm_80", "sm_89"},
			},
		},
		Groups: []Group{
			{"small", shapes("1x1x32x64", "1x8x128x64")},
			{"mission", shapes("1x8x512x64", "2x8x512x64")},
		},
		Run: Run{
			Shapes: []string{"small", "mission", "1x8x33x64:causal"}, Benchmark: []string{"mission"}, Seeds: []uint64{0, 1, 2},
			SimShapes: []string{"small", "mission", "1x8x33x64:causal"}, SimSeeds: []uint64{0, 1, 2},
			Quick:    []string{"1x1x32x64", "1x8x512x64", "1x8x33x64:causal"},
			SimQuick: []string{"1x1x32x64", "1x8x512x64", "1x8x33x64:causal"},
		},
		Tolerance: Tolerance{MaxErr: 0.06, MeanErr: 0.02, Atol: 0.06, Rtol: 0.06, BadFraction: 0.01},
		Problem:   Attention,
	}
	if diff := cmp.Diff(want, k, cmpopts.IgnoreUnexported(Stage{}, Constraint{})); diff != "" {
		t.Error(diff)
	}
}

// The quick shapes are those of the file on both devices, or derived for each.
func TestQuickShapes(t *testing.T) {
	check := func(more string, quick, simQuick []string) {
		t.Helper()
		text := strings.Replace(toyText(t), "seeds = [0, 1, 2]", "seeds = [0, 1, 2]\n"+more, 1)
		k, err := Load(fstest.MapFS{File: {Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([2][]string{quick, simQuick}, [2][]string{k.Run.Quick, k.Run.SimQuick}); diff != "" {
			t.Errorf("%s: %s", more, diff)
		}
	}
	derived := []string{"1x1x32x64", "1x8x512x64", "1x8x33x64:causal"}
	check("", derived, derived)
	check(`sim_shapes = ["small", "1x1x32x64", "1x1x5x64"]`, derived, []string{"1x1x32x64", "1x1x5x64"})
	check(`quick = ["small", "1x1x5x64"]`, []string{"small", "1x1x5x64"}, []string{"small", "1x1x5x64"})
}

// none is the text of no error.
const none = "<nil>"

// toySwap returns a function that replaces a part of the toy kernel, to which more is appended, and
// expects exactly these problems.
func toySwap(t *testing.T, more string) func(old, text string, want ...string) {
	toy := toyText(t) + more
	return func(old, text string, want ...string) {
		t.Helper()
		if strings.Count(toy, old) == 0 {
			t.Fatalf("the toy kernel has no %q", old)
		}
		_, err := loadText(strings.Replace(toy, old, text, 1))
		got := fmt.Sprint(err)
		if diff := cmp.Diff(strings.Join(want, "\n"), got); diff != "" {
			t.Errorf("with %q for %q:\n%s", text, old, diff)
		}
	}
}

func TestInvalidFile(t *testing.T) {
	swap := toySwap(t, "")
	swap(`layer = "macro"`, `layer = macro`, `kernel.toml:6: not TOML: expected value but found "macro" instead`)
	swap(`layer = "macro"`, "name = 'X'", `kernel.toml:6: not TOML: Key 'knob.name' has already been defined`)
}

func TestFileErrors(t *testing.T) {
	swap := toySwap(t, "")
	swap(`name = "toy"`, `nmae = "toy"`, `kernel.toml:1: the file has no "name"`,
		`kernel.toml:1: unknown key "nmae" in the file; did you mean "name"?`)
	swap(`name = "toy"`, `name = "My Kernel"`,
		`kernel.toml:1: "name" in the file is "My Kernel"; want a lower-case letter, then lower-case letters, digits, _ or -`)
	swap(`name = "toy"`, `name = " "`, `kernel.toml:1: "name" in the file is empty`)
	swap(`name = "toy"`, `name = 1`, `kernel.toml:1: "name" in the file is an integer; want a string`)
	swap("[tolerance]", "[tolerence]", `kernel.toml:1: the file has no "tolerance"`,
		`kernel.toml:93: unknown key "tolerence" in the file; did you mean "tolerance"?`)
	swap("about = \"a small", "zzz = 1\nabout = \"a small", `kernel.toml:2: unknown key "zzz" in the file; `+
		`there are problem, name, about, allow, knob, constraint, retired, shapes, stage, selection, run, tolerance, random`)
	swap("about = \"a small", "run = 1\nabout = \"a small", `kernel.toml:89: not TOML: Key 'run' has already been defined`)
	swap("[run]", "[[run]]", `kernel.toml:88: "run" in the file is an array; want a table`)
}

func TestKnobErrors(t *testing.T) {
	swap := toySwap(t, "")
	swap(`layer = "macro"`, `laier = "macro"`, `kernel.toml:4: [[knob]] has no "layer"`,
		`kernel.toml:6: unknown key "laier" in [[knob]]; did you mean "layer"?`)
	swap(`layer = "macro"`, `"Layer" = "macro"`, `kernel.toml:4: [[knob]] has no "layer"`,
		`kernel.toml:6: unknown key "Layer" in [[knob]]; did you mean "layer"?`)
	swap(`layer = "macro"`, "axis = \"heds\"\nlayer = \"macro\"", `kernel.toml:6: the shapes have no axis "heds", which [[knob]] names; did you mean "heads"?`)
	swap(`layer = "macro"`, `layer = "marco"`, `kernel.toml:6: unknown layer "marco" in [[knob]]; did you mean "macro"?`)
	swap(`layer = "macro"`, `layer = "algorithm"`, `kernel.toml:6: unknown layer "algorithm" in [[knob]]; there are macro, micro`)
	swap(`name = "USE_WMMA_QK"`, `name = "USE_CP_ASYNC"`,
		`kernel.toml:12: [[knob]] "USE_CP_ASYNC" is declared twice`,
		`kernel.toml:40: rule "not USE_WMMA_PV or USE_WMMA_QK": unknown knob "USE_WMMA_QK"; did you mean "USE_WMMA_PV"?`,
		`kernel.toml:58: unknown knob "USE_WMMA_QK" in knobs of [[stage]]; did you mean "USE_WMMA_PV"?`,
		`kernel.toml:69: unknown knob "USE_WMMA_QK" in knobs of [[stage]]; did you mean "USE_WMMA_PV"?`)
	swap(`name = "TILE_N"`, `name = "tile-n"`,
		`kernel.toml:33: "name" in [[knob]] is "tile-n"; want an upper-case letter, then upper-case letters, digits or _`,
		`kernel.toml:44: rule "TILE_N in (32, 64) or not USE_XOR_SWIZZLE": unknown knob "TILE_N"; did you mean "tile-n"?`,
		`kernel.toml:69: unknown knob "TILE_N" in knobs of [[stage]]; did you mean "tile-n"?`)
	swap("values = [0, 1]", "values = []", `kernel.toml:7: "values" in [[knob]] is empty; want integers`)
	swap("values = [0, 1]", "values = [\n0,\n1,\n0]", `kernel.toml:10: "values" in [[knob]] has 0 twice`)
	swap("values = [0, 1]", "values = 1", `kernel.toml:7: "values" in [[knob]] is an integer; want an array of integers`)
	swap("values = [0, 1]", "values = [\n0,\n1.0]", `kernel.toml:9: "values" in [[knob]]: an item is a float; want an integer`)
	swap("values = [0, 1]\n", "", `kernel.toml:4: [[knob]] has no "values"`)
	swap("default = 0", "default = 2", `kernel.toml:8: the default of USE_CP_ASYNC is 2; allowed are 0, 1`)
	swap("default = 0", "default = false", `kernel.toml:8: "default" in [[knob]] is a boolean; want an integer`)
	swap("default = 0\n", "", `kernel.toml:4: [[knob]] has no "default"`)

	swap(`name = "TILE_N"`, `name = "TILE\nN"`,
		`kernel.toml:33: "name" in [[knob]] is "TILE\nN"; want an upper-case letter, then upper-case letters, digits or _`,
		`kernel.toml:44: rule "TILE_N in (32, 64) or not USE_XOR_SWIZZLE": unknown knob "TILE_N"; did you mean "TILE\nN"?`,
		`kernel.toml:69: unknown knob "TILE_N" in knobs of [[stage]]; did you mean "TILE\nN"?`)
}

func TestLoadConstraintErrors(t *testing.T) {
	swap := toySwap(t, "")
	swap("not USE_WMMA_PV or USE_WMMA_QK", "not USE_WMMA_VP or USE_WMMA_QK or USE_FOO",
		`kernel.toml:40: rule "not USE_WMMA_VP or USE_WMMA_QK or USE_FOO": unknown knob "USE_WMMA_VP"; did you mean "USE_WMMA_PV"?`,
		`kernel.toml:40: rule "not USE_WMMA_VP or USE_WMMA_QK or USE_FOO": unknown knob "USE_FOO"; `+
			`there are USE_CP_ASYNC, USE_WMMA_QK, USE_WMMA_PV, USE_XOR_SWIZZLE, TILE_N`)
	swap("not USE_WMMA_PV or", "not USE_WMMA_PV !",
		`kernel.toml:40: rule "not USE_WMMA_PV ! USE_WMMA_QK": column 17: unexpected input character '!'`)
	swap("rule = ", "role = ", `kernel.toml:39: [[constraint]] has no "rule"`,
		`kernel.toml:40: unknown key "role" in [[constraint]]; did you mean "rule"?`)
	swap("[[constraint]]\n", "[[constraint]]\nwhen = 1\n",
		`kernel.toml:40: unknown key "when" in [[constraint]]; there are rule, why, source`)
}

func TestStageErrors(t *testing.T) {
	swap := toySwap(t, "")
	swap(`source = "ada/toy.cu"`, "sauce = 1", `kernel.toml:47: [[stage]] has no "source"`,
		`kernel.toml:49: unknown key "sauce" in [[stage]]; did you mean "source"?`)
	swap(`source = "ada/toy.cu"`, `source = "../toy.cu"`,
		`kernel.toml:49: "source" in [[stage]] is "../toy.cu"; want a path below the directory of kernel.toml, without . and ..`)
	swap(`name = "stage2"`, `name = "stage1"`, `kernel.toml:67: [[stage]] "stage1" is declared twice`)
	swap(`name = "stage2"`, `name = "stage+2"`,
		`kernel.toml:67: "name" in [[stage]] is "stage+2"; want a lower-case letter, then lower-case letters, digits, _ or -`)
	swap("error_share = 0.05", "error_share = 0", `kernel.toml:51: "error_share" in [[stage]] is 0; want a number above 0, up to 4`)
	swap("error_share = 0.05", "error_share = nan", `kernel.toml:51: "error_share" in [[stage]] is NaN; want a number above 0, up to 4`)
	swap("error_share = 0.05", "error_share = 'x'", `kernel.toml:51: "error_share" in [[stage]] is a string; want a number`)
	swap("error_share = 0.05", "error_share = 1", none)
	swap("error_share = 0.05", "error_share = 0.05\nexact_exponentials = 'TILE_M == 1'",
		`kernel.toml:52: "exact_exponentials" in [[stage]] is "TILE_M == 1": unknown knob "TILE_M"; did you mean "TILE_N"?`)
	swap("error_share = 0.05", "error_share = 0.05\nexact_exponentials = 1", `kernel.toml:52: "exact_exponentials" in [[stage]] is an integer; want a string`)
	swap("registers = 128", "register = 128", `kernel.toml:52: budget of [[stage]] has no "registers"`,
		`kernel.toml:52: unknown key "register" in budget of [[stage]]; did you mean "registers"?`)
	swap("registers = 128", "registers = 256", `kernel.toml:52: "registers" in budget of [[stage]] is 256; want an integer from 1 to 255`)
	swap("spill_bytes = 0", "spill_bytes = -1",
		`kernel.toml:52: "spill_bytes" in budget of [[stage]] is -1; want an integer of at least 0`)
	swap("spill_bytes = 0", "spill_bytes = 0.5", `kernel.toml:52: "spill_bytes" in budget of [[stage]] is a float; want an integer`)
	swap("budget = { registers = 128, shared_bytes = 49152, spill_bytes = 0 }", "budget = 128",
		`kernel.toml:52: "budget" in [[stage]] is an integer; want a table`)
	swap("budget = { registers = 128, shared_bytes = 49152, spill_bytes = 0 }", "budget.registers = 128\nbudget.shared_bytes = 'x'",
		`kernel.toml:52: budget of [[stage]] has no "spill_bytes"`,
		`kernel.toml:53: "shared_bytes" in budget of [[stage]] is a string; want an integer`)
	swap(`  "sm_89", # tuned`, `  "sm89", # tuned`,
		`kernel.toml:77: "archs" in [[stage]]: "sm89" is not an architecture; want one such as sm_89 or sm_90a`)
	swap(`  "sm_89", # tuned`, `  89, # tuned`, `kernel.toml:77: "archs" in [[stage]]: an item is an integer; want a string`)
	swap(`  "sm_89", # tuned`, `  "sm_80", # tuned`, `kernel.toml:77: "archs" in [[stage]] has sm_80 twice`)
	swap(`archs = ["sm_80", "sm_89", "sm_90a"]`, `archs = []`, `kernel.toml:53: "archs" in [[stage]] is empty; want architectures`)
}

func TestAllow(t *testing.T) {
	swap := toySwap(t, "")
	swap("error_share = 0.05", "error_share = 0.05\nallow = [\"clok\"]",
		`kernel.toml:52: "allow" in [[stage]]: unknown kind of finding "clok"; did you mean "clock"?`)
	swap("default = 0", "default = 0\nallow = [\"state\"]", `kernel.toml:9: "allow" in [[knob]]: unknown kind of finding "state"; `+
		`there are module-memory, clock, launch-id, output-read, unset-register, unset-local, allocation, device-launch, external-call, indirect-call, absolute-address, texture, unreadable, not-repeatable, kept-memory`)
	swap("about = \"a small", "allow = 1\nabout = \"a small", `kernel.toml:2: "allow" in the file is an integer; want an array of kinds of findings`)
	swap("about = \"a small", "allow = []\nabout = \"a small", `kernel.toml:2: "allow" in the file is empty; want kinds of findings`)
	swap("about = \"a small", "allow = [1]\nabout = \"a small", `kernel.toml:2: "allow" in the file: an item is an integer; want a string`)

	text, err := os.ReadFile("testdata/kernel.toml")
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.NewReplacer(
		"about = \"a small", "allow = [\"launch-id\"]\nabout = \"a small",
		"name = \"USE_XOR_SWIZZLE\"", "name = \"USE_XOR_SWIZZLE\"\nallow = [\"clock\", \"texture\"]",
		"name = \"stage2\"", "name = \"stage2\"\nallow = [\"module-memory\"]").Replace(string(text))
	kernel, err := Load(fstest.MapFS{File: {Data: []byte(edited)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]finding.Kind{
		"stage1": {"launch-id"}, "stage2": {"launch-id", "module-memory"},
		"stage2+USE_XOR_SWIZZLE=1": {"launch-id", "module-memory", "clock", "texture"},
	} {
		v, err := kernel.Variant(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Allowed(); !slices.Equal(got, want) {
			t.Errorf("%s allows %v, want %v", name, got, want)
		}
	}
}

func TestStageKnobErrors(t *testing.T) {
	swap := toySwap(t, "")
	swap("USE_CP_ASYNC = 1", "USE_CP_ASINC = 1",
		`kernel.toml:58: unknown knob "USE_CP_ASINC" in knobs of [[stage]]; did you mean "USE_CP_ASYNC"?`)
	swap("TILE_N = 32", "TILE_N = 33", `kernel.toml:69: TILE_N = 33 in knobs of [[stage]] is not allowed; allowed are 16, 32, 64`)
	swap("TILE_N = 32", "TILE_N = '32'", `kernel.toml:69: "TILE_N" in knobs of [[stage]] is a string; want an integer`)
	swap("knobs = { USE_CP_ASYNC = 1, USE_WMMA_QK = 1 }", "knobs = 1", `kernel.toml:58: "knobs" in [[stage]] is an integer; want a table`)
	swap("USE_WMMA_QK = 1, USE_WMMA_PV = 1", "USE_WMMA_PV = 1",
		`kernel.toml:69: stage2 breaks the rule "not USE_WMMA_PV or USE_WMMA_QK" with USE_WMMA_QK=0, USE_WMMA_PV=1: `+
			`P·V on tensor cores reads the score tile that the WMMA Q·K wrote`)
}

func TestParentErrors(t *testing.T) {
	swap := toySwap(t, "")
	swap(`parent = "stage1"`, `parent = "stag1"`, `kernel.toml:70: "parent" in [[stage]]: unknown stage "stag1"; did you mean "stage1"?`)
	swap(`parent = "stage1"`, `parent = "stage2"`, `kernel.toml:70: stage "stage2" is its own parent`)
	swap(`parent = "stage1"`, `parent = "stage2+TILE_N=32"`, `kernel.toml:70: stage "stage2" is its own parent`)
	swap(`parent = "stage1"`, `parent = "stage1+TILE=32+TILE_N=1"`,
		`kernel.toml:70: "parent" in [[stage]]: unknown knob "TILE" in "stage1+TILE=32+TILE_N=1"; did you mean "TILE_N"?`,
		`kernel.toml:70: "parent" in [[stage]]: TILE_N=1 in "stage1+TILE=32+TILE_N=1" is not allowed; allowed are 16, 32, 64`)
	swap(`parent = "stage1"`, `parent = "stage2+USE_WMMA_QK=0"`,
		`kernel.toml:70: stage2+USE_WMMA_QK=0 breaks the rule "not USE_WMMA_PV or USE_WMMA_QK" with USE_WMMA_QK=0, USE_WMMA_PV=1: `+
			`P·V on tensor cores reads the score tile that the WMMA Q·K wrote`)
	swap(`parent = "stage1+USE_CP_ASYNC=0"`, `parent = "stage2"`,
		`kernel.toml:59: parents form a cycle: stage1 -> stage2 -> stage1`)
	swap("parent = \"stage1\"\n", "", `kernel.toml:71: [[stage]] has a "speedup" but no "parent" to compare with`)
	swap("speedup = 1.10\n", "", `kernel.toml:55: [[stage]] has no "speedup"`)
	swap("speedup = 1.10", "speedup = -1", `kernel.toml:61: "speedup" in [[stage]] is -1; want a number above 0`)
	swap("speedup = 1.10", "speedup = inf", `kernel.toml:61: "speedup" in [[stage]] is +Inf; want a number above 0`)
	swap(`parent = "stage1"`, `parent = 1`, `kernel.toml:70: "parent" in [[stage]] is an integer; want a string`)
}

func TestShapeErrors(t *testing.T) {
	swap := toySwap(t, "")
	swap(`"1x8x128x64"]`, `"1x8x128"]`,
		`kernel.toml:82: "problems" in [[shapes]]: shape "1x8x128": want BxHxSxD, such as 1x8x512x64 or 1x8x512x64:causal`)
	swap(`"1x8x128x64"]`, `"1x1x32x64"]`, `kernel.toml:82: "problems" in [[shapes]] has 1x1x32x64 twice`)
	swap(`"1x8x128x64"]`, `1]`, `kernel.toml:82: "problems" in [[shapes]]: an item is an integer; want a string`)
	swap(`name = "mission"`, `name = "small"`, `kernel.toml:85: [[shapes]] "small" is declared twice`,
		`kernel.toml:89: "shapes" in [run]: unknown shape "mission"; there are small, small, and any BxHxSxD such as 1x8x512x64`,
		`kernel.toml:90: "benchmark" in [run]: unknown shape "mission"; there are small, small, and any BxHxSxD such as 1x8x512x64`)
	swap(`name = "mission"`, `name = "2x"`,
		`kernel.toml:85: "name" in [[shapes]] is "2x"; want a lower-case letter, then lower-case letters, digits, _ or -`,
		`kernel.toml:89: "shapes" in [run]: unknown shape "mission"; there are small, 2x, and any BxHxSxD such as 1x8x512x64`,
		`kernel.toml:90: "benchmark" in [run]: unknown shape "mission"; there are small, 2x, and any BxHxSxD such as 1x8x512x64`)
}

func TestRunErrors(t *testing.T) {
	swap := toySwap(t, "")
	swap(`"mission", "1x8x33x64:causal"]`, `"mision"]`, `kernel.toml:89: "shapes" in [run]: unknown shape "mision"; did you mean "mission"?`)
	swap(`"mission", "1x8x33x64:causal"]`, `3]`, `kernel.toml:89: "shapes" in [run]: an item is an integer; want a string`)
	swap(`benchmark = ["mission"]`, `benchmark = ["mission", "huge"]`,
		`kernel.toml:90: "benchmark" in [run]: unknown shape "huge"; there are small, mission, and any BxHxSxD such as 1x8x512x64`)
	swap(`benchmark = ["mission"]`, `benchmark = ["1x8x33x64"]`,
		`kernel.toml:90: "benchmark" in [run]: shape 1x8x33x64 is not among the "shapes" of a run`)
	swap(`benchmark = ["mission"]`, `benchmark = ["1x8x33x64:causal"]`, none)
	swap(`benchmark = ["mission"]`, `judged = ["mission"]`, `kernel.toml:90: "judged" in [run] is now called "benchmark"; rename the key`)
	swap(`benchmark = ["mission"]`, "benchmark = [\"mission\"]\njudged = [\"mission\"]",
		`kernel.toml:91: "judged" in [run] is now called "benchmark"; rename the key`)
	swap("benchmark = [\"mission\"]\n", "", `kernel.toml:88: [run] has no "benchmark"`)
	swap("seeds = [0, 1, 2]", "seeds = [0, -1, 2]", `kernel.toml:91: "seeds" in [run]: seed -1 is below 0`)
	swap("seeds = [0, 1, 2]", "seeds = [0, 'x']", `kernel.toml:91: "seeds" in [run]: an item is a string; want an integer`)
	swap("seeds = [0, 1, 2]", "seeds = [0, 1, 2]\nsim_shapes = ['small']\nsim_seeds = [0]", none)
	swap("seeds = [0, 1, 2]", "seeds = [0, 1, 2]\nsim_shapes = ['smal']\nsim_seeds = [-1]",
		`kernel.toml:92: "sim_shapes" in [run]: unknown shape "smal"; did you mean "small"?`, `kernel.toml:93: "sim_seeds" in [run]: seed -1 is below 0`)
	swap("seeds = [0, 1, 2]", "seeds = [0, 1, 2]\nquick = ['small', '1x1x33x64']", none)
	swap("seeds = [0, 1, 2]", "seeds = [0, 1, 2]\nquick = ['smal', 3]",
		`kernel.toml:92: "quick" in [run]: unknown shape "smal"; did you mean "small"?`,
		`kernel.toml:92: "quick" in [run]: an item is an integer; want a string`)
	swap("seeds = [0, 1, 2]", "seeds = [0, 1, 2]\nquick = []", `kernel.toml:92: "quick" in [run] is empty; want shapes`)
	swap("seeds = [0, 1, 2]", "sheds = [0]", `kernel.toml:88: [run] has no "seeds"`,
		`kernel.toml:91: unknown key "sheds" in [run]; did you mean "seeds"?`)
	swap("bad_fraction = 0.01", "bad_fraction = 1.5", `kernel.toml:98: "bad_fraction" in [tolerance] is 1.5; want a number from 0 to 1`)
	swap("bad_fraction = 0.01", "bad_fraction = 0", none)
	swap("max_err = 0.06", "max_err = 0", `kernel.toml:94: "max_err" in [tolerance] is 0; want a number above 0`)
	swap("max_err = 0.06", "max_error = 0.06", `kernel.toml:93: [tolerance] has no "max_err"`,
		`kernel.toml:94: unknown key "max_error" in [tolerance]; did you mean "max_err"?`)
}

// Load reports all problems at once, ordered by line.
func TestLoadAllProblems(t *testing.T) {
	text := strings.NewReplacer(
		`about = "keys in a tile"`, `abot = "keys in a tile"`,
		"rtol = 0.06", "rtol = 'x'",
		`parent = "stage1"`, `parent = "stage9"`,
		`why = "the swizzle`, `wy = "the swizzle`,
	).Replace(toyText(t))
	_, err := loadText(text)
	want := `kernel.toml:32: [[knob]] has no "about"
kernel.toml:37: unknown key "abot" in [[knob]]; did you mean "about"?
kernel.toml:43: [[constraint]] has no "why"
kernel.toml:45: unknown key "wy" in [[constraint]]; did you mean "why"?
kernel.toml:70: "parent" in [[stage]]: unknown stage "stage9"; did you mean "stage0"?
kernel.toml:97: "rtol" in [tolerance] is a string; want a number`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Error(diff)
	}
}

func TestLoadOtherForms(t *testing.T) {
	check := func(name, text, want string) {
		t.Helper()
		_, err := loadText(text)
		if got := fmt.Sprint(err); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
		}
	}
	check("an empty file", "", `kernel.toml:1: the file declares no kernel; it needs a name, [[arg]], [launch] and [reference], as docs/kernel-toml.md explains
kernel.toml:1: the file has no "name"
kernel.toml:1: the file has no "arg"
kernel.toml:1: the file has no "launch"
kernel.toml:1: the file has no "reference"`)
	check("only a name and an unknown key", "name = 'k'\nnmae = 'k'\n", `kernel.toml:1: the file declares no kernel; it needs a name, [[arg]], [launch] and [reference], as docs/kernel-toml.md explains
kernel.toml:1: the file has no "arg"
kernel.toml:1: the file has no "launch"
kernel.toml:1: the file has no "reference"
kernel.toml:1: the file has no "source", and there is no file k.cu beside kernel.toml
kernel.toml:2: unknown key "nmae" in the file; did you mean "name"?`)
	check("misspelt sections of a declared kernel", "name = 'k'\n[[args]]\n[lanch]\n[refrence]\n", `kernel.toml:1: the file has no "arg"
kernel.toml:1: the file has no "launch"
kernel.toml:1: the file has no "reference"
kernel.toml:1: the file has no "source", and there is no file k.cu beside kernel.toml
kernel.toml:2: unknown key "args" in the file; did you mean "arg"?
kernel.toml:3: unknown key "lanch" in the file; did you mean "launch"?
kernel.toml:4: unknown key "refrence" in the file; did you mean "reference"?`)
	rest := "name = 'x'\nabout = 'x'\n[tolerance]\nmax_err = 1\nmean_err = 1\natol = 1\nrtol = 1\nbad_fraction = 0\n" +
		"[run]\nshapes = ['1x1x1x1']\nbenchmark = ['1x1x1x1']\nseeds = [0]\n"
	check("empty arrays", "stage = []\nshapes = []\n"+rest,
		"kernel.toml:1: \"stage\" in the file is empty\nkernel.toml:2: \"shapes\" in the file is empty")
	check("items that are not tables", "stage = [1]\nshapes = [\n'x']\n"+rest,
		"kernel.toml:1: \"stage\" in the file is an integer; want a table\n"+
			"kernel.toml:3: \"shapes\" in the file is a string; want a table")
	check("single tables", rest+"[stage]\n[shapes]\n",
		"kernel.toml:13: \"stage\" in the file is a table; want an array of tables, each under [[stage]]\n"+
			"kernel.toml:14: \"shapes\" in the file is a table; want an array of tables, each under [[shapes]]")
	check("no knobs, arrays in brackets", "stage = [{ name = 's', source = 's.cu', hypothesis = 'x', error_share = 1,\n"+
		"archs = ['sm_90a'], budget = { registers = 1, shared_bytes = 0, spill_bytes = 0 } }]\n"+
		"shapes = [{ name = 'one', problems = ['1x1x1x1'] }]\n"+rest, "<nil>")
}

func TestLoadProse(t *testing.T) {
	toy := strings.Replace(toyText(t), `"the scalar kernel is correct"`, "\"\"\"\nthe scalar\n  kernel is correct\"\"\"", 1)
	k, err := loadText(toy)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.Stages[0].Hypothesis; got != "the scalar kernel is correct" {
		t.Errorf("the hypothesis is %q", got)
	}
}

func TestLoadCycles(t *testing.T) {
	// The parent of a is b, of b is c, of c is b, and of d is d with another tile.
	text := toyText(t)
	first := strings.Index(text, "[[stage]]")
	last := strings.Index(text, "[[shapes]]")
	var stages strings.Builder
	for _, s := range []struct{ name, parent string }{{"a", "b"}, {"b", "c+TILE_N=16"}, {"c", "b"}, {"d", "d+TILE_N=16"}} {
		fmt.Fprintf(&stages, "[[stage]]\nname = %q\nparent = %q\nsource = 'x.cu'\nhypothesis = 'x'\nspeedup = 1\n"+
			"error_share = 1\narchs = ['sm_89']\nbudget = { registers = 1, shared_bytes = 0, spill_bytes = 0 }\n", s.name, s.parent)
	}
	_, err := loadText(text[:first] + stages.String() + text[last:])
	want := "kernel.toml:58: parents form a cycle: b -> c -> b"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func TestLoadWithoutFile(t *testing.T) {
	_, err := Load(fstest.MapFS{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), File) {
		t.Errorf("%v", err)
	}
	_, err = Load(os.DirFS(filepath.Join(t.TempDir(), "nosuch")))
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "the folder does not exist" {
		t.Errorf("%v", err)
	}
	_, err = Load(fstest.MapFS{File: {Mode: fs.ModeDir}})
	if err == nil || !strings.HasPrefix(err.Error(), "reading the spec of a kernel: ") {
		t.Errorf("%v", err)
	}
	_, err = loadText(strings.Repeat("#", maxFile+1))
	if want := "kernel.toml:1: the file has 262145 bytes; a spec has at most 262144"; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

func FuzzLoad(f *testing.F) {
	toy := toyText(f)
	f.Add(toy)
	f.Add("")
	f.Add("name = 'x'\n[[knob]]\nname = 'A'\nvalues = [1]\ndefault = 1\n[[constraint]]\nrule = 'A // 0'\n[[stage]]\nname = 's'\n")
	f.Add("stage = [{ name = 's', knobs = { A = 1 } }]\nshapes = 1\n")
	f.Add("[[stage]]\nname = 'a'\nparent = 'b'\n[[stage]]\nname = 'b'\nparent = 'a'\n")
	f.Add(toy + toySelection)
	f.Add(toy + toyPredicates)
	f.Add(strings.Replace(toy, `name = "TILE_N"`, "name = 'TILE_N'\nformerly = ['TILE']\nsource = ['ada/toy.cu']", 1) +
		"[[retired]]\nname = 'TILE_M'\nvalue = 1\nwhy = 'x'\nstages = ['stage1']\n")
	f.Add("[[selection]]\nname = 'a'\n[[selection.choice]]\nvariant = 'a'\n[[selection.choice]]\nwhen = '1 // causal'\n")
	f.Add(strings.ReplaceAll(toy, `"TILE_N"`, `"HEAD_DIM"`) + strings.ReplaceAll(toySelection, "keys", "keys // causal"))
	declared := declaredText(f)
	f.Add(declared)
	f.Add(declared + "[run]\nshapes = ['small', 'rows=3,n=7']\nseeds = [1]\n[[stage]]\nname = 'rmsnorm'\n[[stage]]\nname = 'b'\nparent = 'rmsnorm'\n" +
		"[[selection]]\nname = 'best'\n[[selection.choice]]\nwhen = 'rows // n'\nvariant = 'b'\n[[selection.choice]]\nvariant = 'rmsnorm'\n")
	f.Add(declared + "[[arg]]\nname = 'm'\ntensormap = { arg = 'x', box = [64, 'THREADS // 4'], swizzle = '128B' }\n[[peer]]\npython = 'peers.py:f'\n")
	f.Add("name = 'rmsnorm'\n[[arg]]\nname = 'y'\ntype = 'i8'\nshape = 4\ninout = true\nfill = 'integers(-1, 2)'\n" +
		"[launch]\ngrid = 1\nblock = '32'\ncluster = [1]\n[reference]\nsource = 'naive.cu'\ngrid = 2\n")
	named := regexp.MustCompile(`^kernel\.toml:[1-9][0-9]*: `)
	f.Fuzz(func(t *testing.T, text string) {
		k, err := loadDeclared(text)
		if err != nil {
			lines := strings.Count(text, "\n") + 1
			for _, message := range strings.Split(err.Error(), "\n") {
				var line int
				if !named.MatchString(message) {
					t.Fatalf("no line in %q", message)
				}
				if fmt.Sscanf(message, "kernel.toml:%d", &line); line > lines {
					t.Fatalf("%d lines in the file: %s", lines, message)
				}
			}
			return
		}
		for _, s := range k.Stages {
			v, err := k.Variant(s.Name)
			if err != nil {
				t.Fatalf("stage %s is invalid: %v", s.Name, err)
			}
			if parent, ok := v.Parent(); ok {
				if _, err := k.Variant(parent.String()); err != nil {
					t.Fatalf("the parent of stage %s is invalid: %v", s.Name, err)
				}
			}
		}
		for _, s := range k.Selections {
			for _, v := range s.Variants() {
				if _, err := k.Variant(v.String()); err != nil {
					t.Fatalf("selection %s has an invalid variant: %v", s.Name, err)
				}
			}
			for _, g := range k.Groups {
				for _, shape := range g.Shapes {
					if _, err := s.Choose(shape); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if _, err := k.Shapes(strings.Join(slices.Concat(k.Run.Shapes, k.Run.SimShapes, k.Run.Quick), ",")); err != nil {
			t.Fatal(err)
		}
		if k.Declared == nil {
			return
		}
		for _, g := range k.Groups {
			for _, s := range k.Stages {
				if err := k.Declared.Check(s.Variant(), g.Shapes[0]); err != nil && len(k.Groups)*len(k.Stages) < maxTries {
					t.Fatal(err)
				}
				k.Declared.Settings(s.Variant())
			}
			if shape, err := k.ParseShape(g.Shapes[0].String()); shape != g.Shapes[0] {
				t.Fatalf("%s is %v, %v", g.Shapes[0], shape, err)
			}
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	text := toyText(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := loadText(text); err != nil {
			b.Fatal(err)
		}
	}
}
