package report

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"attune/internal/run"
	"attune/internal/terminal"
)

// TuningEntry is a finished search in a list.
type TuningEntry struct {
	ID          string    `json:"id"`
	Time        time.Time `json:"time"`
	Kernel      string    `json:"kernel"`
	Stage       string    `json:"stage,omitempty"`     // of a search from one variant
	Selection   string    `json:"selection,omitempty"` // of a tuned selection
	Device      string    `json:"device"`
	Objective   string    `json:"objective"`
	Evaluations int       `json:"evaluations"`
	Default     string    `json:"default,omitempty"`
	Best        string    `json:"best,omitempty"` // the default if none is better beyond doubt
	Ratio       *float64  `json:"ratio,omitempty"`
}

// NewTuningEntry describes the search of a tuning.json.
func NewTuningEntry(document []byte) (TuningEntry, error) {
	s, err := run.DecodeSelectionTuning(document)
	if err != nil {
		return TuningEntry{}, err
	}
	if s != nil {
		return TuningEntry{
			ID: s.ID, Time: s.Time, Kernel: s.Kernel, Selection: s.Selection, Device: s.Facts.Kind, Objective: s.Objective,
			Evaluations: s.Evaluations, Ratio: s.Proposal.Speedup,
		}, nil
	}
	t, err := run.DecodeTuning(document)
	if err != nil {
		return TuningEntry{}, err
	}
	e := TuningEntry{
		ID: t.ID, Time: t.Time, Kernel: t.Kernel, Stage: t.Stage, Device: t.Facts.Kind, Objective: t.Objective,
		Evaluations: t.Evaluations, Default: t.Default.Variant, Best: t.Best.Name(),
	}
	if t.Best.Ratio != nil {
		e.Ratio = &t.Best.Ratio.Ratio
	}
	return e, nil
}

// cells are the columns of the list.
func (e TuningEntry) cells() []string {
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
func Tunings(w io.Writer, entries []TuningEntry, ids func(id string) string, s terminal.Screen) error {
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
		row := e.cells()
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
func TuningsMarkdown(w io.Writer, entries []TuningEntry) error {
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, e.cells())
	}
	return writeMarkdownTable(w, []string{"tuning", "date", "from", "best", "objective", "ratio", "evaluations"}, rows, "")
}
