package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"attune/internal/run"
)

// Bench writes variants beside peers for a terminal, or as Markdown.
func Bench(w io.Writer, b *run.Bench, markdown bool) error {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "%s, %s, driver %s; %s\n", b.Facts.Name, b.Facts.Arch, b.Facts.Driver, peerVersions(b))
	fmt.Fprintf(out, "%d samples of each in %d turns: %s.\n", b.Rounds, b.Turns, b.Timing)
	out.WriteString("Speedups are of our best variant on the shape, with their 95 % interval.\n")
	if b.Ceilings != nil {
		fmt.Fprintf(out, "Shares are of what this device was measured to reach: bf16 GEMM %g TFLOP/s, FP8 GEMM %g TFLOP/s, copy %g TB/s (%s).\n",
			b.Ceilings.BF16, b.Ceilings.FP8, b.Ceilings.CopyTBps, b.Ceilings.Measured)
	}
	out.WriteString("\n")
	header := []string{"shape", "name", "inputs", "p50 us", "TFLOP/s", "speedup", "95 % interval", "max_err"}
	if b.Ceilings != nil {
		header = append(header, "of bf16", "of FP8", "of copy")
	}
	selections := slices.ContainsFunc(b.Rows, func(r run.BenchRow) bool { return r.Taken != "" })
	if selections {
		header = slices.Insert(header, 2, "variant")
	}
	var rows [][]string
	for _, r := range b.Rows {
		row := benchRow(r, b.Ceilings != nil)
		if selections {
			row = slices.Insert(row, 2, cmp.Or(r.Taken, "-"))
		}
		rows = append(rows, row)
	}
	if err := table(out, header, rows, markdown); err != nil {
		return err
	}
	out.WriteString("\n")
	for _, r := range b.Rows {
		if r.Wrong != "" {
			fmt.Fprintf(out, "WRONG: %s on %s: %s\n", r.Name, r.Shape, r.Wrong)
		}
	}
	writeAnswers(out, b)
	for _, line := range circumstanceLines([]run.Circumstances{b.Circumstances}) {
		fmt.Fprintln(out, line)
	}
	writeBest(out, b)
	writeEnded(out, b)
	writeOrigin(out, b)
	_, err := w.Write(out.Bytes())
	return err
}

// BenchByShape writes a bench with one line a shape: what everyone took on it, and how our best stands to the best peer.
func BenchByShape(w io.Writer, b *run.Bench, markdown bool) error {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, "%s, %s, driver %s; %s. Microseconds (p50) and, in brackets, TFLOP/s.\n\n", b.Facts.Name, b.Facts.Arch, b.Facts.Driver, peerVersions(b))
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
			cells[[2]string{r.Shape, name}] = fmt.Sprintf("%.2f (%.0f)", *r.P50US, *r.TFLOPS)
		}
	}
	header := slices.Concat([]string{"shape"}, names, []string{"our best against the best peer", "answers"})
	var rows [][]string
	for _, a := range b.Answers {
		row := []string{a.Shape}
		for _, name := range names {
			row = append(row, cmp.Or(cells[[2]string{a.Shape, name}], "-"))
		}
		rows = append(rows, append(row, againstBest(b, a.Shape), a.Checked.String()))
	}
	if err := table(out, header, rows, markdown); err != nil {
		return err
	}
	for _, write := range []func(io.Writer, *run.Bench){writeOverall, writeEnded, writeOrigin} {
		var line bytes.Buffer
		if write(&line, b); line.Len() > 0 {
			fmt.Fprintf(out, "\n%s", line.Bytes()) // a paragraph of its own
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

func againstBest(b *run.Bench, shape string) string {
	for _, best := range b.Best {
		if best.Shape == shape {
			return fmt.Sprintf("%.3fx (%.3f to %.3f)", best.Speedup.Ratio, best.Speedup.Low, best.Speedup.High)
		}
	}
	return "-"
}

// writeAnswers says of which shapes only some rows were looked at.
func writeAnswers(w io.Writer, b *run.Bench) {
	for _, a := range b.Answers {
		if !a.Whole() {
			fmt.Fprintf(w, "%s: answers: %s\n", a.Shape, a.Checked)
		}
	}
}

// writeEnded says that shapes are missing.
func writeEnded(w io.Writer, b *run.Bench) {
	if b.Ended != "" {
		fmt.Fprintf(w, "NOT FINISHED: %d of %d shapes are here: %s\n", len(b.Answers), len(b.Asked), b.Ended)
	}
}

// writeOrigin says where a recorded bench comes from.
func writeOrigin(w io.Writer, b *run.Bench) {
	if b.ID == "" {
		return
	}
	git := ""
	if b.GitSHA != "" {
		git = ", git " + shortHash(b.GitSHA)
		if b.Git.Dirty {
			git += " with changes"
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

func benchRow(r run.BenchRow, shares bool) []string {
	row := []string{r.Shape, r.Name, r.DType, "-", "-", "-", "-", "-"}
	switch {
	case r.Wrong != "":
		row[3] = "WRONG"
	case r.Speedup != nil:
		row[5], row[6] = fmt.Sprintf("%.3fx", r.Speedup.Ratio), fmt.Sprintf("%.3f to %.3f", r.Speedup.Low, r.Speedup.High)
	case !r.Peer:
		row[5] = "best"
	}
	if r.P50US != nil {
		row[3], row[4] = fmt.Sprintf("%.2f", *r.P50US), fmt.Sprintf("%.2f", *r.TFLOPS)
	}
	if r.MaxErr != nil {
		row[7] = fmt.Sprintf("%.3g", *r.MaxErr)
	}
	if shares {
		row = append(row, "-", "-", "-")
		if r.Shares != nil {
			for i, share := range []float64{r.Shares.BF16, r.Shares.FP8, r.Shares.Copy} {
				row[8+i] = fmt.Sprintf("%.1f %%", 100*share)
			}
		}
	}
	return row
}

// writeBest says how our best variants stand to the best peers.
func writeBest(w io.Writer, b *run.Bench) {
	for _, best := range b.Best {
		fmt.Fprintf(w, "%s: %s is %.3fx the best peer, %s (%.3f to %.3f)\n",
			best.Shape, best.Variant, best.Speedup.Ratio, best.Peer, best.Speedup.Low, best.Speedup.High)
	}
	writeOverall(w, b)
}

func writeOverall(w io.Writer, b *run.Bench) {
	switch {
	case len(b.Best) == 0:
		fmt.Fprintln(w, "no peer was timed: there is nothing to compare with")
	case len(b.Best) > 1:
		overall := b.Overall()
		fmt.Fprintf(w, "over %d shapes: %.3fx the best peer of each (geometric mean, %.3f to %.3f)\n", len(b.Best), overall.Ratio, overall.Low, overall.High)
	}
}

// BenchMarkdown returns report.md of a bench's record: its table, and what was skipped.
func BenchMarkdown(b *run.Bench) ([]byte, error) {
	var text bytes.Buffer
	if err := Bench(&text, b, true); err != nil {
		return nil, err
	}
	for _, line := range LeftOut(b.LeftOut) {
		fmt.Fprintln(&text, line)
	}
	return text.Bytes(), nil
}

// LeftOut is a line for each reason why something was not timed, with all that it holds for.
func LeftOut(all []run.LeftOut) []string {
	type reason struct{ names, shapes, why, do string }
	var lines []reason
	merge := func(next reason, same func(reason) bool, into func(*reason)) {
		for i := range lines {
			if lines[i].why == next.why && lines[i].do == next.do && same(lines[i]) {
				into(&lines[i])
				return
			}
		}
		lines = append(lines, next)
	}
	for _, l := range all {
		merge(reason{l.Name, l.Shape, l.Why, l.Do}, func(r reason) bool { return r.shapes == l.Shape }, func(r *reason) { r.names += ", " + l.Name })
	}
	byShape := lines
	lines = nil
	for _, l := range byShape {
		merge(l, func(r reason) bool { return r.names == l.names && l.shapes != "" && r.shapes != "" }, func(r *reason) { r.shapes += ", " + l.shapes })
	}
	var texts []string
	for _, l := range lines {
		text := l.names
		if l.shapes != "" {
			text += " on " + l.shapes
		}
		text += " left out: " + l.why
		if l.do != "" {
			text += "; to have it: " + l.do
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return texts
}
