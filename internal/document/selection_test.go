package document

import (
	"io"
	"strings"
	"testing"

	"attune/internal/gate"
	"attune/internal/run"
)

// selected is a selection with two variants that is correct and fast enough.
func selected() *run.Run {
	r := passing()
	r.ID, r.Variant, r.Stage, r.Build, r.CodeHash = "20261115-031523-stage7-3f9a1c", "stage7", "stage7", nil, "5e1ec7"
	r.Parts = []run.Part{
		{Variant: "stage7a", Run: "20261115-031522-stage7a-3f9a1c", Arch: "sm_89", CodeHash: "c0de0a", Verdict: gate.Merge, Shapes: r.Requested.Shapes[:1]},
		{Variant: "stage7b", Run: "20261115-031522-stage7b-3f9a1c", Arch: "sm_89", CodeHash: "c0de0b", Verdict: gate.ValidNegative, Shapes: r.Requested.Shapes[1:]},
	}
	return r
}

// A selection lists the shapes of its parts. The parts print the outputs.
func TestSelection(t *testing.T) {
	goldenOf(t, "selection.txt", func(w io.Writer) error { return runText(w, selected(), screen) })
	text := runMarkdown(selected())
	golden(t, "selection.md", text)
	wholeTables(t, "selection", string(text))
	goldenOf(t, "selection_ladder.txt", func(w io.Writer) error {
		return Ladder([]*run.Run{passing(), selected()}, nil, shortID).Terminal(w, screen)
	})
}

func TestPartOfASelection(t *testing.T) {
	r := passing()
	r.PartOf = "stage7"
	var out strings.Builder
	if err := runText(&out, r, screen); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "\n  part of      stage7\n") || !strings.Contains(string(runMarkdown(r)), "| part of | `stage7` |") {
		t.Errorf("%s", out.String())
	}
}

func TestBenchOfASelection(t *testing.T) {
	b := someBench()
	b.Rows[1].Name, b.Rows[1].Variant = "stage7", "stage7a"
	b.Rows[4].Name, b.Rows[4].Variant = "stage7", "stage7b"
	b.Best[0].Variant, b.Best[1].Variant = "stage7", "stage7"
	goldenOf(t, "bench_selection.txt", func(w io.Writer) error { return benchOf(b).Terminal(w, screen) })
}

func TestComparisonWithASelection(t *testing.T) {
	c := someComparison()
	c.Shapes[0].BVariant = "stage7a"
	var out strings.Builder
	if err := Comparison(c, "").Terminal(&out, screen); err != nil {
		t.Fatal(err)
	}
	if want := "\n    " + c.A.Variant + " → stage7a\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}
