package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"attune/internal/run"
)

func benchDevice(b *run.Bench) string {
	return fmt.Sprintf("%s, %s, driver %s; %s", b.Facts.Name, b.Facts.Arch, b.Facts.Driver, PeerVersions(b))
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
	for _, build := range b.Builds {
		variant := build.Variant
		notes = append(notes, simulatedLine(variant, b.Simulated[variant], b.NoSim)...)
	}
	return notes
}

// BenchByShape is a bench with one line per shape: every time, and our best over the best peer.
func BenchByShape(b *run.Bench) *Document {
	from := benchRecord(b.ID)
	header, rows := byShapeTable(b)
	t := Table{Columns: columns(header...)}
	for i := range header[1 : len(header)-2] {
		t.Columns[i+1].Name[0].Variant = true
	}
	t.Columns[len(header)-1].Optional = 1 // the number of checked rows
	for i, row := range rows {
		cells := []Text{cell(from.text(row[0], "answers.%d.shape", i))}
		for _, text := range row[1:] {
			cells = append(cells, cell(from.summary(text, "rows")))
		}
		t.Rows = append(t.Rows, cells)
	}
	d := &Document{
		Title: say("Bench of ", from.text(b.Kernel, "kernel"), " by shape"), Headline: []Text{overallText(b)},
		Brief:    []Text{overallText(b), say(benchDevice(b), ". ", byShapeUnits(b))},
		Sections: []Section{{ID: "times", Title: say("Times"), Blocks: []Block{only(Long, say(benchDevice(b), ". ", byShapeUnits(b))), t}}},
	}
	if b.Ended != "" {
		d.Sections = append(d.Sections, Section{ID: "ended", Title: say("Missing shapes"), Blocks: []Block{cell(from.summary(endedText(b), "ended"))}})
	}
	if origin := originText(b); origin != "" {
		d.Sections = append(d.Sections, Section{ID: "origin", Title: say("Origin"), Blocks: []Block{append(from.sentence(origin, "id"), say(": ", Span{Text: b.Command, Code: true})...)}})
	}
	return d
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
		return fmt.Sprintf("%.2f (%s)", *r.P50US, OrMissing("%.0f", r.TFLOPS))
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
			cells[[2]string{r.Shape, name}] = wrongWord(r)
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

// endedText says why shapes are missing.
func endedText(b *run.Bench) string {
	return fmt.Sprintf("NOT FINISHED: %d of %d shapes: %s", len(b.Checked), len(b.Requested), b.Ended)
}

// originText identifies a recorded bench and its program.
func originText(b *run.Bench) string {
	if b.ID == "" {
		return ""
	}
	git := ""
	if b.GitSHA != "" {
		git = ", git " + shortHash(b.GitSHA)
		if b.Git.Dirty {
			git += " with uncommitted changes"
		}
	}
	return fmt.Sprintf("bench %s, attune %s%s", b.ID, b.Attune, git)
}

// PeerVersions names the versions of what peers run on.
func PeerVersions(b *run.Bench) string {
	if b.Peers == nil {
		return "no peers"
	}
	text := fmt.Sprintf("PyTorch %s, CUDA %s", b.Peers.Torch, b.Peers.CUDA)
	if b.Peers.CuDNN != "" {
		text += ", cuDNN " + b.Peers.CuDNN
	}
	return text + ", Python " + b.Peers.Python
}

// OrMissing formats a number that a record may lack.
func OrMissing(format string, value *float64) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprintf(format, *value)
}

// bestText compares our best variant on a shape with the best peer.
func bestText(b *run.Bench, i int) Text {
	best, from, at := b.Best[i], benchRecord(b.ID), fmt.Sprintf("best.%d.", i)
	return say(from.text(best.Shape, "%sshape", at), ": ", from.variant(best.Variant, "%svariant", at), " is ",
		from.figure("%.3f", best.Speedup.Ratio, "%sspeedup.ratio", at), "x the best peer, ", from.text(best.Peer, "%speer", at), " (",
		from.figure("%.3f", best.Speedup.Low, "%sspeedup.low", at), " to ", from.figure("%.3f", best.Speedup.High, "%sspeedup.high", at), ")")
}

// overallText compares our best variants with the best peers.
func overallText(b *run.Bench) Text {
	switch {
	case len(b.Best) == 0 && b.Problem != nil:
		return say("no peer was timed; the rows compare variants")
	case len(b.Best) == 0:
		return say("no peer was timed, so there is nothing to compare with")
	case len(b.Best) == 1:
		return bestText(b, 0)
	}
	overall := b.Overall()
	return cell(benchRecord(b.ID).summary(fmt.Sprintf("over %d shapes: %.3fx the best peer of each (geometric mean, %.3f to %.3f)",
		len(b.Best), overall.Ratio, overall.Low, overall.High), "best"))
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
