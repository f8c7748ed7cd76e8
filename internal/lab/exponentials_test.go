package lab

import (
	"encoding/binary"
	"slices"
	"testing"

	"attune/internal/half"
	"attune/internal/run"
)

// The study of a part with a shape of its own comes behind the part's last shape.
func TestRowsOfStudies(t *testing.T) {
	t.Parallel()
	part := &run.Run{
		Requested:   run.Requested{Shapes: []string{"1x8x512x64", "2x8x512x64"}},
		Correctness: []run.Correctness{{Shape: "1x8x512x64"}, {Shape: "2x8x512x64"}, {Shape: "1x1x512x64"}},
	}
	for shape, want := range map[string][]string{"1x8x512x64": {"1x8x512x64"}, "2x8x512x64": {"2x8x512x64", "1x1x512x64"}} {
		var got []string
		for _, row := range rowsOf(part, shape) {
			got = append(got, row.Shape)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the rows of %v, want %v", shape, got, want)
		}
	}
}

// A systematic error of half a percent is within the limits of the errors, and more than exact
// exponentials have where one key has all the weight. The same code in another variant is judged by
// the same comparison.
func TestRunComparesExponentials(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage6", behaviour{Output: func(out []byte) {
		for ; len(out) > 0; out = out[2:] {
			x := half.DecodeFloat16(out[:2])[0]
			binary.LittleEndian.PutUint16(out, uint16(half.Float16FromFloat64(1.005*x)))
		}
	}})
	s.declare("stage3b", behaviour{})
	s.declare("stage2", behaviour{})
	r := s.request("stage6", "stage3b")
	r.Shapes, r.Seeds = shapes(t, "1x1x72x64:causal"), []uint64{0}
	if err := s.run(r); err != nil {
		t.Fatal(err)
	}
	first, second := s.runs[0], s.runs[1]
	expectOutcome(t, first, incorrect)
	expectReason(t, first.Reasons.Correctness, "1x1x72x64:causal seed 0 rising: exponentials: the error of all rows is ")
	if first.Requested.Problems != 10 || len(first.Correctness) != 10 || len(second.Correctness) != 5 {
		t.Errorf("%d and %d outputs; want five more for the kernel that rounds P to E4M3", len(first.Correctness), len(second.Correctness))
	}
	for _, row := range first.Correctness {
		if row.Exponentials == nil || row.Exponentials.Rows != 72 || (row.Exponentials.KeyClass != nil) != (row.Inputs == "uniform") {
			t.Errorf("%s: %+v", row.Inputs, row.Exponentials)
		}
	}
	for _, row := range second.Correctness {
		if row.Exponentials != nil {
			t.Errorf("%s of stage3b: %+v", row.Inputs, row.Exponentials)
		}
	}
}
