package oracle

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/tensor"
)

// A reference for some rows has the bits of the whole reference, with masks, shared heads and rows
// that see no key.
func TestSomeRowsMatchAllRows(t *testing.T) {
	for _, text := range []string{"2x3x150x16", "2x4x150x24:kv=300:kvheads=2:causal", "1x20x70x8:kv=20:causal"} {
		shape := mustShape(t, text)
		in := tensor.Draw(shape, 3, tensor.Options{})
		whole, err := Compute(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		rows := Rows{0, 1, 33, 64, shape.SeqQ - 1}
		for i := 2*shape.SeqQ - 1; i < shape.Rows(); i += 17 { // skips the second head
			rows = append(rows, i)
		}
		some, err := Compute(t.Context(), in, rows)
		if err != nil {
			t.Fatal(err)
		}
		originals, err := Original(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		dims := shape.HeadDim
		want := &Reference{Shape: shape, Rows: rows, ScoreBound: some.ScoreBound}
		for _, row := range rows {
			want.Out = append(want.Out, whole.Out[row*dims:][:dims]...)
			want.LSE = append(want.LSE, whole.LSE[row])
		}
		want.InputError = Difference(want.Out, SelectRows(rows, originals, dims))
		if diff := cmp.Diff(want, some); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
		if some.ScoreBound > whole.ScoreBound || some.ScoreBound < whole.ScoreBound/2 {
			t.Errorf("%s: reach %g on some rows, %g on all", text, some.ScoreBound, whole.ScoreBound)
		}
	}
}

// Compare uses the rows of the reference and reports positions in the whole output.
func TestCompareOnSomeRows(t *testing.T) {
	whole := reference(t)
	ref := &Reference{Shape: whole.Shape, Rows: Rows{2, 11, 23}, LSE: []float64{0, 0, 0}}
	ref.Out = SelectRows(ref.Rows, whole.Out, 5)
	got := slices.Clone(whole.Out)
	got[23*5+4] += 0.5
	got[22*5+4] += 7 // not among the rows
	found, err := Compare(SelectRows(ref.Rows, got, 5), ref, Tolerance{Abs: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	want := Errors{
		MaxErr: 0.5, MeanErr: 0.5 / 15, Bad: 1, BadFraction: 1.0 / 15,
		Worst: Worst{Place: Place{Batch: 1, Head: 2, Row: 3, Dim: 4}, Got: got[119], Want: whole.Out[119]},
	}
	ignore := cmpopts.IgnoreFields(Errors{}, "Cosine")
	if diff := cmp.Diff(want, found, cmpopts.EquateApprox(1e-9, 0), ignore); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	lse := make([]float64, 24)
	lse[11], lse[12] = 0.25, 9
	off, err := CompareLSE(SelectRows(ref.Rows, lse, 1), ref)
	if worst := (Worst{Place: Place{Batch: 0, Head: 2, Row: 3}, Got: 0.25}); err != nil || off.MaxErr != 0.25 || off.Worst != worst {
		t.Errorf("lse: %+v, %v", off, err)
	}
	if _, err := Compare(whole.Out, ref, Tolerance{}); err == nil || err.Error() != "output for 2x3x4x5 has 120 elements, want 15" {
		t.Errorf("the whole output instead of three rows: %v", err)
	}
	if _, err := CompareLSE(lse, ref); err == nil || err.Error() != "lse for 2x3x4x5 has 24 elements, want 3" {
		t.Errorf("all logarithms instead of three: %v", err)
	}
}

func TestSmallProblemsAreNotSampled(t *testing.T) {
	for _, text := range []string{"1x8x512x64", "2x8x2048x64", "1x1x8192x64", "1x1x16384x64:causal", "65536x8x8x512"} {
		if rows := Sample(mustShape(t, text), 0, MaxWork); rows != nil {
			t.Errorf("%s: a sample of %d rows", text, len(rows))
		}
	}
}

func TestSample(t *testing.T) {
	for _, test := range []struct {
		shape string
		rows  int
	}{
		{"1x32x16384x64", 4096},
		{"1x16x16384x128:causal", 4096},
		{"2x8x8192x256", 4096},
		{"32x16x512x128", 8192},
		{"1x1x65536x64", 2384},
	} {
		shape := mustShape(t, test.shape)
		rows := Sample(shape, 0, MaxWork)
		// An edge row that is also drawn counts once.
		if len(rows) > test.rows || len(rows) < test.rows*7/8 {
			t.Errorf("%s: %d rows, want about %d", test.shape, len(rows), test.rows)
		}
		checkSpread(t, shape, rows)
	}
}

// checkSpread checks that a sample has the tile edges of every head, no large gap, all offsets
// within a tile, and different rows in different heads.
func checkSpread(t *testing.T, shape tensor.Shape, rows Rows) {
	t.Helper()
	if !slices.IsSorted(rows) || len(slices.Compact(slices.Clone(rows))) != len(rows) {
		t.Errorf("%v: rows are not ascending", shape)
	}
	has := map[int]bool{}
	var offsets [tileEdge]int
	for _, row := range rows {
		has[row] = true
		offsets[row%shape.SeqQ%tileEdge]++
	}
	heads := map[string]int{}
	for head := range shape.HeadCount() {
		var own, gaps []int
		for row := range shape.SeqQ {
			if has[head*shape.SeqQ+row] {
				own = append(own, row)
			}
		}
		for _, edge := range []int{0, 63, 64, 127, 128, shape.SeqQ - 64, shape.SeqQ - 1} {
			if edge >= 0 && edge < shape.SeqQ && !has[head*shape.SeqQ+edge] {
				t.Errorf("%v head %d: row %d is missing", shape, head, edge)
			}
		}
		for i := 1; i < len(own); i++ {
			gaps = append(gaps, own[i]-own[i-1])
		}
		if len(gaps) > 0 && slices.Max(gaps) > 2*shape.SeqQ/(len(own)-8)+1 {
			t.Errorf("%v head %d: a gap of %d rows", shape, head, slices.Max(gaps))
		}
		heads[cmp.Diff(own, nil)]++
	}
	if shape.SeqQ > minRowsPerHead && len(heads) < shape.HeadCount() {
		t.Errorf("%v: %d distinct samples for %d heads", shape, len(heads), shape.HeadCount())
	}
	if len(rows) >= 2048 && slices.Min(offsets[:]) == 0 {
		t.Errorf("%v: offsets within a tile %v", shape, offsets)
	}
}

// Errors from two machines are comparable only if they cover the same rows.
func TestSampleIsPinned(t *testing.T) {
	rows := Sample(mustShape(t, "32x16x512x128"), 7, MaxWork)
	want := Rows{
		261632, 261670, 261695, 261696, 261704, 261759, 261760, 261780, 261858, 261916, 262004, 262031, 262079, 262080, 262114, 262143,
	}
	if diff := cmp.Diff(want, rows[len(rows)-16:]); diff != "" {
		t.Errorf("the rows of the last head (-want +got):\n%s", diff)
	}
}
