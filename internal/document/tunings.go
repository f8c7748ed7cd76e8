package document

import (
	"bytes"
	"fmt"
	"io"

	"attune/internal/catalog"
	"attune/internal/terminal"
)

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
func Tunings(w io.Writer, entries []catalog.TuningEntry, ids func(id string) string, s terminal.Screen) error {
	t := terminal.Table{Columns: []terminal.Column{
		{Name: "tuning"},
		{Name: "date", Keep: true, Optional: 3},
		{Name: "from", Keep: true},
		{Name: "best", Keep: true},
		{Name: "objective", Keep: true, Optional: 2},
		{Name: "ratio", Keep: true},
		{Name: "evaluations", Keep: true, Optional: 1},
	}}
	names := newShortNames()
	for _, e := range entries {
		row := tuningCells(e)
		row[0] = ids(e.ID)
		if e.Selection == "" {
			row[2] = names.add(row[2])
		}
		if e.Best != e.Default {
			row[3] = names.add(row[3])
		}
		t.Rows = append(t.Rows, row)
	}
	var out bytes.Buffer
	t.Write(&out, s)
	names.write(&out, s, out.String())
	_, err := w.Write(out.Bytes())
	return err
}

// TuningsMarkdown lists finished searches as a Markdown table.
func TuningsMarkdown(w io.Writer, entries []catalog.TuningEntry) error {
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, tuningCells(e))
	}
	return writeMarkdownTable(w, []string{"tuning", "date", "from", "best", "objective", "ratio", "evaluations"}, rows, "")
}
