package document

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"attune/internal/run"
	"attune/internal/terminal"
)

// Bench writes a bench for people: our best over the best peers, the table, and the conditions.
func Bench(w io.Writer, b *run.Bench, s terminal.Screen) error {
	out := &bytes.Buffer{}
	s.Paragraph(out, "", overallLine(b), 2)
	device := benchDevice(b)
	if !b.Time.IsZero() {
		device += ", " + b.Time.UTC().Format("2006-01-02 15:04:05")
	}
	s.Paragraph(out, "", device, 2)
	out.WriteString("\n")
	names := newShortNames()
	t := terminal.Table{Columns: []terminal.Column{
		{Name: "shape"},
		{Name: "name", Keep: true},
		{Name: "variant", Optional: 6},
		{Name: "inputs"},
		{Name: "p50 us", Keep: true},
		{Name: "±", Optional: 8},
		{Name: "TFLOP/s", Keep: true, Optional: 1},
		{Name: "GB/s", Keep: true, Optional: 1},
		{Name: "mJ", Optional: 9},
		{Name: "speedup"},
		{Name: "95 % interval", Optional: 7},
		{Name: "max_err", Optional: 2},
		{Name: "of bf16", Optional: 4},
		{Name: "of FP8", Optional: 3},
		{Name: "of copy", Optional: 5},
	}}
	alone := !slices.ContainsFunc(b.Rows, func(r run.BenchRow) bool { return r.Speedup != nil })
	for _, r := range b.Rows {
		row := benchRow(r, true)
		row[1] = names.add(row[1])
		if alone {
			row[speedupColumn] = none // nothing is slower than the best
		}
		chosen := none
		if r.Variant != "" {
			chosen = names.add(r.Variant)
		}
		t.Rows = append(t.Rows, slices.Insert(row, 2, chosen))
	}
	t.Write(out, s)
	out.WriteString("\n")
	names.write(out, s, out.String())
	var details bytes.Buffer
	writeWrong(&details, b)
	writeChecked(&details, b)
	if len(b.Best) > 1 { // else it is the first line
		for _, best := range b.Best {
			fmt.Fprintln(&details, bestText(best, names.add))
		}
	}
	for _, line := range append(conditionLines([]run.Conditions{b.Conditions}), benchNotes(b)...) {
		fmt.Fprintln(&details, line)
	}
	writeEnded(&details, b)
	writeOrigin(&details, b)
	for line := range strings.Lines(details.String()) {
		s.Paragraph(out, "", strings.TrimSuffix(line, "\n"), 2)
	}
	_, err := w.Write(out.Bytes())
	return err
}

func benchDevice(b *run.Bench) string {
	return fmt.Sprintf("%s, %s, driver %s; %s", b.Facts.Name, b.Facts.Arch, b.Facts.Driver, peerVersions(b))
}

// benchNotes explain the figures of a bench.
func benchNotes(b *run.Bench) []string {
	notes := []string{
		fmt.Sprintf("%d samples of each in %d blocks: %s.", b.Rounds, b.Blocks, b.Timing),
		"A speedup is that of our best variant on the shape over the row, with its 95 % interval.",
	}
	if b.Ceilings != nil {
		notes = append(notes, fmt.Sprintf("Shares are of the rates measured on this device: bf16 GEMM %g TFLOP/s, FP8 GEMM %g TFLOP/s, copy %g TB/s (%s).",
			b.Ceilings.BF16, b.Ceilings.FP8, b.Ceilings.CopyTBps, b.Ceilings.Measured))
	}
	return notes
}

// writeWrong lists the rows with wrong outputs.
func writeWrong(w io.Writer, b *run.Bench) {
	for _, r := range b.Rows {
		if r.Wrong != "" {
			fmt.Fprintf(w, "WRONG: %s on %s: %s\n", r.Name, r.Shape, r.Wrong)
		}
	}
}

// BenchTableMarkdown writes a bench as Markdown, without the skipped peers.
func BenchTableMarkdown(w io.Writer, b *run.Bench) error {
	out := &bytes.Buffer{}
	fmt.Fprintln(out, benchDevice(b))
	for _, note := range benchNotes(b) {
		fmt.Fprintln(out, note)
	}
	out.WriteString("\n")
	header := []string{"shape", "name", "inputs", "p50 us", "±", "TFLOP/s", "GB/s", "mJ", "speedup", "95 % interval", "max_err"}
	if b.Ceilings != nil {
		header = append(header, "of bf16", "of FP8", "of copy")
	}
	selections := slices.ContainsFunc(b.Rows, func(r run.BenchRow) bool { return r.Variant != "" })
	if selections {
		header = slices.Insert(header, 2, "variant")
	}
	var rows [][]string
	for _, r := range b.Rows {
		row := benchRow(r, b.Ceilings != nil)
		if selections {
			row = slices.Insert(row, 2, cmp.Or(r.Variant, "-"))
		}
		rows = append(rows, row)
	}
	if !slices.ContainsFunc(b.Rows, func(r run.BenchRow) bool { return r.GBPerS != nil }) {
		header, rows = withoutColumn("GB/s", header, rows)
	}
	if b.Problem != nil {
		header, rows = withoutEmptyColumns(header, rows)
	}
	stringTable(out, header, rows)
	out.WriteString("\n")
	writeWrong(out, b)
	writeChecked(out, b)
	for _, line := range conditionLines([]run.Conditions{b.Conditions}) {
		fmt.Fprintln(out, line)
	}
	for _, best := range b.Best {
		fmt.Fprintln(out, bestText(best, func(name string) string { return name }))
	}
	if len(b.Best) != 1 { // with one shape that line says it
		fmt.Fprintln(out, overallLine(b))
	}
	writeEnded(out, b)
	writeOrigin(out, b)
	_, err := w.Write(out.Bytes())
	return err
}

// BenchByShape writes a bench with one line per shape: every time, and our best over the best peer.
func BenchByShape(w io.Writer, b *run.Bench, s terminal.Screen) error {
	out := &bytes.Buffer{}
	s.Paragraph(out, "", overallLine(b), 2)
	s.Paragraph(out, "", benchDevice(b)+". "+byShapeUnits(b), 2)
	out.WriteString("\n")
	names := newShortNames()
	header, rows := byShapeTable(b)
	for i, name := range header {
		header[i] = names.add(name)
	}
	t := plainTable(header, rows)
	t.Columns[len(header)-1].Optional = 1 // the number of checked rows
	t.Write(out, s)
	names.write(out, s, out.String())
	var details bytes.Buffer
	writeEnded(&details, b)
	writeOrigin(&details, b)
	for line := range strings.Lines(details.String()) {
		out.WriteString("\n") // a separate paragraph
		s.Paragraph(out, "", strings.TrimSuffix(line, "\n"), 2)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// byShapeUnits are the units of a bench by shape.
func byShapeUnits(b *run.Bench) string {
	if b.Problem != nil {
		return "Microseconds (p50) and, in brackets, the rates by [work]."
	}
	return "Microseconds (p50) and, in brackets, TFLOP/s."
}

// byShapeCell is the time of an implementation on a shape, with its rates.
func byShapeCell(b *run.Bench, r run.BenchRow) string {
	if b.Problem == nil {
		return fmt.Sprintf("%.2f (%s)", *r.P50US, orMissing("%.0f", r.TFLOPS))
	}
	var rates []string
	if r.GBPerS != nil {
		rates = append(rates, fmt.Sprintf("%.0f GB/s", *r.GBPerS))
	}
	if r.TFLOPS != nil {
		rates = append(rates, fmt.Sprintf("%.3g TFLOP/s", *r.TFLOPS))
	}
	if rates == nil {
		return fmt.Sprintf("%.2f", *r.P50US)
	}
	return fmt.Sprintf("%.2f (%s)", *r.P50US, strings.Join(rates, ", "))
}

// BenchByShapeMarkdown writes a bench with one line per shape as Markdown.
func BenchByShapeMarkdown(w io.Writer, b *run.Bench) error {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "%s. %s\n\n", benchDevice(b), byShapeUnits(b))
	header, rows := byShapeTable(b)
	stringTable(out, header, rows)
	if len(b.Best) != 1 {
		fmt.Fprintf(out, "\n%s\n", overallLine(b))
	}
	for _, write := range []func(io.Writer, *run.Bench){writeEnded, writeOrigin} {
		var line bytes.Buffer
		if write(&line, b); line.Len() > 0 {
			fmt.Fprintf(out, "\n%s", line.Bytes()) // a separate paragraph
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// byShapeTable has a row for each shape and a column for each implementation.
func byShapeTable(b *run.Bench) (header []string, rows [][]string) {
	var names []string
	cells := map[[2]string]string{}
	for _, r := range b.Rows {
		name := r.Name
		if r.Peer && !strings.Contains(name, r.DType) {
			name += " " + r.DType
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		switch {
		case r.Wrong != "":
			cells[[2]string{r.Shape, name}] = "WRONG"
		case r.P50US != nil:
			cells[[2]string{r.Shape, name}] = byShapeCell(b, r)
		}
	}
	for _, a := range b.Checked {
		row := []string{a.Shape}
		for _, name := range names {
			row = append(row, cmp.Or(cells[[2]string{a.Shape, name}], "-"))
		}
		rows = append(rows, append(row, overBestPeer(b, a.Shape), a.Coverage.String()))
	}
	return slices.Concat([]string{"shape"}, names, []string{"our best over the best peer", "checked"}), rows
}

func overBestPeer(b *run.Bench, shape string) string {
	for _, best := range b.Best {
		if best.Shape == shape {
			return fmt.Sprintf("%.3fx (%.3f to %.3f)", best.Speedup.Ratio, best.Speedup.Low, best.Speedup.High)
		}
	}
	return "-"
}

// writeChecked names the shapes of which only some rows were checked.
func writeChecked(w io.Writer, b *run.Bench) {
	for _, c := range b.Checked {
		if !c.Whole() {
			fmt.Fprintf(w, "%s: checked: %s\n", c.Shape, c.Coverage)
		}
	}
}

// writeEnded reports missing shapes.
func writeEnded(w io.Writer, b *run.Bench) {
	if b.Ended != "" {
		fmt.Fprintf(w, "NOT FINISHED: %d of %d shapes: %s\n", len(b.Checked), len(b.Requested), b.Ended)
	}
}

// writeOrigin identifies a recorded bench and its program.
func writeOrigin(w io.Writer, b *run.Bench) {
	if b.ID == "" {
		return
	}
	git := ""
	if b.GitSHA != "" {
		git = ", git " + shortHash(b.GitSHA)
		if b.Git.Dirty {
			git += " with uncommitted changes"
		}
	}
	fmt.Fprintf(w, "bench %s, attune %s%s: `%s`\n", b.ID, b.Attune, git, b.Command)
}

func peerVersions(b *run.Bench) string {
	if b.Peers == nil {
		return "no peers"
	}
	text := fmt.Sprintf("PyTorch %s, CUDA %s", b.Peers.Torch, b.Peers.CUDA)
	if b.Peers.CuDNN != "" {
		text += ", cuDNN " + b.Peers.CuDNN
	}
	return text + ", Python " + b.Peers.Python
}

// speedupColumn is the index of the speedup in a benchRow.
const speedupColumn = 8

func benchRow(r run.BenchRow, shares bool) []string {
	row := []string{r.Shape, r.Name, r.DType, "-", "-", "-", "-", "-", "-", "-", "-"}
	switch {
	case r.Wrong != "":
		row[3] = "WRONG"
	case r.Speedup != nil:
		row[speedupColumn] = fmt.Sprintf("%.3fx", r.Speedup.Ratio)
		row[speedupColumn+1] = fmt.Sprintf("%.3f to %.3f", r.Speedup.Low, r.Speedup.High)
	case !r.Peer:
		row[speedupColumn] = "best"
	}
	if r.P50US != nil {
		row[3], row[5], row[6] = fmt.Sprintf("%.2f", *r.P50US), orMissing("%.2f", r.TFLOPS), orMissing("%.0f", r.GBPerS)
	}
	if r.P50LowUS != nil && r.P50HighUS != nil && r.P50US != nil {
		row[4] = spread(*r.P50US, *r.P50LowUS, *r.P50HighUS)
	}
	if r.Joules > 0 {
		row[7] = millijoules(&r.Joules)
	}
	if r.MaxErr != nil {
		row[10] = fmt.Sprintf("%.3g", *r.MaxErr)
	}
	if shares {
		row = append(row, "-", "-", "-")
		if r.Shares != nil {
			for i, share := range []float64{r.Shares.BF16, r.Shares.FP8, r.Shares.Copy} {
				if share > 0 {
					row[11+i] = fmt.Sprintf("%.1f %%", 100*share)
				}
			}
		}
	}
	return row
}

// orMissing formats a number that a record may lack.
func orMissing(format string, value *float64) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprintf(format, *value)
}

// bestText compares our best variant on a shape with the best peer.
func bestText(best run.BestRow, name func(string) string) string {
	return fmt.Sprintf("%s: %s is %.3fx the best peer, %s (%.3f to %.3f)",
		best.Shape, name(best.Variant), best.Speedup.Ratio, best.Peer, best.Speedup.Low, best.Speedup.High)
}

// overallLine compares our best variants with the best peers.
func overallLine(b *run.Bench) string {
	switch {
	case len(b.Best) == 0 && b.Problem != nil:
		return "no peer was timed; the rows compare variants"
	case len(b.Best) == 0:
		return "no peer was timed, so there is nothing to compare with"
	case len(b.Best) == 1:
		return bestText(b.Best[0], newShortNames().add)
	}
	overall := b.Overall()
	return fmt.Sprintf("over %d shapes: %.3fx the best peer of each (geometric mean, %.3f to %.3f)",
		len(b.Best), overall.Ratio, overall.Low, overall.High)
}

// BenchMarkdown returns report.md of a bench's record: its table, and what was skipped.
func BenchMarkdown(b *run.Bench) ([]byte, error) {
	var text bytes.Buffer
	if err := BenchTableMarkdown(&text, b); err != nil {
		return nil, err
	}
	for _, line := range SkippedLines(b.Skipped) {
		fmt.Fprintln(&text, line)
	}
	return text.Bytes(), nil
}

// SkippedLines has a line for each reason why peers were skipped, with the peers and shapes that it
// concerns.
func SkippedLines(all []run.Skipped) []string {
	lines := mergeSkips(all,
		func(a, b run.Skipped) bool { return a.Shape == b.Shape },
		func(into *run.Skipped, l run.Skipped) { into.Name += ", " + l.Name })
	lines = mergeSkips(lines,
		func(a, b run.Skipped) bool { return a.Name == b.Name && a.Shape != "" && b.Shape != "" },
		func(into *run.Skipped, l run.Skipped) { into.Shape += ", " + l.Shape })
	var texts []string
	for _, l := range lines {
		text := l.Name
		if l.Shape != "" {
			text += " on " + l.Shape
		}
		text += " skipped: " + l.Why
		if l.Do != "" {
			text += "; to include it: " + l.Do
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return texts
}

// mergeSkips merges each entry into the first with the same reason that fits.
func mergeSkips(all []run.Skipped, fits func(a, b run.Skipped) bool, merge func(into *run.Skipped, l run.Skipped)) []run.Skipped {
	var merged []run.Skipped
	for _, l := range all {
		i := slices.IndexFunc(merged, func(m run.Skipped) bool { return m.Why == l.Why && m.Do == l.Do && fits(m, l) })
		if i < 0 {
			merged = append(merged, l)
		} else {
			merge(&merged[i], l)
		}
	}
	return merged
}
