package lab

import (
	"slices"
	"testing"

	"attune/internal/spec"
	"attune/kernels"
)

// An outline has the problems of a bench, their variants and their work.
func TestOutline(t *testing.T) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	stage, err := kernel.Variant("stage2")
	if err != nil {
		t.Fatal(err)
	}
	shapes, err := kernel.Shapes("1x8x512x64,1x8x512x64:causal")
	if err != nil {
		t.Fatal(err)
	}
	r := BenchRequest{Variants: []spec.Variant{stage}, Shapes: shapes, Command: "attune bench stage2"}
	o, err := r.Outline(kernel)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(o.Names, []string{"stage2"}) || len(o.Problems) != 2 || o.Command != r.Command {
		t.Fatalf("%+v", o)
	}
	first := o.Problems[0]
	if want := 4 * 8 * 512 * 512 * 64 / 1e9; first.Shape != "1x8x512x64" || !slices.Equal(first.Variants, []string{"stage2"}) || first.GFLOP != want || first.MB <= 0 {
		t.Errorf("%+v, want %g GFLOP", first, want)
	}
}

// The parts of a list have each element once.
func TestPartOf(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6}
	var joined []int
	for i := range 3 {
		joined = append(joined, partOf(all, i, 3)...)
	}
	slices.Sort(joined)
	if !slices.Equal(joined, all) || !slices.Equal(partOf(all, 0, 0), all) || !slices.Equal(partOf(all, 1, 3), []int{1, 4}) {
		t.Error(joined)
	}
}
