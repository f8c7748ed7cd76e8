package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withHistory is the two-source kernel with renamed and retired knobs: OLD_TILE was renamed
// differently in each source, and USE_ROWS was fixed at another value in each stage.
func withHistory(t *testing.T, replace ...string) (*Kernel, error) {
	t.Helper()
	return twoSources(t, append([]string{
		"name = \"KV_STAGES\"\n", "name = \"KV_STAGES\"\nformerly = [\"OLD_TILE\", \"SLOTS\"]\n",
		"name = \"USE_XOR_SWIZZLE\"\n", "name = \"USE_XOR_SWIZZLE\"\nformerly = [\"OLD_TILE\"]\n",
		"[[stage]]\n", `[[retired]]
name = "BLOCKS"
value = 1
why = "no stage was faster with two blocks"

[[retired]]
name = "USE_ROWS"
value = 1
stages = ["stage9"]
why = "stage9 has a source of its own"

[[retired]]
name = "USE_ROWS"
value = 0
stages = ["stage0", "stage1"]
why = "the rows have a source of their own"

[[stage]]
`,
	}, replace...)...)
}

func TestFormerAndRetiredNames(t *testing.T) {
	k, err := withHistory(t)
	if err != nil {
		t.Fatal(err)
	}
	check := func(text, want string) {
		t.Helper()
		v, err := k.Variant(text)
		got := fmt.Sprint(err)
		if err == nil {
			got = v.String()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	// The stage decides which knob an old name means.
	check("stage9+SLOTS=3", "stage9+KV_STAGES=3")
	check("stage9+OLD_TILE=3", "stage9+KV_STAGES=3")
	check("stage0+OLD_TILE=1", "stage0+USE_XOR_SWIZZLE=1")
	check("stage9+OLD_TILE=2", "stage9") // the stage's own value
	check("stage9+OLD_TILE=9", `OLD_TILE=9 (now KV_STAGES) in "stage9+OLD_TILE=9" is not allowed; allowed are 1, 2, 3`)
	check("stage9+OLD_TILE=3+KV_STAGES=3", `KV_STAGES in "stage9+OLD_TILE=3+KV_STAGES=3" is set twice`)
	check("stage9+OLD_TILE=3+SLOTS=3", `KV_STAGES in "stage9+OLD_TILE=3+SLOTS=3" is set twice`)
	check("stage0+SLOTS=3", `unknown knob "SLOTS" in "stage0+SLOTS=3"; there are USE_CP_ASYNC, USE_WMMA_QK, `+
		`USE_WMMA_PV, USE_XOR_SWIZZLE, TILE_N, KV_STAGES`)
	// Constraints apply as always.
	check("stage9+OLD_TILE=3+TILE_N=64", `stage9+TILE_N=64+KV_STAGES=3 breaks the rule "KV_STAGES * TILE_N <= 96" `+
		`with TILE_N=64, KV_STAGES=3: shared memory holds 96 rows`)

	check("stage9+BLOCKS=1", "stage9")
	check("stage0+BLOCKS=1+TILE_N=16", "stage0+TILE_N=16")
	check("stage9+USE_ROWS=1+KV_STAGES=3", "stage9+KV_STAGES=3")
	check("stage1+USE_ROWS=0", "stage1")
	check("stage1+BLOCKS=2", `BLOCKS=2 in "stage1+BLOCKS=2" is not allowed; the knob is retired and fixed at 1: `+
		`no stage was faster with two blocks`)
	check("stage1+USE_ROWS=1", `USE_ROWS=1 in "stage1+USE_ROWS=1" is not allowed; the knob is retired and fixed at 0: `+
		`the rows have a source of their own`)
	check("stage9+BLOCKS=01", `BLOCKS=01 in "stage9+BLOCKS=01" is not allowed; the knob is retired and fixed at 1: `+
		`no stage was faster with two blocks`)
	check("stage9+BLOCKS=1+BLOCKS=1", `BLOCKS in "stage9+BLOCKS=1+BLOCKS=1" is set twice`)
	check("stage2+USE_ROWS=0", `stage "stage2" never had the retired knob USE_ROWS; stages that had it: stage9, stage0, stage1`)
}

func TestFormerAndRetiredErrors(t *testing.T) {
	check := func(old, text string, want ...string) {
		t.Helper()
		_, err := withHistory(t, old, text)
		if diff := cmp.Diff(strings.Join(want, "\n"), strings.ReplaceAll(fmt.Sprint(err), "kernel.toml:", "")); diff != "" {
			t.Errorf("with %q (-want +got):\n%s", text, diff)
		}
	}
	former := `formerly = ["OLD_TILE", "SLOTS"]`
	check(former, `formerly = ["TILE_N"]`, `46: "TILE_N" in "formerly" of KV_STAGES is ambiguous: in stage "stage9" it also means the knob TILE_N`)
	check(former, `formerly = ["KV_STAGES"]`, `46: "KV_STAGES" in "formerly" of KV_STAGES is ambiguous: in stage "stage9" it also means the knob KV_STAGES`)
	check(former, `formerly = ["USE_WMMA_QK"]`, "<nil>") // a knob of another source
	check(former, `formerly = ["old"]`, `46: "formerly" in [[knob]]: "old" is not a knob name; want an upper-case letter, then upper-case letters, digits or _`)
	check(former, `formerly = "OLD_TILE"`, `46: "formerly" in [[knob]] is a string; want an array of knob names`)
	check(former, `formerly = ["SLOTS", "SLOTS"]`, `46: "formerly" in [[knob]] has SLOTS twice`)
	check("name = \"TILE_N\"\n", "name = \"TILE_N\"\nformerly = [\"OLD_TILE\"]\n",
		`39: "OLD_TILE" in "formerly" of TILE_N is ambiguous: in stage "stage0" it also means the knob USE_XOR_SWIZZLE`,
		`47: "OLD_TILE" in "formerly" of KV_STAGES is ambiguous: in stage "stage9" it also means the knob TILE_N`)

	check(`name = "BLOCKS"`, `name = "blocks"`, `71: "name" in [[retired]] is "blocks"; want an upper-case letter, then upper-case letters, digits or _`)
	check(`name = "BLOCKS"`, `name = "TILE_N"`, `71: [[retired]] "TILE_N": in stage "stage9" the name means the knob TILE_N`)
	check(`name = "BLOCKS"`, `name = "OLD_TILE"`, `71: [[retired]] "OLD_TILE": in stage "stage9" the name means the knob KV_STAGES`)
	check(`stages = ["stage0", "stage1"]`, `stages = ["stage0", "stage9"]`, `82: [[retired]] "USE_ROWS": in stage "stage9" the name is retired twice`)
	check(`stages = ["stage0", "stage1"]`, `stages = ["stage0", "stag1"]`, `84: unknown stage "stag1" in [[retired]]; did you mean "stage1"?`)
	check(`stages = ["stage0", "stage1"]`, `stages = []`, `84: "stages" in [[retired]] is empty; want stages`)
	check("why = \"no stage was faster with two blocks\"\n", "", `70: [[retired]] has no "why"`)
	check("value = 1\nwhy = \"no", "value = \"1\"\nwhy = \"no", `72: "value" in [[retired]] is a string; want an integer`)
	check("value = 1\nwhy = \"no", "vale = 1\nvalue = 1\nwhy = \"no", `72: unknown key "vale" in [[retired]]; did you mean "value"?`)

	// The file itself uses present names only.
	check("knobs = { TILE_N = 32, KV_STAGES = 2 }", "knobs = { TILE_N = 32, SLOTS = 2 }", `90: unknown knob "SLOTS" in knobs of [[stage]]; it is now called KV_STAGES`)
	check("knobs = { TILE_N = 32, KV_STAGES = 2 }", "knobs = { TILE_N = 32, KV_STAGES = 2, BLOCKS = 1 }",
		`90: unknown knob "BLOCKS" in knobs of [[stage]]; it is retired and fixed at 1: no stage was faster with two blocks`)
}
