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
	"attune/internal/tensor"
	"attune/internal/terminal"
)

// Text writes one run for people: a headline, the gates with their reasons, and the figures.
func RunText(w io.Writer, r *run.Run, s terminal.Screen) error {
	out := &strings.Builder{}
	textHeadline(out, r, s)
	gateLine(out, s, "resources", r.Gates.Resources, resourceLine(r), r.Reasons.Resources)
	gateLine(out, s, "correctness", r.Gates.Correctness, correctnessLine(r), r.Reasons.Correctness)
	gateLine(out, s, "performance", r.Gates.Performance, "", r.Reasons.Performance)
	gateLine(out, s, "profile", r.Gates.Profile, "", r.Reasons.Profile)
	if r.MeasuredAs != nil {
		field(out, s, "measured as", measuredAsText(r.MeasuredAs))
	}
	fields(out, s, "allowed", allowedTexts(r))
	fields(out, s, "notes", r.Notes())
	textParts(out, r, s)
	if r.Reproduces != "" {
		field(out, s, "reproduces", r.Reproduces)
	}
	if r.Problem != nil && r.Kernel != "" {
		field(out, s, "kernel", r.Kernel)
	}
	if r.Problem != nil && len(r.Problem.Facts) > 0 {
		field(out, s, "reference", problemText(r.Problem))
	}
	if r.ID != "" {
		field(out, s, "run", r.ID)
	}
	shapes := newShapeLabels(r)
	shapes.write(out, s)
	if len(r.Correctness) > 0 && len(r.Parts) == 0 { // the parts of a selection have their own
		out.WriteString("\ncorrectness\n")
		table := textTable(correctnessColumns, textCorrectnessRows(r))
		if r.Problem != nil {
			table = declaredTable(r, shapes)
		}
		table.Write(out, s)
	}
	if len(r.Performance) > 0 {
		textPerformance(out, r, shapes, s)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// textHeadline writes the variant, the verdict, the speedup, the device and the date.
func textHeadline(w *strings.Builder, r *run.Run, s terminal.Screen) {
	names := newShortNames(r.Variant)
	verdict := string(r.Verdict)
	text, named := strings.CutPrefix(verdictText(r), verdict)
	if !named { // it is at the end of the text, which may be long
		verdict = ""
	}
	parts := []string{text} // the meaning of the verdict, if it needs one
	if r.Speedup != nil {
		parts = append(parts, fmt.Sprintf(", %.3fx %s", r.Speedup.Ratio, names.add(r.Parent)))
		if r.RequiredSpeedup > 0 {
			parts = append(parts, fmt.Sprintf(" (%.2fx required)", r.RequiredSpeedup))
		}
	}
	s.Paragraph(w, names.of(r.Variant)+": "+s.Paint(verdictColour(string(r.Verdict)), verdict), strings.Join(parts, ""), 2)
	s.Paragraph(w, "", fmt.Sprintf("%s, %s, %s", recordDevice(r), r.Arch, r.Time.UTC().Format("2006-01-02 15:04:05")), 2)
	names.write(w, s, w.String())
	fmt.Fprintln(w)
}

// fieldWidth is the width of the names before gates and other fields of a run.
const fieldWidth = 12

// field writes a named text.
func field(w io.Writer, s terminal.Screen, name, text string) {
	margin := fmt.Sprintf("  %-*s ", fieldWidth, name)
	s.Paragraph(w, margin, text, len(margin)+2)
}

// fields writes texts under one name.
func fields(w io.Writer, s terminal.Screen, name string, texts []string) {
	for _, text := range texts {
		field(w, s, name, text)
		name = ""
	}
}

// allowedTexts are the findings of the audit that kernel.toml allows.
func allowedTexts(r *run.Run) []string {
	var texts []string
	for _, f := range r.AllowedFindings() {
		texts = append(texts, f.String())
	}
	return texts
}

// textParts writes the parts of a selection, or the selection that a run is a part of.
func textParts(w io.Writer, r *run.Run, s terminal.Screen) {
	name := "parts"
	for _, p := range r.Parts {
		field(w, s, name, fmt.Sprintf("%s, %s by run %s: %s", p.Variant, p.Verdict.Explained(), shortID(p.Run), strings.Join(p.Shapes, " ")))
		name = ""
	}
	if r.PartOf != "" {
		field(w, s, "part of", r.PartOf)
	}
}

// textPerformance writes the times of a run and their conditions.
func textPerformance(w *strings.Builder, r *run.Run, shapes shapeLabels, s terminal.Screen) {
	fmt.Fprint(w, "\nperformance\n")
	rows := textPerformanceRows(r)
	columns := performanceColumns
	names := newShortNames()
	if len(r.Parts) > 0 {
		columns = slices.Insert(slices.Clone(columns), 1, terminal.Column{Name: "variant"})
		for i, row := range rows {
			rows[i] = slices.Insert(row, 1, names.add(r.VariantOn(row[0])))
		}
	}
	textTable(columns, shapes.label(rows)).Write(w, s)
	names.write(w, s, w.String())
	for _, line := range append([]string{r.Requested.Timing}, timingLines(r)...) {
		s.Paragraph(w, "  ", line, 4)
	}
}

// textTable is a table below a heading.
func textTable(columns []terminal.Column, rows [][]string) terminal.Table {
	return terminal.Table{Indent: 2, Columns: columns, Rows: rows}
}

// plainTable is a table with all columns.
func plainTable(header []string, rows [][]string) terminal.Table {
	var columns []terminal.Column
	for _, name := range header {
		columns = append(columns, terminal.Column{Name: name, Keep: true})
	}
	return terminal.Table{Columns: columns, Rows: rows}
}

// byVariant adds the chosen variant to the rows of a selection, after the shape.
func byVariant(r *run.Run, header []string, rows [][]string) ([]string, [][]string) {
	if len(r.Parts) == 0 {
		return header, rows
	}
	for i, row := range rows {
		rows[i] = slices.Insert(row, 1, r.VariantOn(row[0]))
	}
	return slices.Insert(slices.Clone(header), 1, "variant"), rows
}

// measuredAsText names the results that a run reuses.
func measuredAsText(as *run.MeasuredAs) string {
	what := "outputs"
	if as.Times {
		what = "outputs and times"
	}
	return fmt.Sprintf("%s, the same machine code: %s are those of run %s", as.Variant, what, as.Run)
}

func recordDevice(r *run.Run) string {
	if r.Facts == nil {
		return "no device"
	}
	return r.Facts.Name
}

// statusWord is the outcome of a gate in words.
func statusWord(s gate.Status) string { return strings.ReplaceAll(string(s), "-", " ") }

// gateLine writes a gate with its summary and reasons. The first of them is on the line of the
// gate.
func gateLine(w io.Writer, s terminal.Screen, name string, status gate.Status, summary string, reasons []string) {
	var lines []string
	if summary != "" {
		lines = append(lines, summary)
	}
	for _, reason := range reasons {
		lines = append(lines, strings.Split(strings.TrimRight(reason, "\n"), "\n")...)
	}
	const limit = 13 // the record has all of them
	if more := len(lines) - limit; more > 0 {
		lines = append(lines[:limit], fmt.Sprintf("and %d more", more))
	}
	if len(lines) == 0 {
		lines = []string{""}
	}
	const statusWidth = 13
	word := statusWord(status)
	padding := strings.Repeat(" ", max(0, statusWidth-len(word)))
	margin := fmt.Sprintf("  %-*s %s%s ", fieldWidth, name, s.Paint(statusColour(status), word), padding)
	hang := 2 + fieldWidth + 1 + statusWidth + 1
	for _, line := range lines {
		s.Paragraph(w, margin, line, hang+2)
		margin = strings.Repeat(" ", hang)
	}
}

func resourceLine(r *run.Run) string {
	if r.Build == nil {
		return ""
	}
	need := r.Build.Resources
	return fmt.Sprintf("%d registers, %d bytes of shared memory, %d of spill; %s",
		need.Registers, need.SharedBytes(), need.SpillBytes(), r.Build.Compiler)
}

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

var correctnessHeader = []string{"shape", "inputs", "seed", "max_err", "limit", "mean_err", "limit", "bad", "cosine", "worst at", ""}

func correctnessRows(r *run.Run) [][]string {
	var rows [][]string
	for _, c := range r.Correctness {
		inputs := c.Inputs
		if inputs == "" { // an old record
			inputs = tensor.Normal.String()
		}
		row := []string{
			c.Shape, inputs, fmt.Sprint(c.Seed), fmt.Sprintf("%.3g", c.MaxErr), fmt.Sprintf("%.3g", c.Limits.MaxErr), fmt.Sprintf("%.3g", c.MeanErr),
			fmt.Sprintf("%.3g", c.Limits.MeanErr), fmt.Sprintf("%.2f %%", 100*c.BadFraction), fmt.Sprintf("%.7f", c.Cosine),
			c.Worst.Place.String(), passWord(c.Pass),
		}
		if c.FirstNonFinite != nil { // the other figures do not include the non-finite elements
			row[3], row[5], row[8], row[9] = "not finite", "-", "-", c.FirstNonFinite.String()
		}
		rows = append(rows, row)
	}
	return rows
}

// correctnessColumns are those of a report for people. Markdown has more.
var correctnessColumns = []terminal.Column{
	{Name: "shape"},
	{Name: "inputs"},
	{Name: "seed"},
	{Name: "max_err", Keep: true},
	{Name: "max_err limit"},
	{Name: "mean_err", Optional: 1},
	{Name: "mean_err limit", Optional: 3},
	{Name: "bad"},
	{Name: "worst at", Optional: 2},
	{Name: "", Colour: wordColour},
}

func textCorrectnessRows(r *run.Run) [][]string {
	const cosine, worst = 8, 9 // columns of Markdown
	rows := correctnessRows(r)
	for i, c := range r.Correctness {
		place := c.Worst.Place
		if c.FirstNonFinite != nil {
			place = *c.FirstNonFinite
		}
		rows[i][worst] = fmt.Sprintf("b%d h%d r%d d%d", place.Batch, place.Head, place.Row, place.Dim)
		rows[i] = slices.Delete(rows[i], cosine, cosine+1)
	}
	return rows
}

func passWord(pass bool) string {
	if pass {
		return "pass"
	}
	return "FAIL"
}

var performanceHeader = []string{
	"shape", "p50 us", "±", "p90 us", "p99 us", "std us", "single us", "TFLOP/s", "mJ", "parent us", "speedup", "95 % interval", "",
}

// benchmarkWord marks the shapes that the performance gate counts.
const benchmarkWord = "benchmark"

func performanceRows(r *run.Run) [][]string {
	var rows [][]string
	for _, p := range r.Performance {
		row := []string{
			p.Shape, fmt.Sprintf("%.2f", p.P50US), plusMinus(p), fmt.Sprintf("%.2f", p.P90US), fmt.Sprintf("%.2f", p.P99US),
			fmt.Sprintf("%.2f", p.StdUS), orDash(p.SingleUS), orMissing("%.2f", p.TFLOPS), millijoules(p.Joules), "-", "-", "-", "",
		}
		if p.ParentRatio != nil {
			row[9], row[10] = orMissing("%.2f", p.ParentP50US), fmt.Sprintf("%.3fx", *p.ParentRatio)
			row[11] = orMissing("%.3f", p.RatioLow) + " to " + orMissing("%.3f", p.RatioHigh)
		}
		if p.Benchmark {
			row[12] = benchmarkWord
		}
		rows = append(rows, row)
	}
	return rows
}

// performanceColumns are those of a report for people. Markdown has more.
var performanceColumns = []terminal.Column{
	{Name: "shape"},
	{Name: "p50 us", Keep: true},
	{Name: "±", Keep: true},
	{Name: "p99 us", Optional: 5},
	{Name: "single us", Optional: 4},
	{Name: "TFLOP/s", Keep: true},
	{Name: "GB/s", Keep: true},
	{Name: "of ceiling", Keep: true, Optional: 1},
	{Name: "mJ", Optional: 2},
	{Name: "parent us", Optional: 3},
	{Name: "speedup", Keep: true},
	{Name: "95 % interval", Optional: 1},
	{Name: "", Keep: true},
}

func textPerformanceRows(r *run.Run) [][]string {
	_, rows := withRates(r, performanceHeader, performanceRows(r))
	for i, row := range rows {
		rows[i] = slices.Concat(row[:3], row[4:5], row[6:]) // without p90 and std
	}
	return rows
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
