package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"attune/internal/document"
	"attune/internal/run"
)

// examples writes the benches of declared kernels as one table.
func (r results) examples(out *bytes.Buffer) {
	var rows [][]string
	for _, b := range r.Examples {
		for _, row := range b.Rows {
			over := "-"
			if row.Speedup != nil {
				over = fmt.Sprintf("%.3fx ±%.3f", row.Speedup.Ratio, (row.Speedup.High-row.Speedup.Low)/2)
			}
			rate, share := limitOf(row)
			rows = append(rows, []string{
				axesThatVary(row.Shape, b.Rows), row.Name, document.OrMissing("%.2f", row.P50US), rate, share, over, shortID(b.ID),
			})
		}
	}
	if len(rows) == 0 {
		return
	}
	out.WriteString("\n## Examples\n\n")
	paragraph(out, "The kernels of `examples/` beside PyTorch's, which cuBLAS is called through too, and `kernels/decode`, on %s. Axes that are equal in all shapes of a bench are left out. Bytes and FLOPs are those of the "+
		"problem; the share is that of the nearer ceiling, which is the copy for GB/s and the bf16 GEMM for TFLOP/s. Kernels and peers are launched again on the same buffers; part of 64 MB in and out may still be in the 50 MB of L2. "+
		"\"Best over\" is the speedup of the best kernel over the row.", r.Examples[0].Facts.Name)
	out.WriteString("\n")
	alignedTable(out, []string{"shape", "kernel", "us", "rate", "share", "best over", "bench"}, rows)
}

// axesThatVary is a shape without the axes that are equal in all rows of its bench.
func axesThatVary(shape string, rows []run.BenchRow) string {
	var varying []string
	for axis := range strings.SplitSeq(shape, ",") {
		if slices.ContainsFunc(rows, func(other run.BenchRow) bool { return !slices.Contains(strings.Split(other.Shape, ","), axis) }) {
			varying = append(varying, axis)
		}
	}
	if varying == nil {
		return shape
	}
	return strings.Join(varying, ",")
}

// limitOf is the rate of a row that is nearer to its ceiling, and its share of it.
func limitOf(row run.BenchRow) (rate, share string) {
	switch {
	case row.Shares == nil || row.GBPerS == nil || row.TFLOPS == nil:
		return "-", "-"
	case row.Shares.BF16 > row.Shares.Copy:
		return fmt.Sprintf("%.0f TFLOP/s", *row.TFLOPS), document.Percent(row.Shares.BF16)
	}
	return fmt.Sprintf("%.0f GB/s", *row.GBPerS), document.Percent(row.Shares.Copy)
}

// tunings writes the recorded searches as one table.
func (r results) tunings(out *bytes.Buffer) {
	if len(r.Tunings) == 0 {
		return
	}
	out.WriteString("\n## Searches\n\n")
	paragraph(out, "What `attune tune` found when it started from the default of a stage ([tuning.md](tuning.md)). The cost is the geometric mean over "+
		"the shapes. The best variants and the default are timed together at the end; unless a variant is better beyond doubt, the default is the "+
		"best. `attune show ID --ledger results` prints the search, and its folder has the plot `convergence.svg`.")
	out.WriteString("\n")
	var rows [][]string
	for _, t := range r.Tunings {
		found := "the default"
		if t.Faster {
			found = fmt.Sprintf("%.3fx (%.3f to %.3f)", t.Best.Ratio.Ratio, t.Best.Ratio.Low, t.Best.Ratio.High)
		}
		rows = append(rows, []string{
			t.Stage, strings.Join(t.Identity.Shapes, ", "), fmt.Sprint(t.Evaluations), variantsOf(t), fmt.Sprintf("%.0f s", t.Seconds),
			document.TunedCost(t.Objective, *t.Default.Cost), found, shortID(t.ID),
		})
	}
	alignedTable(out, []string{"stage", "shapes", "evaluations", "variants", "time", "default us", "best over default", "tuning"}, rows)
	out.WriteString("\n")
	for _, t := range r.Tunings {
		if t.Faster {
			listItem(out, fmt.Sprintf("**%s**: `%s`, %s.", t.Stage, t.Best.Variant, byShapeText(t.Best)))
		}
	}
}

func variantsOf(t *run.Tuning) string {
	if t.Variants == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *t.Variants)
}

// byShapeText has the ratio to the default on each shape.
func byShapeText(v run.TunedVariant) string {
	var all []string
	for _, s := range v.Shapes {
		if s.Ratio != nil {
			all = append(all, fmt.Sprintf("%.3fx on %s", s.Ratio.Ratio, s.Shape))
		}
	}
	return strings.Join(all, ", ")
}
