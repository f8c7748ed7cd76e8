package document

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"attune/internal/run"
	"attune/internal/terminal"
	"attune/internal/tune"
)

// Proposal writes a proposed table of a selection for people: how it compares with the present one,
// each shape, and the choices as kernel.toml has them.
func Proposal(w io.Writer, p *tune.Proposal, unit string, s terminal.Screen) error {
	out := &strings.Builder{}
	for _, sentence := range ProposalSentences(p, unit) {
		s.Paragraph(out, "", sentence, 2)
	}
	out.WriteString("\n")
	header, rows := proposalTable(p, unit)
	t := plainTable(header, rows)
	t.Write(out, s)
	fmt.Fprintf(out, "\n%s", p.TOML())
	_, err := io.WriteString(w, out.String())
	return err
}

// SelectionTuning writes a tuned selection for people.
func SelectionTuning(w io.Writer, t *run.SelectionTuning, s terminal.Screen) error {
	out := &strings.Builder{}
	s.Paragraph(out, "", selectionNumbers(t), 2)
	if err := Proposal(out, t.Proposal, t.Unit, s); err != nil {
		return err
	}
	if t.ID != "" {
		out.WriteString("\n")
		next := fmt.Sprintf("Paste these choices in place of those of %s.", t.Selection)
		if keepsForms(t.Proposal) {
			next = fmt.Sprintf("Every shape keeps its form: the present table of %s need not change.", t.Selection)
		}
		s.Paragraph(out, "", fmt.Sprintf("%s Recorded as %s.", next, t.ID), 2)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// keepsForms reports whether the proposed table gives every shape the form that it has.
func keepsForms(p *tune.Proposal) bool {
	return p.Forms == p.PresentForms && len(p.Dropped) == 0 &&
		!slices.ContainsFunc(p.Shapes, func(s tune.ProposedShape) bool { return s.Present.Variant != s.Proposed.Variant })
}

// SelectionTuningMarkdown is report.md of a tuned selection.
func SelectionTuningMarkdown(t *run.SelectionTuning) ([]byte, error) {
	var out bytes.Buffer
	if err := ProposalMarkdown(&out, t.Proposal, t.Unit); err != nil {
		return nil, err
	}
	fmt.Fprintf(&out, "\n%s\n", selectionNumbers(t))
	return out.Bytes(), nil
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

// ProposalMarkdown writes the same as Markdown.
func ProposalMarkdown(w io.Writer, p *tune.Proposal, unit string) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "# A table for %s\n\n", p.Selection)
	for _, sentence := range ProposalSentences(p, unit) {
		fmt.Fprintf(out, "- %s\n", sentence)
	}
	out.WriteString("\n")
	header, rows := proposalTable(p, unit)
	if err := writeMarkdownTable(out, header, rows, ""); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nIn place of the choices of %s in kernel.toml:\n\n```toml\n%s```\n", p.Selection, p.TOML())
	_, err := io.WriteString(w, out.String())
	return err
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
func proposalTable(p *tune.Proposal, unit string) (header []string, rows [][]string) {
	name, _ := CostScale(unit)
	header = []string{"shape", "", "present " + name, "proposed " + name, "best " + name, "loss"}
	for _, row := range p.Shapes {
		kind, loss := "tuned", "-"
		if row.Holdout {
			kind = "held out"
		}
		if row.Loss != nil {
			loss = fmt.Sprintf("%.1f %%", 100**row.Loss)
		}
		rows = append(rows, []string{
			row.Shape, kind, costText(row.Present.Cost, unit), costText(row.Proposed.Cost, unit), costText(row.Best.Cost, unit), loss,
		})
	}
	return header, rows
}
