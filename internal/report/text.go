package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/run"
)

// Text writes one run for a terminal: the gates with their reasons, and the figures under each.
func Text(w io.Writer, r *run.Run) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s  %s  %s\n", r.Variant, r.Arch, deviceName(r))
	gateLine(out, "resources", r.Gates.Resources, resourceLine(r), r.Reasons.Resources)
	gateLine(out, "correctness", r.Gates.Correctness, correctnessLine(r), r.Reasons.Correctness)
	if len(r.Correctness) > 0 {
		writeTable(out, "    ", correctnessHeader, correctnessRows(r))
	}
	gateLine(out, "performance", r.Gates.Performance, "", r.Reasons.Performance)
	if len(r.Performance) > 0 {
		writeTable(out, "    ", performanceHeader, performanceRows(r))
	}
	gateLine(out, "profile", r.Gates.Profile, "", r.Reasons.Profile)
	fmt.Fprintf(out, "  %-12s %s\n", "verdict", r.Verdict)
	if r.ID != "" {
		fmt.Fprintf(out, "  %-12s %s\n", "run", r.ID)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func deviceName(r *run.Run) string {
	if r.Facts == nil {
		return "no device"
	}
	return r.Facts.Name
}

// statusWord is a gate's outcome as people read it.
func statusWord(s gate.Status) string { return strings.ReplaceAll(string(s), "-", " ") }

// gateLine writes the outcome of a gate: the summary, or the reasons, the first of them on the line of the gate.
func gateLine(w io.Writer, name string, status gate.Status, summary string, reasons []string) {
	var lines []string
	if summary != "" {
		lines = append(lines, summary)
	}
	for _, reason := range reasons {
		lines = append(lines, strings.Split(strings.TrimRight(reason, "\n"), "\n")...)
	}
	first := ""
	if len(lines) > 0 {
		first = lines[0]
		lines = lines[1:]
	}
	fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-12s %-13s %s", name, statusWord(status), first), " "))
	const most = 12 // the record has them all
	for i, line := range lines {
		if i == most {
			fmt.Fprintf(w, "  %-12s %-13s and %d more\n", "", "", len(lines)-most)
			break
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("  %-12s %-13s %s", "", "", line), " "))
	}
}

func resourceLine(r *run.Run) string {
	if r.Build == nil {
		return ""
	}
	need := r.Build.Resources
	return fmt.Sprintf("%d registers, %d bytes of shared memory, %d bytes of spill; %s", need.Registers, need.SharedBytes(), need.SpillBytes(), r.Build.Compiler)
}

func correctnessLine(r *run.Run) string {
	if len(r.Correctness) == 0 {
		return ""
	}
	right := 0
	for _, c := range r.Correctness {
		if c.Pass {
			right++
		}
	}
	line := fmt.Sprintf("%d of %d right against float64", right, max(r.Asked.Problems, len(r.Correctness)))
	if r.Asked.Sanitizer != "" {
		line += ", under compute-sanitizer " + r.Asked.Sanitizer
	}
	return line
}

var correctnessHeader = []string{"shape", "inputs", "seed", "max_err", "limit", "mean_err", "limit", "bad", "cosine", "worst at", ""}

func correctnessRows(r *run.Run) [][]string {
	var rows [][]string
	for _, c := range r.Correctness {
		row := []string{
			c.Shape, c.Inputs, fmt.Sprint(c.Seed), fmt.Sprintf("%.3g", c.MaxErr), fmt.Sprintf("%.3g", c.Limits.MaxErr), fmt.Sprintf("%.3g", c.MeanErr),
			fmt.Sprintf("%.3g", c.Limits.MeanErr), fmt.Sprintf("%.2f %%", 100*c.BadFraction), fmt.Sprintf("%.7f", c.Cosine),
			c.Worst.Place.String(), passWord(c.Pass),
		}
		if c.FirstNonFinite != nil { // the figures are of the other elements alone, if there are any
			row[2], row[4], row[7], row[8] = "not finite", "-", "-", c.FirstNonFinite.String()
		}
		rows = append(rows, row)
	}
	return rows
}

func passWord(pass bool) string {
	if pass {
		return "pass"
	}
	return "FAIL"
}

var performanceHeader = []string{"shape", "p50 us", "p90 us", "p99 us", "std us", "TFLOP/s", "parent us", "speedup", "95 % interval", ""}

func performanceRows(r *run.Run) [][]string {
	var rows [][]string
	for _, p := range r.Performance {
		row := []string{
			p.Shape, fmt.Sprintf("%.2f", p.P50US), fmt.Sprintf("%.2f", p.P90US), fmt.Sprintf("%.2f", p.P99US), fmt.Sprintf("%.2f", p.StdUS),
			fmt.Sprintf("%.2f", p.TFLOPS), "-", "-", "-", "",
		}
		if p.ParentRatio != nil {
			row[6], row[7] = fmt.Sprintf("%.2f", *p.ParentP50US), fmt.Sprintf("%.3fx", *p.ParentRatio)
			row[8] = fmt.Sprintf("%.3f to %.3f", *p.RatioLow, *p.RatioHigh)
		}
		if p.Judged {
			row[9] = "judged"
		}
		rows = append(rows, row)
	}
	return rows
}

// writeTable aligns columns, and leaves no spaces at the ends of lines.
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

// History writes the entries of a ledger as a table, in the order given.
func History(w io.Writer, entries []ledger.Entry, markdown bool) error {
	var rows [][]string
	for _, e := range entries {
		row := []string{e.ID, e.Variant, e.Device, e.Arch, e.Verdict, "-", "not measured", "-"}
		if e.Headline.P50US != nil {
			row[5], row[6] = e.Headline.Shape, fmt.Sprintf("%.2f us", *e.Headline.P50US)
		}
		if e.Headline.ParentRatio != nil {
			row[7] = fmt.Sprintf("%.3fx", *e.Headline.ParentRatio)
		}
		rows = append(rows, row)
	}
	return table(w, []string{"run", "variant", "device", "arch", "verdict", "shape", "p50", "over parent"}, rows, markdown)
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
