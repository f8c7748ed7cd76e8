package document

import (
	"fmt"
	"slices"

	"attune/internal/run"
	"attune/internal/tune"
)

// Proposal is a proposed table of a selection: how it compares with the present one, each shape, and the
// choices as kernel.toml has them.
func Proposal(p *tune.Proposal, unit string) *Document {
	d := &Document{Title: say("A table for ", Span{Text: p.Selection})}
	for _, sentence := range ProposalSentences(p, unit) {
		d.Headline = append(d.Headline, say(sentence))
	}
	d.Brief = d.Headline
	choices := say("In place of the choices of ", Span{Text: p.Selection, Code: true}, " in kernel.toml:")
	d.Sections = []Section{
		{ID: "shapes", Title: say("Shapes"), Blocks: []Block{proposalTable(p, unit)}},
		{ID: "choices", Title: say("Choices"), Blocks: []Block{only(Long, choices), Code{Text: Span{Text: p.TOML()}, Language: "toml"}}},
	}
	return d
}

// SelectionTuning is a tuned selection.
func SelectionTuning(t *run.SelectionTuning) *Document {
	d := Proposal(t.Proposal, t.Unit)
	d.Brief = append([]Text{say(selectionNumbers(t))}, d.Headline...)
	d.Headline = append(d.Headline, say(selectionNumbers(t)))
	if t.ID != "" {
		next := fmt.Sprintf("Paste these choices in place of those of %s.", t.Selection)
		if keepsForms(t.Proposal) {
			next = fmt.Sprintf("Every shape keeps its form: the present table of %s need not change.", t.Selection)
		}
		d.Sections = append(d.Sections, Section{ID: "next", Title: say("Next steps"), Blocks: []Block{say(fmt.Sprintf("%s Recorded as %s.", next, t.ID))}})
	}
	return d
}

// keepsForms reports whether the proposed table gives every shape the form that it has.
func keepsForms(p *tune.Proposal) bool {
	return p.Forms == p.PresentForms && len(p.Dropped) == 0 &&
		!slices.ContainsFunc(p.Shapes, func(s tune.ProposedShape) bool { return s.Present.Variant != s.Proposed.Variant })
}

// selectionNumbers says what was searched and measured.
func selectionNumbers(t *run.SelectionTuning) string {
	text := fmt.Sprintf("%d of %s searched, with %s in all; %s measured on all of them, %s",
		len(t.Searches), number(len(t.Proposal.Shapes), "shape"), number(t.Evaluations, "evaluation"), number(len(t.Forms), "form"), t.Facts.Name)
	if t.Objective == run.ObjectiveCost {
		text += "; " + run.CostLabel
	}
	return text + "."
}

// ProposalSentences say how the proposed table compares with the present one, and whether the shapes
// that were held out confirm it.
func ProposalSentences(p *tune.Proposal, unit string) []string {
	held := 0
	for _, row := range p.Shapes {
		if row.Holdout {
			held++
		}
	}
	whole := "its speed is not known, because a table has no measured form for some shape"
	if p.Speedup != nil {
		whole = fmt.Sprintf("%.3fx as fast as the present table", *p.Speedup)
	}
	if name, _ := CostScale(unit); name != "us" && p.Speedup != nil {
		whole = fmt.Sprintf("%.3fx as good as the present table by cost in %s", *p.Speedup, name)
	}
	all := []string{fmt.Sprintf("%s: %s instead of %d, %s (geometric mean of %s).",
		p.Selection, number(p.Forms, "form"), p.PresentForms, whole, number(len(p.Shapes), "shape"))}
	if worst := p.WorstChange(); worst != nil {
		all = append(all, fmt.Sprintf("Worst shape against the present table: %s, %+.1f %%.",
			worst.Shape, 100*(*worst.Proposed.Cost / *worst.Present.Cost - 1)))
	}
	if len(p.Dropped) > 0 {
		all = append(all, fmt.Sprintf("DROPPED: %s of the present table that no shape here selects (\"dropped\" in --json). Add shapes that do, or keep those lines.",
			number(len(p.Dropped), "form")))
	}
	if !p.Fewest {
		all = append(all, "The search for the fewest forms was cut off: fewer may do.")
	}
	return append(all, holdoutSentence(p, held))
}

func holdoutSentence(p *tune.Proposal, held int) string {
	worst, heldOut := p.WorstLoss(true), number(held, "held-out shape")
	switch {
	case worst == nil:
		return "No shape was held out: the table is not tested on shapes that it was not derived from. Give more shapes, or --holdout."
	case worst.Loss == nil:
		return fmt.Sprintf("NOT CONFIRMED by %s: %s has no measured form that takes %s. Tune with that shape.",
			heldOut, worst.Proposed.Variant, worst.Shape)
	case !p.Holds():
		return fmt.Sprintf("NOT CONFIRMED by %s: on %s the table's form is %.1f %% over the best, %s. Tune with more shapes near it.",
			heldOut, worst.Shape, 100**worst.Loss, worst.Best.Variant)
	}
	return fmt.Sprintf("Confirmed by %s: at most %.1f %% over the best form measured, on %s.", heldOut, 100**worst.Loss, worst.Shape)
}

// number is a count with its noun.
func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// proposalTable has a row for each shape.
func proposalTable(p *tune.Proposal, unit string) Table {
	name, _ := CostScale(unit)
	t := Table{Columns: columns("shape", "use", "present "+name, "proposed "+name, "best "+name, "loss")}
	t.Columns[1].Bare = true
	for _, row := range p.Shapes {
		kind, loss := "tuned", missing.Text
		if row.Holdout {
			kind = "held out"
		}
		if row.Loss != nil {
			loss = fmt.Sprintf("%.1f %%", 100**row.Loss)
		}
		t.Rows = append(t.Rows, []Text{
			say(row.Shape), say(kind), say(costText(row.Present.Cost, unit)), say(costText(row.Proposed.Cost, unit)), say(costText(row.Best.Cost, unit)), say(loss),
		})
	}
	return t
}
