package document

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/plot"
	"attune/internal/run"
	"attune/internal/tensor"
)

// implementation names a row in a legend, with the number format of its inputs.
func implementation(row run.BenchRow) string {
	if strings.Contains(row.Name, row.DType) || row.DType == "" {
		return row.Name
	}
	return row.Name + ", " + row.DType
}

// seriesName is the implementation with the mark of approximate exponentials, if any row has it.
func seriesName(b *run.Bench, row run.BenchRow) string {
	name := implementation(row)
	same := func(other run.BenchRow) bool { return implementation(other) == name && ApproximateRow(b, other) }
	if slices.ContainsFunc(b.Rows, same) {
		return name + " ~"
	}
	return name
}

// family are shapes with the same number of tokens and heads, which differ in the sequence length.
type family struct {
	headDim, heads, tokens int
	causal                 bool
}

func familyOf(s tensor.Shape) family { return family{s.HeadDim, s.Heads, s.Batch * s.SeqQ, s.Causal} }

// throughputPlots has a plot for each family of attention shapes with three sequence lengths or more.
func throughputPlots(b *run.Bench) []*plot.Lines {
	if b.Problem != nil {
		return nil
	}
	lengths := map[family]map[int]bool{}
	var order []family
	for _, row := range b.Rows {
		shape, err := tensor.ParseShape(row.Shape)
		if err != nil || row.TFLOPS == nil {
			continue
		}
		f := familyOf(shape)
		if lengths[f] == nil {
			lengths[f] = map[int]bool{}
			order = append(order, f)
		}
		lengths[f][shape.SeqQ] = true
	}
	var all []*plot.Lines
	for _, f := range order {
		if len(lengths[f]) >= 3 {
			all = append(all, throughputOf(b, f))
		}
	}
	return all
}

func throughputOf(b *run.Bench, f family) *plot.Lines {
	mask := ""
	if f.causal {
		mask = ", causal"
	}
	p := &plot.Lines{Title: fmt.Sprintf("Throughput at head dim %d%s, %s", f.headDim, mask, b.Facts.Name), X: "sequence length", Y: "throughput", Unit: "TFLOP/s"}
	at := map[string]int{}
	for _, row := range b.Rows {
		shape, err := tensor.ParseShape(row.Shape)
		if err != nil || row.TFLOPS == nil || familyOf(shape) != f {
			continue
		}
		name := seriesName(b, row)
		i, known := at[name]
		if !known {
			i = len(p.Series)
			at[name] = i
			p.Series = append(p.Series, plot.LineSeries{Name: name, Peer: row.Peer})
		}
		p.Series[i].Points = append(p.Series[i].Points, plot.LinePoint{X: float64(shape.SeqQ), Y: *row.TFLOPS})
	}
	return p
}

// sweepBlocks are a plot of each family of a sweep. Their findings are about the variant.
func sweepBlocks(b *run.Bench, variant, prefix string) []Block {
	blocks := []Block{say("Throughput against the sequence length, in bench ", benchRecord(b.ID).code(b.ID, "id"), ". ", approximationNote(b))}
	own := ""
	for _, row := range b.Rows {
		if !row.Peer && row.Name == variant {
			own = seriesName(b, row)
		}
	}
	for i, p := range throughputPlots(b) {
		p.Subject = own
		blocks = append(blocks, Figure{Name: fmt.Sprintf("%sthroughput-%d", prefix, i), Plot: p})
	}
	return blocks
}

// eightBit reports whether a number format can use the rate of FP8 products.
func eightBit(dtype string) bool {
	return strings.Contains(dtype, "e4m3") || strings.Contains(dtype, "e5m2")
}

// ceiling is a measured rate of the device, and the share of it that a row reaches.
type ceiling struct {
	share     float64
	key, name string
}

// nearest is the ceiling that a row comes nearest to: that of the products of its number format, or
// that of a copy. The row has shares.
func nearest(row run.BenchRow) ceiling {
	compute := ceiling{row.Shares.BF16, "bf16_gemm", "the measured BF16 GEMM rate"}
	if eightBit(row.DType) {
		compute = ceiling{row.Shares.FP8, "fp8_gemm", "the measured FP8 GEMM rate"}
	}
	if row.Shares.Copy > compute.share {
		return ceiling{row.Shares.Copy, "copy", "the measured copy rate"}
	}
	return compute
}

// benchRoofline has our rows below the measured ceilings, by the bytes that the problem must move; nil
// without ceilings.
func benchRoofline(b *run.Bench) *plot.Roofline {
	if b.Ceilings == nil {
		return nil
	}
	c := b.Ceilings
	p := &plot.Roofline{
		Title: "Roofline of " + c.Device, X: "FLOPs per byte that the problem must move",
		Memory:  plot.Ceiling{Name: "copy", Basis: "measured: " + c.Measured, PerSecond: 1e12 * c.CopyTBps},
		Compute: []plot.Ceiling{{Name: "BF16 GEMM", Basis: "measured", PerSecond: 1e12 * c.BF16}},
	}
	best := map[string]run.BenchRow{}
	var order []string
	for _, row := range b.Rows { // the best shape of each of our variants
		if row.Peer || row.Shares == nil || row.TFLOPS == nil || row.Shares.Copy <= 0 {
			continue
		}
		top, known := best[row.Name]
		if !known {
			order = append(order, row.Name)
		}
		if !known || nearest(row).share > nearest(top).share {
			best[row.Name] = row
		}
	}
	for _, name := range order {
		row := best[name]
		if eightBit(row.DType) && len(p.Compute) == 1 {
			p.Compute = append(p.Compute, plot.Ceiling{Name: "FP8 GEMM", Basis: "measured", PerSecond: 1e12 * c.FP8})
		}
		p.Points = append(p.Points, plot.RooflinePoint{
			Name: pointName(b, row), Intensity: *row.TFLOPS / (row.Shares.Copy * c.CopyTBps), PerSecond: 1e12 * *row.TFLOPS,
		})
	}
	if len(p.Points) == 0 {
		return nil
	}
	return p
}

// pointName names a row in a roofline, with the mark of approximate exponentials.
func pointName(b *run.Bench, row run.BenchRow) string {
	name := row.Name
	if ApproximateRow(b, row) {
		name += " ~"
	}
	return name + " on " + shapeLabel(row.Shape, row.ShapeName)
}

// benchStrips has the samples of the first shapes: the fastest peer as the baseline, then ours, then
// the other peers, each by time. It is nil without samples.
func benchStrips(b *run.Bench) *plot.Strips {
	p := &plot.Strips{Title: "Samples, " + b.Facts.Name, Unit: "us"}
	var shapes []string
	for _, row := range b.Rows {
		if len(row.Seconds) > 0 && !slices.Contains(shapes, row.Shape) && len(shapes) < mostStrips {
			shapes = append(shapes, row.Shape)
		}
	}
	for _, shape := range shapes {
		p.Groups = append(p.Groups, stripGroup(b, shape))
	}
	if len(p.Groups) == 0 {
		return nil
	}
	return p
}

func stripGroup(b *run.Bench, shape string) plot.StripGroup {
	rows := slices.DeleteFunc(slices.Clone(b.Rows), func(row run.BenchRow) bool { return row.Shape != shape || len(row.Seconds) == 0 || row.P50US == nil })
	fastest := ""
	for _, row := range rows {
		if row.Peer && (fastest == "" || *row.P50US < p50Of(rows, fastest)) {
			fastest = row.Name
		}
	}
	place := func(row run.BenchRow) int {
		switch {
		case row.Name == fastest:
			return 0
		case !row.Peer:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(rows, func(x, y run.BenchRow) int { return cmp.Or(place(x)-place(y), cmp.Compare(*x.P50US, *y.P50US)) })
	group := plot.StripGroup{Name: shape}
	for _, best := range b.Best { // the recorded ratio is interleaved, that of the medians is not
		if len(rows) > 1 && best.Shape == shape && best.Peer == rows[0].Name && best.Variant == rows[1].Name {
			group.Ratio = best.Speedup.Ratio
		}
	}
	for _, row := range rows {
		kind := plot.Own
		if row.Peer {
			kind = plot.Peer
		}
		group.Name = shapeLabel(row.Shape, row.ShapeName)
		group.Series = append(group.Series, plot.StripSeries{Name: seriesName(b, row), Kind: kind, Samples: microseconds(slices.Concat(row.Seconds...))})
	}
	return group
}

// p50Of is the time of an implementation.
func p50Of(rows []run.BenchRow, name string) float64 {
	for _, row := range rows {
		if row.Name == name {
			return *row.P50US
		}
	}
	return math.Inf(1)
}
