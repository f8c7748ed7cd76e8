package report

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"attune/internal/run"
)

// Champions maps the id of a run to the architecture whose champion was promoted on it.
type Champions map[string]string

// Ladder writes runs as a table, in the given order. A row has the change from the parent, the
// headline time, the speedup over the parent, the speedup over the first run on the same shape, and
// the reason if the verdict is not merge.
func Ladder(w io.Writer, runs []*run.Run, champions Champions, markdown bool) error {
	first := runs[0]
	header := []string{
		"stage", "parent", "change", "shape", "time", "over parent", "required", "over " + first.Variant,
		"registers", "shared", "verdict", "run", "why",
	}
	var rows [][]string
	for _, r := range runs {
		rows = append(rows, ladderRow(r, first, champions))
	}
	return errors.Join(table(w, header, rows, markdown), verdictNote(w, rows, 10))
}

func ladderRow(r, first *run.Run, champions Champions) []string {
	const none = "-"
	known := func(text string) string {
		if text == "" {
			return none
		}
		return text
	}
	shape, time, speedup, required, overFirst, registers, shared := none, notMeasured, none, none, none, none, none
	if r.Build != nil {
		registers, shared = fmt.Sprint(r.Build.Resources.Registers), fmt.Sprint(r.Build.Resources.SharedBytes())
	}
	if r.Parent != "" {
		required = fmt.Sprintf("%.2fx", r.RequiredSpeedup)
	}
	if r.Headline != nil {
		shape, time = r.Headline.Shape, fmt.Sprintf("%.2f us", r.Headline.P50US)
		if r.Speedup != nil {
			speedup = fmt.Sprintf("%.2fx", r.Speedup.Ratio)
		}
		if first.Headline != nil && first.Headline.Shape == r.Headline.Shape {
			overFirst = fmt.Sprintf("%.1fx", first.Headline.P50US/r.Headline.P50US)
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
		r.Variant, known(r.Parent), known(change), shape, time, speedup, required, overFirst, registers, shared, verdict,
		r.ID, known(shortened(r.Cause())),
	}
}

// shortened limits a line to the width of a cell. The record has all of it.
func shortened(line string) string {
	const most = 120
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return line
}
