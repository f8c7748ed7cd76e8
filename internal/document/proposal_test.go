package document

import (
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/rule"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

func form(variant string, cost float64) tune.FormCost {
	return tune.FormCost{Variant: variant, Cost: new(cost)}
}

func proposal() *tune.Proposal {
	return &tune.Proposal{
		Selection: "best", Tolerance: 0.02, Forms: 2, PresentForms: 3, Fewest: true, Speedup: new(1.25),
		Choices: []tune.TableChoice{{When: "n <= 64", Variant: "copy", Why: "few"}, {Variant: "copy+THREADS=256", Why: "many"}},
		Shapes: []tune.ProposedShape{
			{Shape: "n=64", Best: form("copy", 1e-6), Present: form("copy", 1e-6), Proposed: form("copy", 1.01e-6), Loss: new(0.01)},
			{Shape: "n=96", Holdout: true, Best: form("copy", 2e-6), Present: form("copy", 4e-6), Proposed: form("copy", 2e-6), Loss: new(0.0)},
		},
	}
}

func TestProposal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := Proposal(proposal(), "seconds").Terminal(&out, screen); err != nil {
		t.Fatal(err)
	}
	const want = `best: 2 forms instead of 3, 1.250x as fast as the present table (geometric mean of 2 shapes).
Worst shape against the present table: n=64, +1.0 %.
Confirmed by 1 held-out shape: at most 0.0 % over the best form measured, on n=96.

shape            present us  proposed us  best us   loss
n=64   tuned              1         1.01        1  1.0 %
n=96   held out           4            2        2  0.0 %

[[selection.choice]]
when = "n <= 64"
variant = "copy"
why = "few"

[[selection.choice]]
variant = "copy+THREADS=256"
why = "many"
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := writeMarkdown(&out, Proposal(proposal(), "seconds")); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"# A table for best\n", "| n=96 | held out |", "```toml\n[[selection.choice]]\nwhen", "- Confirmed by 1"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the Markdown has no %q:\n%s", part, out.String())
		}
	}
}

// The report names every reason against a table.
func TestProposalSentences(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*tune.Proposal)
		unit   string
		want   string
	}{
		"a loss on a held-out shape": {
			func(p *tune.Proposal) { p.Shapes[1].Loss = new(0.051) }, "seconds",
			"NOT CONFIRMED by 1 held-out shape: on n=96 the table's form is 5.1 % over the best, copy. Tune with more shapes near it.",
		},
		"a form that cannot take a held-out shape": {
			func(p *tune.Proposal) { p.Shapes[1].Loss, p.Shapes[1].Proposed.Cost, p.Speedup = nil, nil, nil }, "seconds",
			"NOT CONFIRMED by 1 held-out shape: copy has no measured form that takes n=96. Tune with that shape.",
		},
		"no speedup": {func(p *tune.Proposal) { p.Speedup = nil }, "seconds", "its speed is not known"},
		"nothing held out": {
			func(p *tune.Proposal) { p.Shapes[1].Holdout = false }, "seconds", "No shape was held out",
		},
		"forms that no shape selects": {
			func(p *tune.Proposal) { p.Dropped = []string{"copy+THREADS=64"} }, "seconds",
			"DROPPED: 1 form of the present table that no shape here selects (\"dropped\" in --json). Add shapes that do, or keep those lines.",
		},
		"a search that was cut off": {func(p *tune.Proposal) { p.Fewest = false }, "seconds", "cut off: fewer may do"},
		"a simulated cost":          {func(*tune.Proposal) {}, "cycles (simulated cost, no time)", "1.250x as good as the present table by cost in cycles"},
		"energy":                    {func(*tune.Proposal) {}, "joules", "1.250x as good as the present table by cost in mJ"},
	} {
		p := proposal()
		test.change(p)
		if got := strings.Join(ProposalSentences(p, test.unit), "\n"); !strings.Contains(got, test.want) {
			t.Errorf("%s: got\n%s\nwant %q", name, got, test.want)
		}
	}
	p := proposal()
	p.Shapes[0].Present.Cost, p.Shapes[1].Present.Cost, p.Shapes[1].Loss = nil, nil, nil
	if got := strings.Join(ProposalSentences(p, "seconds"), "\n"); strings.Contains(got, "Worst shape") {
		t.Errorf("a worst shape without a cost:\n%s", got)
	}
	table := proposalTable(p, "seconds")
	if rows := table.Rows; len(table.Columns) != len(rows[0]) || rows[1][5].String() != "-" || rows[0][2].String() != "-" {
		t.Errorf("got %q", rows)
	}
}

func TestEffects(t *testing.T) {
	t.Parallel()
	effects := []tune.KnobEffect{{Knob: "THREADS", Layer: spec.Micro, Spread: 1.25, Values: []tune.ValueEffect{
		{Value: rule.Int(64), Evaluations: 3, Best: new(1e-6), Median: new(1.5), Ratio: new(1.25), Neighbours: 2},
		{Value: rule.Int(128), Evaluations: 1, Failures: 1},
	}}}
	document := func(effects []tune.KnobEffect, unit string) *Document {
		one := someTuning()
		one.Effects, one.Unit = effects, unit
		return (&TuningStudy{Tuning: one}).Document()
	}
	var out strings.Builder
	if err := document(effects, "seconds").Terminal(&out, screen); err != nil {
		t.Fatal(err)
	}
	const want = `  knob         tried  failed  best us  median  neighbours  pairs
  THREADS=64       3       0        1   1.500       1.250      2
  THREADS=128      1       1        -       -           -      0
`
	if !strings.HasSuffix(out.String(), want) || !strings.Contains(out.String(), "\nEffect of each knob. ") {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	for range shownEffects {
		effects = append(effects, effects[0])
	}
	if err := document(effects, "seconds").Terminal(&out, screen); err != nil || !strings.Contains(out.String(), "1 more knobs") {
		t.Errorf("got %v\n%s\nwant a note on the ninth knob", err, out.String())
	}
	text := string(document(effects[:1], "cycles (simulated cost, no time)").Markdown())
	if !strings.Contains(text, "| best cycles |") || !strings.Contains(text, effectsNote) {
		t.Errorf("got\n%s", text)
	}
	if text := string(document(nil, "seconds").Markdown()); !strings.Contains(text, "No knob") {
		t.Errorf("got\n%s", text)
	}
	out.Reset()
	if err := document(nil, "seconds").Terminal(&out, screen); err != nil || strings.Contains(out.String(), "Effect of") {
		t.Errorf("got %v\n%s", err, out.String())
	}
}

func TestSelectionTuning(t *testing.T) {
	t.Parallel()
	tuned := &run.SelectionTuning{
		ID: "20261117-045527-best-ff5ab5", Selection: "best", Objective: run.ObjectiveCost, Unit: run.ObjectiveUnit(run.ObjectiveCost),
		Proposal: proposal(), Evaluations: 40, Searches: []*run.Tuning{{}}, Forms: []run.MeasuredForm{{}, {}}, Facts: device.Facts{Name: "PTX simulator"},
	}
	var out strings.Builder
	if err := SelectionTuning(tuned).Terminal(&out, screen); err != nil {
		t.Fatal(err)
	}
	const numbers = "1 of 2 shapes searched, with 40 evaluations in all; 2 forms measured on all of them, PTX simulator;"
	if got := out.String(); !strings.HasPrefix(got, numbers+"\n  simulated cost, no time.\n") || !strings.Contains(got, "Recorded as 20261117-045527-best-ff5ab5.\n") {
		t.Errorf("got\n%s", got)
	}
	if !strings.Contains(out.String(), "Paste these choices in place of those of best.") {
		t.Errorf("got\n%s", out.String())
	}
	same := proposal()
	same.PresentForms, same.Dropped = same.Forms, nil
	for i := range same.Shapes {
		same.Shapes[i].Proposed = same.Shapes[i].Present
	}
	out.Reset()
	err := SelectionTuning(&run.SelectionTuning{ID: tuned.ID, Selection: "best", Proposal: same}).Terminal(&out, screen)
	if err != nil || strings.Contains(out.String(), "Paste") || !strings.Contains(out.String(), "Every shape keeps its form: the present table of best need not change.") {
		t.Errorf("got %v\n%s", err, out.String())
	}
	files, err := Describe(tuned)
	text := files[run.TuningReport]
	if err != nil || !strings.Contains(string(text), "# A table for best\n") || !strings.Contains(string(text), numbers+" simulated cost, no time.\n") {
		t.Errorf("got %v\n%s", err, text)
	}
	tuned.ID, tuned.Objective = "", run.ObjectiveTime
	out.Reset()
	if err := SelectionTuning(tuned).Terminal(&out, screen); err != nil || strings.Contains(out.String(), "Recorded") || strings.Contains(out.String(), "simulated") {
		t.Errorf("got %v\n%s", err, out.String())
	}
}

// The plot of a search leaves out what the budget does not count.
func TestTuningConvergence(t *testing.T) {
	t.Parallel()
	tuned := someTuning()
	evaluations := []run.TuneEvaluation{
		{Variant: "copy", Cost: new(2e-6)},
		{Variant: "copy+UNUSED=1", SameAs: "copy", Cost: new(2e-6)},
		{Variant: "copy+THREADS=1", Failure: run.FailedCompile},
		{Variant: "copy+THREADS=256", Cost: new(1e-6)},
	}
	c := ConvergencePlot(tuned, evaluations)
	const want = "The best time, 1.000 us, was found at evaluation 3 of 3; default: 2.000 us. New bests after the first: 1. Failed evaluations: 1."
	if c.Finding() != want {
		t.Errorf("got %q, want %q", c.Finding(), want)
	}
	files, err := Describe(run.FinishedSearch{Tuning: tuned, Evaluations: evaluations})
	if err != nil || !strings.Contains(string(files["convergence.svg"]), want) || !strings.Contains(string(files[run.TuningReport]), "!["+want+"]") {
		t.Errorf("got %v\n%s", err, files[run.TuningReport])
	}
	tuned.Objective, tuned.Unit = run.ObjectiveCost, run.ObjectiveUnit(run.ObjectiveCost)
	if got := ConvergencePlot(tuned, evaluations).Objective; got != "simulated cost" {
		t.Errorf("the objective is %q", got)
	}
}
