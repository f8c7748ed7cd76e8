package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/tensor"
)

// Text writes one run for a terminal: the gates with their reasons and figures.
func Text(w io.Writer, r *run.Run) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s  %s  %s\n", r.Variant, r.Arch, deviceName(r))
	gateLine(out, "resources", r.Gates.Resources, resourceLine(r), r.Reasons.Resources)
	gateLine(out, "correctness", r.Gates.Correctness, correctnessLine(r), r.Reasons.Correctness)
	if len(r.Correctness) > 0 && len(r.Parts) == 0 { // the parts of a selection have printed them
		writeTable(out, "    ", textCorrectnessHeader, textCorrectnessRows(r))
	}
	gateLine(out, "performance", r.Gates.Performance, "", r.Reasons.Performance)
	if len(r.Performance) > 0 {
		header, rows := byVariant(r, textPerformanceHeader, textPerformanceRows(r))
		const indent = "    "
		writeTable(out, indent, header, rows)
		for _, line := range append([]string{r.Requested.Timing}, timingLines(r)...) {
			for _, part := range folded(line, len(indent)) {
				fmt.Fprintln(out, indent+part)
			}
		}
	}
	gateLine(out, "profile", r.Gates.Profile, "", r.Reasons.Profile)
	if r.MeasuredAs != nil {
		fmt.Fprintf(out, "  %-12s %s\n", "measured as", measuredAsText(r.MeasuredAs))
	}
	textParts(out, r)
	fmt.Fprintf(out, "  %-12s %s\n", "verdict", verdictText(r))
	if r.Reproduces != "" {
		fmt.Fprintf(out, "  %-12s %s\n", "reproduces", r.Reproduces)
	}
	if r.ID != "" {
		fmt.Fprintf(out, "  %-12s %s\n", "run", r.ID)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// textParts writes the parts of a selection, or the selection that a run is a part of.
func textParts(w io.Writer, r *run.Run) {
	const indent = 15
	for i, p := range r.Parts {
		name := ""
		if i == 0 {
			name = "parts"
		}
		part := fmt.Sprintf("%s, %s by run %s: %s", p.Variant, p.Verdict.Explained(), p.Run, strings.Join(p.Shapes, " "))
		for _, line := range folded(part, indent) {
			fmt.Fprintf(w, "  %-12s %s\n", name, line)
			name = ""
		}
	}
	if r.PartOf != "" {
		fmt.Fprintf(w, "  %-12s %s\n", "part of", r.PartOf)
	}
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

func deviceName(r *run.Run) string {
	if r.Facts == nil {
		return "no device"
	}
	return r.Facts.Name
}

// statusWord is the outcome of a gate in words.
func statusWord(s gate.Status) string { return strings.ReplaceAll(string(s), "-", " ") }

// gateLine writes a gate with its summary and reasons. The first of them is on the line of the
// gate.
func gateLine(w io.Writer, name string, status gate.Status, summary string, reasons []string) {
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
	first := fmt.Sprintf("  %-12s %-13s ", name, statusWord(status))
	if len(lines) == 0 {
		lines = []string{""}
	}
	for _, line := range lines {
		for _, part := range folded(line, len(first)) {
			fmt.Fprintln(w, strings.TrimRight(first+part, " "))
			first = fmt.Sprintf("  %-12s %-13s ", "", "")
		}
	}
}

// screenWidth is the width of printed reports in columns. Tables of long shapes or variants exceed
// it.
const screenWidth = 100

// folded breaks a line between words to fit a screen, after a margin that the caller writes. The
// lines after the first are indented.
func folded(line string, margin int) []string {
	const indent = "  "
	width := screenWidth - margin
	var parts []string
	for len(line) > width {
		at := strings.LastIndexByte(line[:width+1], ' ')
		if at <= len(indent) { // the first word is longer than a line; the break comes after it
			next := strings.IndexByte(line[width:], ' ')
			if next < 0 {
				break
			}
			at = width + next
		}
		parts = append(parts, line[:at])
		line = indent + line[at+1:]
	}
	return append(parts, line)
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
	line := fmt.Sprintf("%d of %d correct against float64", passed, all)
	if worst := worstLSE(r); worst != nil {
		line += fmt.Sprintf(", lse error %.2g of %.2g allowed", worst.LSE.MaxErr, worst.Limits.LSE.MaxErr)
	}
	if r.Requested.Sanitizer != "" {
		line += ", under compute-sanitizer " + r.Requested.Sanitizer
	}
	if s := r.Requested.Simulation; s != nil {
		line += ", " + simulationText(s)
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

func simulationText(s *run.Simulation) string {
	text := "all checkers on"
	if !s.Checks {
		text = "checkers off"
	}
	if s.Schedules > 1 {
		text += fmt.Sprintf(", under %d schedules", s.Schedules)
	}
	if s.Tensor != run.ExactTensor {
		text += ", tensor cores in " + s.Tensor
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

// A report for a terminal has fewer columns than Markdown, to fit the screen.
var textCorrectnessHeader = []string{"shape", "inputs", "seed", "max_err", "limit", "mean_err", "limit", "bad", "worst at", ""}

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
	"shape", "p50 us", "±", "p90 us", "p99 us", "std us", "single us", "TFLOP/s", "parent us", "speedup", "95 % interval", "",
}

// benchmarkWord marks the shapes that the performance gate counts.
const benchmarkWord = "benchmark"

func performanceRows(r *run.Run) [][]string {
	var rows [][]string
	for _, p := range r.Performance {
		row := []string{
			p.Shape, fmt.Sprintf("%.2f", p.P50US), plusMinus(p), fmt.Sprintf("%.2f", p.P90US), fmt.Sprintf("%.2f", p.P99US),
			fmt.Sprintf("%.2f", p.StdUS), orDash(p.SingleUS), fmt.Sprintf("%.2f", p.TFLOPS), "-", "-", "-", "",
		}
		if p.ParentRatio != nil {
			row[8], row[9] = fmt.Sprintf("%.2f", *p.ParentP50US), fmt.Sprintf("%.3fx", *p.ParentRatio)
			row[10] = fmt.Sprintf("%.3f to %.3f", *p.RatioLow, *p.RatioHigh)
		}
		if p.Benchmark {
			row[11] = benchmarkWord
		}
		rows = append(rows, row)
	}
	return rows
}

var textPerformanceHeader = []string{
	"shape", "p50 us", "p99 us", "single us", "TFLOP/s", "parent us", "speedup", "95 % interval", "",
}

func textPerformanceRows(r *run.Run) [][]string {
	rows := performanceRows(r)
	for i, row := range rows {
		rows[i] = slices.Concat(row[:2], row[4:5], row[6:]) // without ±, p90 and std
	}
	return rows
}

// writeTable aligns columns, without spaces at the ends of lines.
func writeTable(w io.Writer, indent string, header []string, rows [][]string) {
	var aligned strings.Builder
	table := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(table, indent+strings.Join(row, "\t"))
	}
	table.Flush()
	for line := range strings.Lines(aligned.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// History writes the entries of a ledger as a table, in the given order.
func History(w io.Writer, entries []ledger.Entry, champions Champions, markdown bool) error {
	header := []string{"run", "variant", "device", "verdict", "shape", "p50 us", "over parent"}
	marked := slices.ContainsFunc(entries, func(e ledger.Entry) bool { return champions[e.ID] != "" })
	if marked {
		header = append(header, "champion")
	}
	var rows [][]string
	for _, e := range entries {
		row := []string{e.ID, e.Variant, e.Device, e.Verdict, "-", "-", "-"}
		if e.Headline.P50US != nil {
			row[4], row[5] = e.Headline.Shape, fmt.Sprintf("%.2f", *e.Headline.P50US)
		}
		if e.Headline.ParentRatio != nil {
			row[6] = fmt.Sprintf("%.3fx", *e.Headline.ParentRatio)
		}
		if marked {
			row = append(row, champions[e.ID])
		}
		rows = append(rows, row)
	}
	return errors.Join(table(w, header, rows, markdown), verdictNote(w, rows, 3))
}

// table writes rows as text or as Markdown.
func table(w io.Writer, header []string, rows [][]string, markdown bool) error {
	var out bytes.Buffer
	if markdown {
		markdownTable(&out, header, rows)
	} else {
		writeTable(&out, "", header, rows)
	}
	_, err := w.Write(out.Bytes())
	return err
}
