package document

import (
	"io"
	"maps"
	"slices"
	"testing"

	"attune/internal/device"
	"attune/internal/mutate"
	"attune/internal/profile"
)

func TestMutation(t *testing.T) {
	r := mutate.NewReport(40)
	r.Kill(mutate.Mutant{Line: 3, Kind: "left out"}, "race")
	r.Kill(mutate.Mutant{Line: 4, Kind: "other constant"}, "max_err")
	r.Survive(mutate.Mutant{Line: 5, Kind: "left out", Before: "\tbar.sync \t0;", After: "\t// bar.sync \t0;"}, false)
	r.Survive(mutate.Mutant{Kind: "other box", Before: "64", After: "32"}, false)
	r.Survive(mutate.Mutant{Line: 6, Kind: "operands swapped"}, true)
	goldenOf(t, "mutation.txt", func(w io.Writer) error { return Mutation(w, "stage2 for sm_90a", &r, false) })
	empty := mutate.NewReport(40)
	goldenOf(t, "mutation_empty.txt", func(w io.Writer) error { return Mutation(w, "stage2 for sm_90a", &empty, true) })
}

func TestComparisonFiles(t *testing.T) {
	files, err := ComparisonFiles(someComparison(), "attune compare a b")
	want := []string{"COMPARE.md", "benchstat.txt", "compare.svg", "samples.csv", "t4.json"}
	if got := slices.Sorted(maps.Keys(files)); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// A shape without a roofline has a table and no plot.
func TestProfileFiles(t *testing.T) {
	plain := newProfile(t, device.Facts{Name: "NVIDIA H200", Arch: "sm_90"})
	plain.Shape, plain.Roofline = "1x8x512x64:causal", nil
	files, err := Describe(profile.Set{Variant: "stage2+TILE_N=32", Profiles: []*profile.Profile{newProfile(t, h200), plain}})
	want := []string{"profile.md", "stage2-TILE_N-32-1x8x512x64.svg"}
	if got := slices.Sorted(maps.Keys(files)); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
