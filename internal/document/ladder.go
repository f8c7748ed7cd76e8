package document

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"

	"attune/internal/catalog"
	"attune/internal/run"
	"attune/internal/terminal"
)

// Ladder writes runs as a table, in the given order. A row has the headline time, the speedup over
// the parent and over the first run on the same shape. Below it are the change from the parent, and
// the reason if the verdict is not merge. ids has the printed id of a run.
func Ladder(w io.Writer, runs []*run.Run, champions catalog.ChampionRuns, ids func(id string) string, s terminal.Screen) error {
	t := terminal.Table{Columns: []terminal.Column{
		{Name: "stage"},
		{Name: "parent", Optional: 3},
		{Name: "shape", Optional: 2},
		{Name: "time", Keep: true},
		{Name: "over parent", Keep: true},
		{Name: "required", Optional: 1},
		{Name: "over " + runs[0].Variant, Keep: true, Optional: 4},
		{Name: "registers", Optional: 6},
		{Name: "shared", Optional: 5},
		{Name: "verdict", Keep: true, Colour: verdictColour},
		{Name: "run", Keep: true},
	}}
	names := newShortNames()
	for _, r := range runs {
		c := ladderCells(r, runs[0])
		t.Rows = append(t.Rows, []string{
			r.Variant, names.add(c.parent), c.shape, c.time, c.speedup, c.required, c.overFirst, c.registers, c.shared, string(r.Verdict), ids(r.ID),
		})
		var notes []string
		if arch := champions[r.ID]; arch != "" {
			notes = append(notes, "champion of "+arch)
		}
		if c.change != none {
			notes = append(notes, c.change)
		}
		if c.why != none {
			notes = append(notes, c.why)
		}
		t.Notes = append(t.Notes, notes)
	}
	var out bytes.Buffer
	t.Write(&out, s)
	names.write(&out, s, out.String())
	s.Paragraph(&out, "", "over parent: geometric mean over the benchmark shapes; the time is that of the shape named", 2)
	writeVerdictNote(&out, s, columnOf(t.Rows, 9))
	_, err := w.Write(out.Bytes())
	return err
}

// LadderMarkdown writes the ladder as a Markdown table.
func LadderMarkdown(w io.Writer, runs []*run.Run, champions catalog.ChampionRuns) error {
	header := []string{
		"stage", "parent", "change", "shape", "time", "over parent", "required", "over " + runs[0].Variant,
		"registers", "shared", "verdict", "run", "why",
	}
	var rows [][]string
	for _, r := range runs {
		c := ladderCells(r, runs[0])
		verdict := string(r.Verdict)
		if arch := champions[r.ID]; arch != "" {
			verdict += ", champion of " + arch
		}
		rows = append(rows, []string{
			r.Variant, c.parent, c.change, c.shape, c.time, c.speedup, c.required, c.overFirst, c.registers, c.shared, verdict, r.ID, c.why,
		})
	}
	return writeMarkdownTable(w, header, rows, verdictNote(columnOf(rows, 10)))
}

// none stands for a figure that a run does not have.
const none = "-"

// ladderRow has the cells of a run in the ladder.
type ladderRow struct {
	parent, change, shape, time, speedup, required, overFirst, registers, shared, why string
}

func ladderCells(r, first *run.Run) ladderRow {
	c := ladderRow{
		parent: cmp.Or(r.Parent, none), change: cmp.Or(r.Change, none), why: cmp.Or(shortened(r.Cause()), none), time: notMeasured,
		shape: none, speedup: none, required: none, overFirst: none, registers: none, shared: none,
	}
	if r.Build != nil {
		c.registers, c.shared = fmt.Sprint(r.Build.Resources.Registers), fmt.Sprint(r.Build.Resources.SharedBytes())
	}
	if r.Parent != "" {
		c.required = fmt.Sprintf("%.2fx", r.RequiredSpeedup)
	}
	if r.Headline != nil {
		c.shape, c.time = r.Headline.Shape, fmt.Sprintf("%.2f us", r.Headline.P50US)
		if r.Speedup != nil {
			c.speedup = fmt.Sprintf("%.2fx", r.Speedup.Ratio)
		}
		if first.Headline != nil && first.Headline.Shape == r.Headline.Shape {
			c.overFirst = fmt.Sprintf("%.1fx", first.Headline.P50US/r.Headline.P50US)
		}
	}
	if len(r.Parts) > 0 {
		var variants []string
		for _, p := range r.Parts {
			variants = append(variants, p.Variant)
		}
		c.change = strings.Join(variants, ", ") + " by shape"
	}
	return c
}

// shortened limits a line to the width of a cell. The record has all of it.
func shortened(line string) string {
	const most = 120
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return line
}
