package report

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"attune/internal/run"
	"attune/internal/tensor"
)

// HeadlineMarkdown writes the README's figures: the newest bench with peers, and the throughput of the
// newest sweep under a steady load.
func HeadlineMarkdown(r Results) string {
	out := &bytes.Buffer{}
	var beside, sweep *run.Bench
	for _, b := range slices.SortedFunc(slices.Values(r.Benches), func(a, b *run.Bench) int { return strings.Compare(a.ID, b.ID) }) {
		lengths, others := splitShapes(b)
		if b.Peers != nil && len(others) > 0 {
			beside = b
		}
		if len(lengths) > 0 && restOf(b) == 0 {
			sweep = b
		}
	}
	if beside != nil {
		headlineTimes(out, beside)
	}
	if sweep != nil {
		headlineThroughput(out, sweep)
	}
	return out.String()
}

// headlineTimes writes our selections beside the fastest peer of each number format.
func headlineTimes(out *bytes.Buffer, b *run.Bench) {
	const most = 8 // docs/results.md has all shapes
	_, shapes := splitShapes(b)
	shapes = shapes[:min(most, len(shapes))]
	all := benchColumns(b)
	ours := headlineColumns(slices.DeleteFunc(slices.Clone(all), func(c column) bool { return c.peer }))
	header := []string{"shape"}
	for _, c := range ours {
		header = append(header, c.name+", "+c.inputs)
	}
	var formats []string
	for _, c := range all {
		if !c.peer || slices.Contains(formats, c.inputs) {
			continue
		}
		formats = append(formats, c.inputs)
		name := "PyTorch's fastest, "
		if c.name == flash3 {
			name = "FlashAttention-3, "
		}
		header = append(header, name+c.inputs)
	}
	var rows [][]string
	for _, shape := range shapes {
		row := []string{shape}
		for _, c := range ours {
			row = append(row, c.cell(b, shape, timeFigure))
		}
		for _, format := range formats {
			cell := "-"
			if name, speedup := fastestPeer(b, ours[0], shape, format); name != "" {
				cell = fmt.Sprintf("%.2f (%.2fx)", *peerRow(b, name, shape).P50US, speedup.Ratio)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	paragraph(out, "%s, time of one launch in us; in brackets the speedup of `%s`, whose inputs are %s. "+
		"~: some exponentials by a linear approximation.", b.Facts.Name, ours[0].name, ours[0].inputs)
	out.WriteString("\n")
	alignedTable(out, header, rows)
}

func peerRow(b *run.Bench, name, shape string) run.BenchRow {
	return b.Rows[slices.IndexFunc(b.Rows, func(r run.BenchRow) bool { return r.Name == name && r.Shape == shape })]
}

// headlineThroughput writes the throughput at the longest sequence, by head dim.
func headlineThroughput(out *bytes.Buffer, b *run.Bench) {
	sweep, _ := splitShapes(b)
	longest, dims := 0, []int{}
	for _, s := range sweep {
		longest, dims = max(longest, s.SeqQ), append(dims, s.HeadDim)
	}
	slices.Sort(dims)
	for _, c := range headlineColumns(slices.DeleteFunc(benchColumns(b), func(c column) bool { return c.peer })) {
		var parts []string
		for _, dim := range slices.Compact(slices.Clone(dims)) {
			figure := func(causal bool) string {
				at := slices.IndexFunc(sweep, func(s tensor.Shape) bool { return s.SeqQ == longest && s.HeadDim == dim && s.Causal == causal })
				if at < 0 {
					return "-"
				}
				return c.cell(b, sweep[at].String(), tflopsFigure)
			}
			parts = append(parts, fmt.Sprintf("%s (causal %s) at head dim %d", figure(false), figure(true), dim))
		}
		out.WriteString("\n")
		paragraph(out, "Throughput of `%s` with %s inputs at %d keys, %s, in TFLOP/s: %s.", c.name, c.inputs, longest, loadText(b), strings.Join(parts, ", "))
	}
}
