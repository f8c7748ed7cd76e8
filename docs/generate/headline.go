package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"attune/internal/run"
	"attune/internal/tensor"
)

// headlineMarkdown writes the README's figures: the newest bench with peers, and the throughput of
// the sweeps under a steady load.
func headlineMarkdown(r results) string {
	out := &bytes.Buffer{}
	var beside *run.Bench
	var sweeps []*run.Bench
	for _, b := range slices.SortedFunc(slices.Values(r.Benches), func(a, b *run.Bench) int { return strings.Compare(a.ID, b.ID) }) {
		lengths, others := splitShapes(b)
		if b.Peers != nil && len(others) > 0 {
			beside = b
		}
		if len(lengths) > 0 && restOf(b) == 0 {
			sweeps = append(sweeps, b)
		}
	}
	if beside != nil {
		headlineTimes(out, beside)
	}
	headlineThroughput(out, sweeps)
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
		"~: some exponentials by a linear approximation, with some 11 %% more error.", b.Facts.Name, ours[0].name, ours[0].inputs)
	out.WriteString("\n")
	alignedTable(out, header, rows)
}

func peerRow(b *run.Bench, name, shape string) run.BenchRow {
	return b.Rows[slices.IndexFunc(b.Rows, func(r run.BenchRow) bool { return r.Name == name && r.Shape == shape })]
}

// headlineThroughput writes the throughput at the longest sequence, by head dim: of our selections
// and of the peers in the same benches.
func headlineThroughput(out *bytes.Buffer, sweeps []*run.Bench) {
	longest, dims := 0, []int{}
	for _, b := range sweeps {
		sweep, _ := splitShapes(b)
		for _, s := range sweep {
			longest, dims = max(longest, s.SeqQ), append(dims, s.HeadDim)
		}
	}
	slices.Sort(dims)
	dims = slices.Compact(dims)
	if len(dims) == 0 {
		return
	}
	header := []string{"TFLOP/s"}
	for _, dim := range dims {
		header = append(header, fmt.Sprintf("D = %d", dim), "causal")
	}
	var rows [][]string
	for _, b := range sweeps {
		sweep, _ := splitShapes(b)
		all := benchColumns(b)
		ours := headlineColumns(slices.DeleteFunc(slices.Clone(all), func(c column) bool { return c.peer }))
		peers := slices.DeleteFunc(all, func(c column) bool { return !c.peer })
		for _, c := range append(ours, peers...) {
			name := c.name
			if name == flash3 {
				name = "FlashAttention-3 beside it"
			}
			row := []string{name + ", " + c.inputs}
			for _, dim := range dims {
				for _, causal := range []bool{false, true} {
					row = append(row, throughputCell(b, c, sweep, tensor.Shape{SeqQ: longest, HeadDim: dim, Causal: causal}))
				}
			}
			rows = append(rows, row)
		}
	}
	out.WriteString("\n")
	paragraph(out, "Throughput at %d keys under a steady load, 16384 tokens; D is the head dim:", longest)
	out.WriteString("\n")
	alignedTable(out, header, rows)
}

// throughputCell is the figure of a column on the shape of a sweep with this length, head dim and
// mask.
func throughputCell(b *run.Bench, c column, sweep []tensor.Shape, want tensor.Shape) string {
	at := slices.IndexFunc(sweep, func(s tensor.Shape) bool {
		return s.SeqQ == want.SeqQ && s.HeadDim == want.HeadDim && s.Causal == want.Causal
	})
	if at < 0 {
		return "-"
	}
	return c.cell(b, sweep[at].String(), tflopsFigure)
}
