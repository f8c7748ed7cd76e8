package spec

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func loadToy(t testing.TB) *Kernel {
	t.Helper()
	k, err := Load(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestVariantNames(t *testing.T) {
	k := loadToy(t)
	check := func(text, want string) {
		t.Helper()
		v, err := k.Variant(text)
		if err != nil {
			t.Error(err)
			return
		}
		if v.String() != want {
			t.Errorf("%q has the canonical name %q; want %q", text, v, want)
		}
	}
	check("stage0", "stage0")
	check("stage2", "stage2")
	check("stage2+TILE_N=32", "stage2") // the value of the stage
	check("stage2+TILE_N=64", "stage2+TILE_N=64")
	// In the order of declaration.
	check("stage2+TILE_N=64+USE_CP_ASYNC=0", "stage2+USE_CP_ASYNC=0+TILE_N=64")
	check("stage2+USE_CP_ASYNC=1+USE_XOR_SWIZZLE=1", "stage2+USE_XOR_SWIZZLE=1")
}

func TestVariantValues(t *testing.T) {
	k := loadToy(t)
	v, err := k.Variant("stage1+TILE_N=16")
	if err != nil {
		t.Fatal(err)
	}
	want := []Setting{
		{"USE_CP_ASYNC", 1},
		{"USE_WMMA_QK", 1},
		{"USE_WMMA_PV", 0},
		{"USE_XOR_SWIZZLE", 0},
		{"TILE_N", 16},
	}
	if diff := cmp.Diff(want, v.Values()); diff != "" {
		t.Error(diff)
	}
	v.Values()[0].Value = 7
	if v.String() != "stage1+TILE_N=16" {
		t.Errorf("changing the returned values changed the variant to %s", v)
	}
	if v.Stage().Name != "stage1" {
		t.Errorf("stage is %s", v.Stage().Name)
	}
}

func TestVariantErrors(t *testing.T) {
	k := loadToy(t)
	check := func(text string, want ...string) {
		t.Helper()
		_, err := k.Variant(text)
		if err == nil {
			t.Errorf("%q is accepted", text)
			return
		}
		if diff := cmp.Diff(strings.Join(want, "\n"), err.Error()); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	check("", `unknown stage ""; there are stage0, stage1, stage2`)
	check("stag2", `unknown stage "stag2"; did you mean "stage2"?`)
	check("STAGE2", `unknown stage "STAGE2"; did you mean "stage2"?`)
	check("stage2 ", `unknown stage "stage2 "; did you mean "stage2"?`)
	check("stage2+", `"" in "stage2+" is not a setting; write KNOB=VALUE`)
	check("stage2+USE_XOR_SWIZZLE",
		`"USE_XOR_SWIZZLE" in "stage2+USE_XOR_SWIZZLE" is not a setting; write KNOB=VALUE`)
	check("stage2+USE_XOR=1", `unknown knob "USE_XOR" in "stage2+USE_XOR=1"; did you mean "USE_XOR_SWIZZLE"?`)
	check("stage2+USE_XOR_SWIZZLE=true",
		`USE_XOR_SWIZZLE=true in "stage2+USE_XOR_SWIZZLE=true" is not allowed; allowed are 0, 1`)
	check("stage2+TILE_N=48", `TILE_N=48 in "stage2+TILE_N=48" is not allowed; allowed are 16, 32, 64`)
	check("stage2+TILE_N=32,USE_XOR_SWIZZLE=1",
		`"stage2+TILE_N=32,USE_XOR_SWIZZLE=1" is not a variant; knobs are joined by +: stage2+TILE_N=32+USE_XOR_SWIZZLE=1`)
	check("stage2+TILE_N=032", `TILE_N=032 in "stage2+TILE_N=032" is not allowed; allowed are 16, 32, 64`)
	check("stage2+TILE_N=32+TILE_N=32", `TILE_N in "stage2+TILE_N=32+TILE_N=32" is set twice`)
	check("stage2+TILE_N=+TILE=1", // all errors
		`TILE_N= in "stage2+TILE_N=+TILE=1" is not allowed; allowed are 16, 32, 64`,
		`unknown knob "TILE" in "stage2+TILE_N=+TILE=1"; did you mean "TILE_N"?`)
	check("stage2+USE_WMMA_QK=0",
		`stage2+USE_WMMA_QK=0 breaks the rule "not USE_WMMA_PV or USE_WMMA_QK" with USE_WMMA_QK=0, USE_WMMA_PV=1: `+
			`P·V on tensor cores reads the score tile that the WMMA Q·K wrote`)
	check("stage0+USE_WMMA_PV=1+TILE_N=16+USE_XOR_SWIZZLE=1",
		`stage0+USE_WMMA_PV=1+USE_XOR_SWIZZLE=1+TILE_N=16 breaks the rule "not USE_WMMA_PV or USE_WMMA_QK" `+
			`with USE_WMMA_QK=0, USE_WMMA_PV=1: P·V on tensor cores reads the score tile that the WMMA Q·K wrote`,
		`stage0+USE_WMMA_PV=1+USE_XOR_SWIZZLE=1+TILE_N=16 breaks the rule "TILE_N in (32, 64) or not USE_XOR_SWIZZLE" `+
			`with USE_XOR_SWIZZLE=1, TILE_N=16: the swizzle permutes at least 32 rows`)
}

// The message about a long name does not repeat it for every mistake.
func TestLongVariantNames(t *testing.T) {
	k := loadToy(t)
	for _, text := range []string{
		k.Stages[0].Name + strings.Repeat("+X=1", 300_000), k.Stages[0].Name + "+" + strings.Repeat("X", 1_200_000), strings.Repeat("x", 1_200_000),
		k.Stages[0].Name + "+X=" + strings.Repeat("1,", 600_000),
	} {
		if _, err := k.Variant(text); err == nil || len(err.Error()) > 20_000 {
			t.Errorf("%.20s: a message of %d bytes", text, len(fmt.Sprint(err)))
		}
	}
}

func TestVariantWithFailingRule(t *testing.T) {
	k := loadToy(t)
	c, wrong := newConstraint("TILE_N // USE_CP_ASYNC > 0", "a division", k.knobNames())
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	k.Constraints = append(k.Constraints, c)
	_, err := k.Variant("stage2+USE_CP_ASYNC=0")
	want := `stage2+USE_CP_ASYNC=0: rule "TILE_N // USE_CP_ASYNC > 0" cannot be evaluated for USE_CP_ASYNC=0, TILE_N=32: ` +
		`floored division by zero`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant: %s", err, want)
	}
}

func TestParent(t *testing.T) {
	k := loadToy(t)
	check := func(text, want string, speedup float64) {
		t.Helper()
		v, err := k.Variant(text)
		if err != nil {
			t.Error(err)
			return
		}
		got := "none"
		if parent, ok := v.Parent(); ok {
			got = parent.String()
		}
		if got != want || v.RequiredSpeedup() != speedup {
			t.Errorf("%s: parent %s, speedup %g; want %s, %g", text, got, v.RequiredSpeedup(), want, speedup)
		}
	}
	check("stage0", "none", 1)
	check("stage1", "stage1+USE_CP_ASYNC=0", 1.10)
	check("stage1+USE_CP_ASYNC=0", "stage1", 1)
	check("stage2", "stage1", 1.15)
	check("stage2+TILE_N=32", "stage1", 1.15) // the stage itself
	check("stage2+TILE_N=64", "stage2", 1)
}

func TestShapes(t *testing.T) {
	k := loadToy(t)
	check := func(text string, want string) {
		t.Helper()
		shapes, err := k.Shapes(text)
		if err != nil {
			t.Error(err)
			return
		}
		if got := fmt.Sprint(shapes); got != want {
			t.Errorf("%q is %s; want %s", text, got, want)
		}
	}
	check("small", "[1x1x32x64 1x8x128x64]")
	check("mission,small", "[1x8x512x64 2x8x512x64 1x1x32x64 1x8x128x64]")
	check("1x8x512x64:causal", "[1x8x512x64:causal]")
	check("1x8x128x64,small,small", "[1x8x128x64 1x1x32x64]") // each once

	wrong := func(text, want string) {
		t.Helper()
		if _, err := k.Shapes(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	wrong("smal", `unknown shape "smal"; did you mean "small"?`)
	wrong("huge", `unknown shape "huge"; there are small, mission, and any BxHxSxD such as 1x8x512x64`)
	wrong("", `unknown shape ""; there are small, mission, and any BxHxSxD such as 1x8x512x64`)
	wrong("small,mision,1x8,", `unknown shape "mision"; did you mean "mission"?
shape "1x8": want BxHxSxD, such as 1x8x512x64 or 1x8x512x64:causal
unknown shape ""; there are small, mission, and any BxHxSxD such as 1x8x512x64`)
}

func TestStageByName(t *testing.T) {
	k := loadToy(t)
	s, err := k.Stage("stage1")
	if err != nil {
		t.Fatal(err)
	}
	if s.Variant().String() != "stage1" {
		t.Errorf("stage1 is the variant %s", s.Variant())
	}
	if _, err := k.Stage("stage1+TILE_N=16"); err == nil {
		t.Error("a variant name is accepted as the name of a stage")
	}
}

func FuzzVariant(f *testing.F) {
	f.Add("stage0")
	f.Add("stage2+TILE_N=64+USE_CP_ASYNC=0")
	f.Add("stage2+TILE_N=32")
	f.Add("stage1+USE_CP_ASYNC=0+USE_XOR_SWIZZLE=1+USE_WMMA_PV=1")
	f.Add("stage2+USE_WMMA_QK=0")
	f.Add("stage2+TILE_N=032+TILE_N=32++=")
	k := loadToy(f)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := k.Variant(text)
		if err != nil {
			if err.Error() == "" {
				t.Fatalf("%q is rejected without a reason", text)
			}
			return
		}
		again, err := k.Variant(v.String())
		if err != nil {
			t.Fatalf("%q has the name %q, which is rejected: %v", text, v, err)
		}
		if again.String() != v.String() {
			t.Fatalf("%q has the names %q and %q", text, v, again)
		}
		if diff := cmp.Diff(v.Values(), again.Values()); diff != "" {
			t.Fatalf("%q: %s", text, diff)
		}
		if parent, ok := v.Parent(); ok && parent.String() == v.String() {
			t.Fatalf("%q is its own parent", text)
		}
	})
}

func BenchmarkVariant(b *testing.B) {
	k := loadToy(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Variant("stage2+USE_XOR_SWIZZLE=1+TILE_N=64"); err != nil {
			b.Fatal(err)
		}
	}
}
