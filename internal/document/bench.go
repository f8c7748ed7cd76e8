package document

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/plot"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/tensor"
)

// rooflinePlot is the plot of one profiled launch.
func rooflinePlot(variant string, p *profile.Profile) Plot { return RooflinePlot(variant, p) }

// Document is the report on a bench.
func (s *BenchStudy) Document() *Document {
	b, from := s.Bench, benchRecord(s.Bench.ID)
	d := &Document{Title: say("Bench of ", from.text(b.Kernel, "kernel"), ", ", from.text(b.ID, "id")), Headline: benchHeadline(b)}
	section := Section{ID: "throughput", Title: say("Throughput and roofline")}
	for i, p := range throughputPlots(b) {
		section.Blocks = append(section.Blocks, Figure{Name: fmt.Sprintf("throughput-%d", i), Plot: p})
	}
	if p := benchRoofline(b); p != nil {
		section.Blocks = append(section.Blocks, Figure{Name: "roofline", Plot: p})
	}
	times := say("Inputs is the number format. Compare rows of equal formats, or keep the difference in mind. ", approximationNote(b))
	d.Sections = []Section{section, {ID: "rows", Title: say("Times"), Blocks: []Block{times, benchTable(b)}}}
	if best := bestTable(b); len(best.Rows) > 0 {
		d.Sections = append(d.Sections, Section{ID: "best", Title: say("Our best beside the best peer"), Blocks: []Block{best}})
	}
	if strips := benchStrips(b); strips != nil {
		d.Sections = append(d.Sections, Section{ID: "samples", Title: say("Samples of the first shapes"), Blocks: []Block{Figure{Name: "samples", Plot: strips}}})
	}
	command := []Block{s.Commands.bench(from.text(b.Command, "command"), b.Kernel)}
	if !hasKernel(b.Command) {
		command = append(command, s.Commands.unknownKernel(from.code(b.Kernel, "kernel"))...)
	}
	d.Sections = append(d.Sections, benchConditions(b), Section{ID: "reproduce", Title: say("Reproduce it"), Blocks: append(command, leftOut(s.LeftOut)...)})
	return dropEmpty(d)
}

// dropEmpty removes sections without content.
func dropEmpty(d *Document) *Document {
	d.Sections = slices.DeleteFunc(d.Sections, func(s Section) bool { return len(s.Blocks) == 0 })
	return d
}

// benchHeadline is a bench in three lines.
func benchHeadline(b *run.Bench) []Text {
	from := benchRecord(b.ID)
	var lines []Text
	if b.Ended != "" {
		lines = append(lines, unfinished(b))
	}
	low, high := -1, -1
	for i, best := range b.Best {
		if low < 0 || best.Speedup.Ratio < b.Best[low].Speedup.Ratio {
			low = i
		}
		if high < 0 || best.Speedup.Ratio > b.Best[high].Speedup.Ratio {
			high = i
		}
	}
	if low >= 0 {
		for _, c := range []struct {
			word string
			at   int
		}{{"Largest lead", high}, {"Smallest lead", low}} {
			best := b.Best[c.at]
			lines = append(lines, say(c.word, " over the best peer: ", from.figure("%.3f", best.Speedup.Ratio, "best.%d.speedup.ratio", c.at), "x", bestMark(b, best), ", by ",
				from.code(best.Variant, "best.%d.variant", c.at), " over ", from.text(best.Peer, "best.%d.peer", c.at), " on ", from.text(best.Shape, "best.%d.shape", c.at), "."))
		}
	} else {
		lines = append(lines, say("No peer was timed."))
	}
	return append(lines, measuredOn(from.text(b.Facts.Name, "facts.name"), from.text(b.Facts.Driver, "facts.driver")))
}

// unfinished names the shapes that a bench did not reach.
func unfinished(b *run.Bench) Text {
	from := benchRecord(b.ID)
	line := say("NOT FINISHED: ", counted(from, len(b.Checked), "answers", nil), " of ", counted(from, len(b.Requested), "asked_shapes", nil),
		" shapes: ", from.text(firstLine(b.Ended), "ended"))
	separator := ". Missing: "
	for i, shape := range b.Requested {
		if !slices.ContainsFunc(b.Checked, func(c run.CheckedShape) bool { return c.Shape == shape }) {
			line = append(line, say(separator, from.text(shape, "asked_shapes.%d", i))...)
			separator = ", "
		}
	}
	return append(line, say(".")...)
}

func benchTable(b *run.Bench) Table {
	from := benchRecord(b.ID)
	t := Table{Columns: columns("shape", "implementation", "inputs", "p50 us", "interval", "TFLOP/s", "GB/s", "mJ per launch", "max_err", "mean_err", "variant")}
	for i, row := range b.Rows {
		at := fmt.Sprintf("rows.%d.", i)
		figure := func(format string, v *float64, key string) Text { return cell(from.optional(format, v, "%s", at+key)) }
		variant, energy := cell(missing), cell(missing)
		if row.Variant != "" {
			variant = cell(from.code(row.Variant, "rows.%d.variant", i))
		}
		if row.Joules > 0 {
			energy = cell(derived("%.3g", 1000*row.Joules, "1000 * "+from.key("rows.%d.joules_per_launch", i)))
		}
		name := cell(from.text(row.Name, "rows.%d.name", i))
		if row.Wrong != "" {
			name = append(name, say(" (wrong: ", from.text(firstLine(row.Wrong), "rows.%d.wrong", i), ")")...)
		}
		t.Rows = append(t.Rows, []Text{
			shapeOf(from, row.Shape, row.ShapeName, "rows", i), name, cell(from.text(row.DType, "rows.%d.dtype", i)),
			append(figure("%.2f", row.P50US, "p50_us"), approximation(b, row)...),
			from.interval("%.2f", row.P50LowUS, row.P50HighUS, at+"p50_low_us", at+"p50_high_us"), figure("%.4g", row.TFLOPS, "tflops"), figure("%.4g", row.GBPerS, "gb_per_s"),
			energy, figure("%.3g", row.MaxErr, "max_err"), figure("%.3g", row.MeanErr, "mean_err"), variant,
		})
	}
	return withoutEmpty(t)
}

func bestTable(b *run.Bench) Table {
	from := benchRecord(b.ID)
	t := Table{Columns: columns("shape", "our best", "best peer", "speedup", "95 % interval")}
	for i, best := range b.Best {
		t.Rows = append(t.Rows, []Text{
			cell(from.text(best.Shape, "best.%d.shape", i)), cell(from.code(best.Variant, "best.%d.variant", i)), cell(from.text(best.Peer, "best.%d.peer", i)),
			say(from.figure("%.3f", best.Speedup.Ratio, "best.%d.speedup.ratio", i), "x", bestMark(b, best)),
			from.interval("%.3f", &best.Speedup.Low, &best.Speedup.High, fmt.Sprintf("best.%d.speedup.low", i), fmt.Sprintf("best.%d.speedup.high", i)),
		})
	}
	return t
}

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

// approximation marks a figure of a kernel with approximate exponentials.
func approximation(b *run.Bench, row run.BenchRow) Text {
	if row.P50US != nil && ApproximateRow(b, row) {
		return say("~")
	}
	return nil
}

// bestMark marks the lead of a kernel with approximate exponentials.
func bestMark(b *run.Bench, best run.BestRow) Text {
	for _, row := range b.Rows {
		if !row.Peer && row.Shape == best.Shape && row.Name == best.Variant {
			return approximation(b, row)
		}
	}
	return nil
}

// approximationText explains the mark.
const approximationText = "A figure with ~ is of a kernel that computes some exponentials by a linear approximation; " +
	"all others are exact to within what their number format rounds away."

// approximationNote explains the mark, if a row has it.
func approximationNote(b *run.Bench) string {
	if slices.ContainsFunc(b.Rows, func(row run.BenchRow) bool { return row.P50US != nil && ApproximateRow(b, row) }) {
		return approximationText
	}
	return ""
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

// benchConditions says how the times were taken.
func benchConditions(b *run.Bench) Section {
	from := benchRecord(b.ID)
	blocks := []Block{say("Times are ", from.text(b.Timing, "timing"), ".")}
	if b.Timing == "" {
		blocks = nil
	}
	list := List{}
	for i, s := range b.Skipped {
		list = append(list, say(from.text(s.Name, "left_out.%d.name", i), " was skipped: ", from.text(firstLine(s.Why), "left_out.%d.why", i)))
	}
	if len(list) > 0 {
		blocks = append(blocks, list)
	}
	if b.Ended != "" {
		blocks = append(blocks, say("Shapes are missing: ", from.text(firstLine(b.Ended), "ended"), "."))
	}
	return Section{ID: "conditions", Title: say("Conditions"), Blocks: blocks}
}
