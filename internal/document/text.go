package document

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"attune/internal/catalog"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/terminal"
)

// RunText writes one run for people: a headline, the gates with their reasons, and the figures.
func RunText(w io.Writer, r *run.Run, s terminal.Screen) error {
	return (&RunStudy{Run: r}).Document().Terminal(w, s)
}

// allowedTexts are the findings of the audit that kernel.toml allows.
func allowedTexts(r *run.Run) []string {
	var texts []string
	for _, f := range r.AllowedFindings() {
		texts = append(texts, f.String())
	}
	return texts
}

// plainTable is a table with all columns.
func plainTable(header []string, rows [][]string) terminal.Table {
	var columns []terminal.Column
	for _, name := range header {
		columns = append(columns, terminal.Column{Name: name, Keep: true})
	}
	return terminal.Table{Columns: columns, Rows: rows}
}

// measuredAsText names the results that a run reuses.
func measuredAsText(as *run.MeasuredAs) string {
	what := "outputs"
	if as.Times {
		what = "outputs and times"
	}
	return fmt.Sprintf("%s, the same machine code: %s are those of run %s", as.Variant, what, as.Run)
}

// statusWord is the outcome of a gate in words.
func statusWord(s gate.Status) string { return strings.ReplaceAll(string(s), "-", " ") }

func correctnessLine(r *run.Run) string {
	if len(r.Correctness) == 0 {
		return ""
	}
	passed := 0
	for _, c := range r.Correctness {
		if c.Pass {
			passed++
		}
	}
	all := r.Requested.Problems
	if all == 0 { // an old record, with normal inputs only
		all = len(r.Requested.Shapes) * len(r.Requested.Seeds)
	}
	line := fmt.Sprintf("%d of %d correct against %s", passed, all, referenceText(r))
	if worst := worstLSE(r); worst != nil {
		line += fmt.Sprintf(", lse error %.2g of %.2g allowed", worst.LSE.MaxErr, worst.Limits.LSE.MaxErr)
	}
	if r.Requested.Sanitizer != "" {
		line += ", under compute-sanitizer " + r.Requested.Sanitizer
	}
	if s := r.Requested.Simulation; s != nil {
		line += ", " + simulationText(s, r.Correctness)
	}
	return line
}

// worstLSE is the output whose log-sum-exp comes closest to its limit, or nil if there is none.
func worstLSE(r *run.Run) *run.Correctness {
	var worst *run.Correctness
	for i := range r.Correctness {
		c := &r.Correctness[i]
		if c.LSE == nil || c.Limits.LSE == nil {
			continue
		}
		if worst == nil || c.LSE.MaxErr*worst.Limits.LSE.MaxErr > worst.LSE.MaxErr*c.Limits.LSE.MaxErr {
			worst = c
		}
	}
	return worst
}

func simulationText(s *run.Simulation, rows []run.Correctness) string {
	text := "all checkers on"
	if !s.Checks {
		text = "checkers off"
	}
	if s.Schedules > 1 {
		under := ", under %d schedules"
		if slices.ContainsFunc(rows, func(c run.Correctness) bool { return s.Automatic && c.Schedules < s.Schedules }) {
			under = ", under up to %d schedules"
		}
		text += fmt.Sprintf(under, s.Schedules)
	}
	if s.Tensor != run.ExactTensor {
		text += ", tensor cores in " + s.Tensor
	}
	if s.Strict {
		text += ", strict"
	}
	return text
}

// wideHistory is the width of a screen that has room for all columns of the history.
const wideHistory = 120

// History writes runs as a table, one line each, in the given order. ids has the printed id of a run.
// A narrow screen has short dates and variants, so that dates and shapes fit.
func History(w io.Writer, entries []ledger.Entry, champions catalog.ChampionRuns, ids func(id string) string, s terminal.Screen) error {
	names, date, layout := newShortNames(), "date", "2006-01-02 15:04"
	if s.Width < wideHistory {
		names.longest = narrowVariantName
		if year, one := oneYear(entries); one {
			date, layout = fmt.Sprintf("date (%d)", year), "01-02 15:04"
		}
	}
	t := terminal.Table{Columns: []terminal.Column{
		{Name: "run"},
		{Name: date, Keep: true, Optional: 1},
		{Name: "variant", Keep: true},
		{Name: "verdict", Keep: true, Wrap: true, Colour: verdictColour},
		{Name: "device", Optional: 5},
		{Name: "shape", Optional: 2},
		{Name: "p50 us", Keep: true},
		{Name: "speedup", Keep: true, Optional: 3},
		{Name: "champion", Keep: true, Optional: 4},
	}}
	marked := slices.ContainsFunc(entries, func(e ledger.Entry) bool { return champions[e.ID] != "" })
	for _, e := range entries {
		row := append([]string{ids(e.ID), e.Time.Format(layout), names.add(e.Variant), e.Verdict}, historyFigures(e)...)
		t.Rows = append(t.Rows, append(row, champions[e.ID]))
	}
	if !marked {
		last := len(t.Columns) - 1
		t.Columns = t.Columns[:last]
	}
	verdicts := columnOf(t.Rows, 3)
	if severalKernels(entries) {
		const at = 2
		t.Columns = slices.Insert(t.Columns, at, terminal.Column{Name: "kernel", Keep: true})
		for i, e := range entries {
			t.Rows[i] = slices.Insert(t.Rows[i], at, e.Kernel)
		}
	}
	var out bytes.Buffer
	t.Write(&out, s)
	names.write(&out, s, out.String())
	writeVerdictNote(&out, s, verdicts)
	_, err := w.Write(out.Bytes())
	return err
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

// historyFigures are the device, the shape, the time and the speedup of a run.
func historyFigures(e ledger.Entry) []string {
	figures := []string{e.Device, "-", "-", "-"}
	if e.Headline.P50US != nil {
		figures[1], figures[2] = e.Headline.Shape, fmt.Sprintf("%.2f", *e.Headline.P50US)
	}
	if e.Headline.ParentRatio != nil {
		figures[3] = fmt.Sprintf("%.3fx", *e.Headline.ParentRatio)
	}
	return figures
}

// HistoryMarkdown writes runs as a Markdown table, in the given order.
func HistoryMarkdown(w io.Writer, entries []ledger.Entry, champions catalog.ChampionRuns) error {
	header := []string{"run", "variant", "device", "verdict", "shape", "p50 us", "over parent"}
	marked := slices.ContainsFunc(entries, func(e ledger.Entry) bool { return champions[e.ID] != "" })
	if marked {
		header = append(header, "champion")
	}
	several, verdict := severalKernels(entries), 3
	if several {
		header, verdict = slices.Insert(header, 1, "kernel"), verdict+1
	}
	var rows [][]string
	for _, e := range entries {
		figures := historyFigures(e)
		row := append([]string{e.ID, e.Variant, figures[0], e.Verdict}, figures[1:]...)
		if marked {
			row = append(row, champions[e.ID])
		}
		if several {
			row = slices.Insert(row, 1, e.Kernel)
		}
		rows = append(rows, row)
	}
	return writeMarkdownTable(w, header, rows, verdictNote(columnOf(rows, verdict)))
}

// writeMarkdownTable writes a table and, if it is not empty, a note below it.
func writeMarkdownTable(w io.Writer, header []string, rows [][]string, note string) error {
	var out bytes.Buffer
	stringTable(&out, header, rows)
	if note != "" {
		fmt.Fprintf(&out, "\n%s\n", note)
	}
	_, err := w.Write(out.Bytes())
	return err
}
