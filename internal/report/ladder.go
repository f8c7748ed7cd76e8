package report

import (
	"fmt"
	"io"
	"strings"

	"attune/internal/run"
)

// Champions says of which architecture a run's variant is the champion by this run, by the run's id.
type Champions map[string]string

// Ladder writes runs, in the order given, as a ladder: what each changes in its parent, the time on its headline shape, the speedup over
// the parent as it was measured in turns with it, how far it is from the first run of the list on the same shape, and why it is no merge.
func Ladder(w io.Writer, runs []*run.Run, champions Champions, markdown bool) error {
	first := runs[0]
	header := []string{
		"stage", "parent", "change", "shape", "time", "over parent", "needed", "over " + first.Variant, "registers", "shared", "verdict", "run", "why",
	}
	var rows [][]string
	for _, r := range runs {
		rows = append(rows, ladderRow(r, first, champions))
	}
	return table(w, header, rows, markdown)
}

func ladderRow(r, first *run.Run, champions Champions) []string {
	const none = "-"
	known := func(text string) string {
		if text == "" {
			return none
		}
		return text
	}
	shape, time, speedup, needed, since, registers, shared := none, "not measured", none, none, none, none, none
	if r.Build != nil {
		registers, shared = fmt.Sprint(r.Build.Resources.Registers), fmt.Sprint(r.Build.Resources.SharedBytes())
	}
	if r.Parent != "" {
		needed = fmt.Sprintf("%.2fx", r.RequiredSpeedup)
	}
	if r.Headline != nil {
		shape, time = r.Headline.Shape, fmt.Sprintf("%.2f us", r.Headline.P50US)
		if r.Speedup != nil {
			speedup = fmt.Sprintf("%.2fx", r.Speedup.Ratio)
		}
		if first.Headline != nil && first.Headline.Shape == r.Headline.Shape {
			since = fmt.Sprintf("%.1fx", first.Headline.P50US/r.Headline.P50US)
		}
	}
	change := r.Change
	if len(r.Parts) > 0 {
		var variants []string
		for _, p := range r.Parts {
			variants = append(variants, p.Variant)
		}
		change = strings.Join(variants, ", ") + " by shape"
	}
	verdict := string(r.Verdict)
	if arch := champions[r.ID]; arch != "" {
		verdict += ", champion of " + arch
	}
	return []string{
		r.Variant, known(r.Parent), known(change), shape, time, speedup, needed, since, registers, shared, verdict, r.ID, known(shortened(r.Cause())),
	}
}

// shortened keeps a line within a cell; the record has it whole.
func shortened(line string) string {
	const most = 120
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return line
}
