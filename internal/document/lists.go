package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"attune/internal/catalog"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/terminal"
)

// Ladder is a table of runs, in the given order. A row has the headline time, the speedup over the parent
// and over the first run on the same shape. Below it, on a terminal, are the change from the parent, and
// the reason if the verdict is not merge. ids has the printed id of a run.
func Ladder(runs []*run.Run, champions catalog.ChampionRuns, ids func(id string) string) *Document {
	t := Table{Columns: []Column{
		named("stage", Column{}),
		named("parent", Column{Optional: 3}),
		named("change", Column{Depth: Long}),
		named("shape", Column{Optional: 2}),
		named("time", Column{Keep: true}),
		named("over parent", Column{Keep: true}),
		named("required", Column{Optional: 1}),
		{Name: say("over ", runs[0].Variant), Keep: true, Optional: 4},
		named("registers", Column{Optional: 6}),
		named("shared", Column{Optional: 5}),
		named("verdict", Column{Keep: true, Colour: verdictColour}),
		named("champion", Column{Depth: Long}),
		named("run", Column{Keep: true, Names: true, Depth: Brief}),
		named("run", Column{Depth: Long}),
		named("why", Column{Depth: Long}),
	}}
	var verdicts []string
	for _, r := range runs {
		from := runRecord(r.ID)
		c := ladderCells(r, runs[0])
		parent := cell(missing)
		if r.Parent != "" {
			parent = cell(from.variant(r.Parent, "parent"))
		}
		verdicts = append(verdicts, string(r.Verdict))
		t.Rows = append(t.Rows, []Text{
			say(r.Variant), parent, say(c.change), say(c.shape), say(c.time), say(c.speedup), say(c.required), say(c.overFirst),
			say(c.registers), say(c.shared), say(verdictWord(r)), say(cmp.Or(champions[r.ID], none)), say(ids(r.ID)), say(r.ID), say(c.why),
		})
		var notes []Text
		if arch := champions[r.ID]; arch != "" {
			notes = append(notes, say("champion of ", arch))
		}
		for _, text := range []string{c.change, c.why} {
			if text != none {
				notes = append(notes, Text{{Text: text}})
			}
		}
		t.Notes = append(t.Notes, notes)
	}
	blocks := []Block{t, say("over parent: geometric mean over the benchmark shapes; the time is that of the shape named")}
	return listDocument(append(blocks, verdictNote(verdicts)...)...)
}

// listDocument is a table with its notes, without headings.
func listDocument(blocks ...Block) *Document {
	return &Document{Brief: []Text{}, Sections: []Section{{Blocks: blocks}}}
}

// none stands for a figure that a run does not have.
const none = "-"

// ladderRow has the cells of a run in the ladder.
type ladderRow struct {
	change, shape, time, speedup, required, overFirst, registers, shared, why string
}

func ladderCells(r, first *run.Run) ladderRow {
	c := ladderRow{
		change: cmp.Or(r.Change, none), why: cmp.Or(shortened(r.Cause()), none), time: notMeasured,
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

// History is a table of runs, one row each, in the given order. ids has the printed id of a run. A narrow
// screen has short dates and variants, so that dates and shapes fit.
func History(entries []ledger.Entry, champions catalog.ChampionRuns, ids func(id string) string, s terminal.Screen) *Document {
	date, layout := "date", "2006-01-02 15:04"
	if s.Width < wideScreen {
		if year, one := oneYear(entries); one {
			date, layout = fmt.Sprintf("date (%d)", year), "01-02 15:04"
		}
	}
	t := Table{Columns: []Column{
		named("run", Column{Names: true, Depth: Brief}),
		named("run", Column{Depth: Long}),
		named(date, Column{Keep: true, Optional: 1, Depth: Brief}),
		named("kernel", Column{Keep: true}),
		named("variant", Column{Keep: true}),
		named("verdict", Column{Keep: true, Wrap: true, Colour: verdictColour}),
		named("device", Column{Optional: 5}),
		named("shape", Column{Optional: 2}),
		named("p50 us", Column{Keep: true}),
		named("speedup", Column{Keep: true, Optional: 3}),
		named("champion", Column{Keep: true, Optional: 4}),
	}}
	var verdicts []string
	for _, e := range entries {
		from, shape, time, speedup := runRecord(e.ID), cell(missing), cell(missing), cell(missing)
		if e.Headline.P50US != nil {
			shape, time = say(e.Headline.Shape), cell(from.figure("%.2f", *e.Headline.P50US, "headline.p50_us"))
		}
		if e.Headline.ParentRatio != nil {
			speedup = cell(from.figure("%.3fx", *e.Headline.ParentRatio, "headline.parent_ratio"))
		}
		verdicts = append(verdicts, e.Verdict)
		t.Rows = append(t.Rows, []Text{
			say(ids(e.ID)), say(e.ID), say(e.Time.Format(layout)), say(e.Kernel), cell(from.variant(e.Variant, "variant")), say(e.Verdict), say(e.Device),
			shape, time, speedup, say(champions[e.ID]),
		})
	}
	const kernel, champion = 3, 10
	marked := slices.ContainsFunc(entries, func(e ledger.Entry) bool { return champions[e.ID] != "" })
	several := severalKernels(entries)
	t = t.keep(func(column int) bool { return (column != kernel || several) && (column != champion || marked) })
	d := listDocument(append([]Block{t}, verdictNote(verdicts)...)...)
	d.Narrow = true
	return d
}

// oneYear returns the year of the runs, if it is the same of all.
func oneYear(entries []ledger.Entry) (year int, one bool) {
	if len(entries) == 0 {
		return 0, false
	}
	year = entries[0].Time.Year()
	return year, !slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.Time.Year() != year })
}

// severalKernels reports whether the runs are of more than one kernel, so that a variant alone does
// not name its kernel.
func severalKernels(entries []ledger.Entry) bool {
	return slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.Kernel != entries[0].Kernel })
}

// tuningCells are the columns of the list.
func tuningCells(e catalog.TuningEntry) []string {
	what, best := e.Default, e.Best
	switch {
	case e.Selection != "":
		what, best = "selection "+e.Selection, "a table"
	case e.Best == e.Default:
		best = "the default"
	}
	ratio := "-"
	if e.Ratio != nil {
		ratio = fmt.Sprintf("%.3fx", *e.Ratio)
	}
	return []string{e.ID, e.Time.Format("2006-01-02 15:04"), what, best, e.Objective, ratio, fmt.Sprint(e.Evaluations)}
}

// Tunings lists finished searches. ids has the printed id of each.
func Tunings(entries []catalog.TuningEntry, ids func(id string) string) *Document {
	t := Table{Columns: []Column{
		named("tuning", Column{Names: true, Depth: Brief}),
		named("tuning", Column{Depth: Long}),
		named("date", Column{Keep: true, Optional: 3}),
		named("from", Column{Keep: true}),
		named("best", Column{Keep: true}),
		named("objective", Column{Keep: true, Optional: 2}),
		named("ratio", Column{Keep: true}),
		named("evaluations", Column{Keep: true, Optional: 1}),
	}}
	for _, e := range entries {
		row := []Text{say(ids(e.ID))}
		for i, text := range tuningCells(e) {
			const from, best = 2, 3
			variant := i == from && e.Selection == "" || i == best && e.Best != e.Default
			row = append(row, cell(Span{Text: text, Variant: variant}))
		}
		t.Rows = append(t.Rows, row)
	}
	return listDocument(t)
}
