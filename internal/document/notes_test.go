package document

import (
	"slices"
	"strings"
	"testing"

	"attune/internal/coverage"
	"attune/internal/run"
)

// A wrong variant of a bench is an issue, and one that could not be checked another; peers are none.
func TestBenchIssues(t *testing.T) {
	b := &run.Bench{Rows: []run.BenchRow{
		{Name: "right", Shape: "1x1x4x64"},
		{Name: "wrong", Shape: "1x1x4x64", Wrong: "3 of 256 elements"},
		{Name: "open", Shape: "1x1x4x64", Wrong: "no reference", Unchecked: true},
		{Name: "torch", Shape: "1x1x4x64", Wrong: "all", Peer: true},
	}}
	var got []string
	for _, i := range BenchIssues(b) {
		got = append(got, i.Subject+", "+i.Rule+", "+i.Message)
	}
	want := []string{"wrong, wrong output, 1x1x4x64: 3 of 256 elements", "open, " + uncheckedRule + ", 1x1x4x64: no reference"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Lines that no shape executes are named for one run, and for several only their variants.
func TestUnexecuted(t *testing.T) {
	covered := &run.Run{Variant: "covered", Lines: &coverage.Summary{}}
	open := &run.Run{Variant: "open", Lines: &coverage.Summary{Never: []coverage.Range{{File: "k.cu", From: 3, To: 4}}}}
	if got := Unexecuted([]*run.Run{covered, {Variant: "unknown"}}); got != nil {
		t.Errorf("%q", got)
	}
	if got := Unexecuted([]*run.Run{covered, open}); len(got) != 1 || !strings.Contains(got[0], "lines of open; `attune show ID`") {
		t.Errorf("%q", got)
	}
	if got := Unexecuted([]*run.Run{open}); len(got) == 0 || !strings.HasPrefix(got[0], "note: open: ") {
		t.Errorf("%q", got)
	}
}
