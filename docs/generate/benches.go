package main

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"attune/internal/device"
	"attune/internal/document"
	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/tensor"
)

// flash3 is the peer FlashAttention-3. All other peers are backends of PyTorch.
const flash3 = "fa3-fp8"

// column is one implementation of a bench, or the whole of a selection.
type column struct {
	name, inputs string
	peer         bool
	selection    bool
	rows         map[string]run.BenchRow // by shape
}

// title is the name in a table. PyTorch's backends lose their prefix, to keep tables narrow.
func (c column) title() string {
	name, _ := strings.CutPrefix(c.name, "torch-")
	return name
}

func benchColumns(b *run.Bench) []column {
	var all []column
	for _, r := range b.Rows {
		i := slices.IndexFunc(all, func(c column) bool { return c.name == r.Name })
		if i < 0 {
			i = len(all)
			all = append(all, column{name: r.Name, inputs: r.DType, peer: r.Peer, rows: map[string]run.BenchRow{}})
		}
		all[i].selection = all[i].selection || r.Variant != ""
		all[i].rows[r.Shape] = r
	}
	return all
}

// exp2 names the exponentials of a column on some shapes.
func (c column) exp2(b *run.Bench, shapes []string) string {
	kinds := map[string]document.Exponentials{}
	for _, s := range shapes {
		if r, ok := c.rows[s]; ok {
			kinds[s] = document.BenchExponentials(b, r)
		}
	}
	return exp2Kind(kinds)
}

// cell formats a figure of a column on a shape.
func (c column) cell(b *run.Bench, shape string, figure func(run.BenchRow) (string, bool)) string {
	r, ok := c.rows[shape]
	if !ok {
		return "-"
	}
	if r.Wrong != "" {
		return "WRONG"
	}
	text, ok := figure(r)
	if !ok {
		return "-"
	}
	return text + document.BenchExponentials(b, r).Mark()
}

func benchFigure(format string, value func(run.BenchRow) *float64) func(run.BenchRow) (string, bool) {
	return func(r run.BenchRow) (string, bool) {
		if v := value(r); v != nil {
			return fmt.Sprintf(format, *v), true
		}
		return "", false
	}
}

var (
	timeFigure   = benchFigure("%.2f", func(r run.BenchRow) *float64 { return r.P50US })
	tflopsFigure = benchFigure("%.0f", func(r run.BenchRow) *float64 { return r.TFLOPS })
)

// errorFigure is the mean error in multiples of 10^-3, with three digits.
func errorFigure(r run.BenchRow) (string, bool) {
	if r.MeanErr == nil {
		return "", false
	}
	return strconv.FormatFloat(1e3**r.MeanErr, 'g', 3, 64), true
}

// benchSection writes a bench: shapes of a sweep as throughput, others as times.
func benchSection(out *bytes.Buffer, b *run.Bench) {
	fmt.Fprintf(out, "\n## Bench %s: %s, %s\n\n", shortID(b.ID), besideText(b), loadText(b))
	sweep, others := splitShapes(b)
	all := benchColumns(b)
	peers := slices.ContainsFunc(all, func(c column) bool { return c.peer })
	ours := slices.DeleteFunc(slices.Clone(all), func(c column) bool { return c.peer })
	paragraph(out, "%s", benchConditions(b))
	if len(others) > 0 {
		fmt.Fprintf(out, "\nTimes in us:\n\n")
		byShape(out, b, all, others, timeFigure)
		speedups(out, b, ours, others)
	}
	if len(others) > 0 && (peers || len(ours) > 1) {
		fmt.Fprintf(out, "\nMean absolute error against float64 on the values of the quantised inputs, in units of 0.001:\n\n")
		byShape(out, b, all, others, errorFigure)
	}
	if len(sweep) > 0 {
		out.WriteString("\n")
		paragraph(out, "Throughput in TFLOP/s at %d tokens (batch times sequence) and %d hidden elements (heads times head dim), "+
			"with one column per sequence length. A causal mask halves the counted work.", sweepTokens, sweepHidden)
		throughput(out, b, all, sweep, "", tflopsFigure)
		if peers || len(ours) > 1 {
			out.WriteString("\nMean absolute error against float64 on the same shapes, in units of 0.001:\n")
			throughput(out, b, all, sweep, "error", errorFigure)
		}
	}
	writeSkipped(out, b)
	fmt.Fprintf(out, "\nThe command:\n\n```sh\n%s\n```\n", wrapCommand(presentFlags(b.Command)))
}

// besideText names the peers that were timed, with their number formats.
func besideText(b *run.Bench) string {
	torch, flash := []string{}, false
	for _, r := range b.Rows {
		switch {
		case !r.Peer || r.P50US == nil:
		case r.Name == flash3:
			flash = true
		case !slices.Contains(torch, r.DType):
			torch = append(torch, r.DType)
		}
	}
	var names []string
	if len(torch) > 0 {
		names = append(names, "PyTorch ("+strings.Join(torch, ", ")+")")
	}
	if flash {
		names = append(names, "FlashAttention-3 (e4m3)")
	}
	if len(names) == 0 {
		return "no peers"
	}
	return "beside " + strings.Join(names, " and ")
}

// benchFlag is the value of a flag of a bench's command.
func benchFlag(b *run.Bench, flag string) string {
	words := strings.Fields(b.Command)
	if i := slices.Index(words, flag); i >= 0 && i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

// restOf and loadOf are how long the GPU rested, or was loaded, before each sample: 0 without the
// flag.
func restOf(b *run.Bench) time.Duration { return durationFlag(b, "--rest") }
func loadOf(b *run.Bench) time.Duration { return durationFlag(b, "--load") }

func durationFlag(b *run.Bench, flag string) time.Duration {
	duration, _ := time.ParseDuration(benchFlag(b, flag))
	return duration
}

// durationText writes a duration with a space before its unit.
func durationText(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}

// loadText describes the load of a bench on the GPU.
func loadText(b *run.Bench) string {
	text := "steady load"
	switch rest, load := restOf(b), loadOf(b); {
	case load > 0:
		text = "steady load of " + durationText(load) + " before each sample"
	case rest > 0:
		text = "rests of " + durationText(rest)
	}
	if launches := benchFlag(b, "--launches"); launches != "" && launches != fmt.Sprint(device.DefaultLaunches) {
		text += ", graphs of " + launches
	}
	return text
}

// presentFlags replaces flags of recorded commands by their present names.
func presentFlags(command string) string { return strings.ReplaceAll(command, " --seed ", " --seeds ") }

// deviceLine describes a device and its driver.
func deviceLine(name, arch string, multiprocessors int, driver string) string {
	text := name + ", " + arch
	if multiprocessors > 0 {
		text += fmt.Sprintf(", %d multiprocessors", multiprocessors)
	}
	if driver != "" {
		text += ", driver " + driver
	}
	return text
}

// paceSentence says what the GPU did before each sample.
func paceSentence(rest, load time.Duration) string {
	switch {
	case load > 0:
		return fmt.Sprintf(" The launches of a sample ran for %s before it without a pause: the load was steady, and a kernel that draws "+
			"all the power the GPU allows runs slower than in short bursts.", durationText(load))
	case rest > 0:
		return fmt.Sprintf(" The GPU rested for %s before each sample, as in measurements of short bursts.", durationText(rest))
	}
	return " The load was steady: a kernel that draws all the power the GPU allows runs slower than in short bursts."
}

func benchConditions(b *run.Bench) string {
	text := deviceLine(b.Facts.Name, b.Facts.Arch, b.Facts.Multiprocessors, b.Facts.Driver)
	if b.Peers != nil {
		text += "; " + document.PeerVersions(b)
	}
	text += fmt.Sprintf("; attune %s, %s. %d samples of each implementation and shape in %d interleaved blocks.",
		b.Attune, b.Time.Format(time.DateOnly), b.Rounds, b.Blocks)
	text += paceSentence(restOf(b), loadOf(b))
	if m := b.Monitored; m != nil {
		text += fmt.Sprintf(" SM clock %s MHz, at most %.0f W and %d C", document.Range("%d", m.ClockMHz[0], m.ClockMHz[1]), m.PowerWatts, m.Celsius)
		if m.Throttled > 0 {
			text += fmt.Sprintf("; throttled in %d of %d rounds (%s)", m.Throttled, m.Rounds, strings.Join(m.Reasons, ", "))
		}
		text += "."
	}
	if b.EmptyNodeUS != nil {
		text += fmt.Sprintf(" An empty graph node takes %.2f us, which every time includes.", *b.EmptyNodeUS)
	}
	return text + checkedText(b)
}

// checkedText says on how many rows the outputs were checked.
func checkedText(b *run.Bench) string {
	low, high, sampled := 0, 0, 0
	for _, c := range b.Checked {
		if !c.Whole() {
			if sampled == 0 || c.Rows < low {
				low = c.Rows
			}
			high, sampled = max(high, c.Rows), sampled+1
		}
	}
	switch sampled {
	case 0:
		return " Every output was checked on all rows."
	case len(b.Checked):
		return fmt.Sprintf(" Every output was checked, on a sample of %s rows.", document.Range("%d", low, high))
	}
	return fmt.Sprintf(" Every output was checked: of %d shapes on a sample of %s rows, of the others on all rows.",
		sampled, document.Range("%d", low, high))
}

// splitShapes separates the shapes of a sweep over lengths from the others.
func splitShapes(b *run.Bench) (sweep []tensor.Shape, others []string) {
	for _, c := range b.Checked {
		if s, err := tensor.ParseShape(c.Shape); err == nil && inSweep(s) {
			sweep = append(sweep, s)
		} else {
			others = append(others, c.Shape)
		}
	}
	return sweep, others
}

// byShape writes a table with one line per shape. If it is too wide, the implementations are spread
// over several tables.
func byShape(out *bytes.Buffer, b *run.Bench, columns []column, shapes []string, figure func(run.BenchRow) (string, bool)) {
	first := []string{"inputs", "exp2"}
	first = append(first, shapes...)
	var cells [][]string
	for _, c := range columns {
		lines := []string{c.inputs, c.exp2(b, shapes)}
		for _, shape := range shapes {
			lines = append(lines, c.cell(b, shape, figure))
		}
		cells = append(cells, append([]string{c.title()}, lines...))
	}
	cells = append([][]string{append([]string{"shape"}, first...)}, cells...)
	for i, group := range groupsThatFit(cells) {
		if i > 0 {
			out.WriteString("\n")
		}
		header, rows := transpose(group)
		alignedTable(out, header, rows)
	}
}

// groupsThatFit splits columns of cells into tables of at most documentWidth. Each starts with the
// first column.
func groupsThatFit(columns [][]string) [][][]string {
	width := func(cells []string) int {
		most := 0
		for _, c := range cells {
			most = max(most, len([]rune(c)))
		}
		return most + len(" | ")
	}
	var groups [][][]string
	total := 0
	for _, c := range columns[1:] {
		if len(groups) == 0 || total+width(c) > documentWidth {
			groups = append(groups, [][]string{columns[0]})
			total = width(columns[0]) + len("| |") - len(" | ") + 1
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], c)
		total += width(c)
	}
	return groups
}

func transpose(columns [][]string) (header []string, rows [][]string) {
	for i := range columns[0] {
		var row []string
		for _, c := range columns {
			row = append(row, c[i])
		}
		rows = append(rows, row)
	}
	return rows[0], rows[1:]
}

// speedups compares our selections, or all variants if there are none, with the fastest peer of each
// number format.
func speedups(out *bytes.Buffer, b *run.Bench, ours []column, shapes []string) {
	var formats []string
	for _, r := range b.Rows {
		if r.Peer && !slices.Contains(formats, r.DType) {
			formats = append(formats, r.DType)
		}
	}
	for _, c := range headlineColumns(ours) {
		header := []string{"shape"}
		lines := map[string][]string{}
		var means []string
		for _, format := range formats {
			header = append(header, "over the fastest "+format+" peer", "peer")
			var all []measure.Speedup
			for _, shape := range shapes {
				cell, name := "-", "-"
				if peer, speedup := fastestPeer(b, c, shape, format); peer != "" {
					mark := document.BenchExponentials(b, c.rows[shape]).Mark()
					cell, name = fmt.Sprintf("%.3fx%s (%.3f to %.3f)", speedup.Ratio, mark, speedup.Low, speedup.High), column{name: peer}.title()
					all = append(all, speedup)
				}
				lines[shape] = append(lines[shape], cell, name)
			}
			if len(all) > 1 {
				means = append(means, fmt.Sprintf("%.2fx over the fastest %s peer of each shape (%d shapes)", geometricMean(all), format, len(all)))
			}
		}
		if len(formats) == 0 {
			continue
		}
		fmt.Fprintf(out, "\nSpeedup of `%s` (%s inputs, %s exponentials), with its 95 %% interval:\n\n", c.name, c.inputs, c.exp2(b, shapes))
		var rows [][]string
		for _, shape := range shapes {
			rows = append(rows, append([]string{shape}, lines[shape]...))
		}
		alignedTable(out, header, rows)
		if len(means) > 0 {
			out.WriteString("\n")
			paragraph(out, "Geometric mean: %s.", strings.Join(means, "; "))
		}
	}
}

// headlineColumns are the selections among our columns, or all of them if there are none.
func headlineColumns(ours []column) []column {
	selections := slices.DeleteFunc(slices.Clone(ours), func(c column) bool { return !c.selection })
	if len(selections) > 0 {
		return selections
	}
	return ours
}

// fastestPeer is the fastest peer of a number format on a shape, and the speedup of ours over it. The
// name is empty if one of them has no time.
func fastestPeer(b *run.Bench, ours column, shape, format string) (string, measure.Speedup) {
	mine := ours.rows[shape]
	var best *run.BenchRow
	for i, r := range b.Rows {
		if r.Peer && r.Shape == shape && r.DType == format && r.P50US != nil && (best == nil || *r.P50US < *best.P50US) {
			best = &b.Rows[i]
		}
	}
	if best == nil || mine.P50US == nil {
		return "", measure.Speedup{}
	}
	return best.Name, measure.CompareBlocks(best.Seconds, mine.Seconds)
}

func geometricMean(all []measure.Speedup) float64 {
	sum := 0.0
	for _, s := range all {
		sum += math.Log(s.Ratio)
	}
	return math.Exp(sum / float64(len(all)))
}

// throughput writes a table per head dim, with a line for each mask and implementation. With
// figures other than throughput it has no ratios.
func throughput(out *bytes.Buffer, b *run.Bench, columns []column, sweep []tensor.Shape, what string, figure func(run.BenchRow) (string, bool)) {
	var dims, lengths []int
	for _, s := range sweep {
		dims, lengths = append(dims, s.HeadDim), append(lengths, s.SeqQ)
	}
	slices.Sort(dims)
	slices.Sort(lengths)
	for _, dim := range slices.Compact(dims) {
		header := []string{"mask", "name", "inputs", "exp2"}
		for _, n := range slices.Compact(slices.Clone(lengths)) {
			header = append(header, fmt.Sprint(n))
		}
		var rows [][]string
		for _, causal := range []bool{false, true} {
			shapes := sweepLine(sweep, slices.Compact(slices.Clone(lengths)), dim, causal)
			rows = append(rows, throughputRows(b, columns, shapes, causal, figure)...)
			if what == "" {
				rows = append(rows, ratioRows(b, columns, shapes, causal)...)
			}
		}
		fmt.Fprintf(out, "\nHead dim %d%s:\n\n", dim, map[bool]string{true: "", false: ", mean error"}[what == ""])
		alignedTable(out, header, rows)
	}
}

// sweepLine lists the shapes of one head dim and mask by length; empty where there is none.
func sweepLine(sweep []tensor.Shape, lengths []int, dim int, causal bool) []string {
	var shapes []string
	for _, n := range lengths {
		at := slices.IndexFunc(sweep, func(s tensor.Shape) bool { return s.HeadDim == dim && s.Causal == causal && s.SeqQ == n })
		if at < 0 {
			shapes = append(shapes, "")
			continue
		}
		shapes = append(shapes, sweep[at].String())
	}
	return shapes
}

func maskWord(causal bool) string {
	if causal {
		return "causal"
	}
	return "none"
}

func throughputRows(b *run.Bench, columns []column, shapes []string, causal bool, figure func(run.BenchRow) (string, bool)) [][]string {
	var rows [][]string
	for _, c := range columns {
		row := []string{maskWord(causal), c.title(), c.inputs, c.exp2(b, shapes)}
		for _, shape := range shapes {
			row = append(row, c.cell(b, shape, figure))
		}
		if slices.ContainsFunc(row[4:], func(cell string) bool { return cell != "-" }) {
			rows = append(rows, row)
		}
	}
	return rows
}

// ratioRows compares our selections with each peer of the same number format.
func ratioRows(b *run.Bench, columns []column, shapes []string, causal bool) [][]string {
	ours := headlineColumns(slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return c.peer }))
	var rows [][]string
	for _, peer := range columns {
		for _, c := range ours {
			if !peer.peer || peer.inputs != c.inputs {
				continue
			}
			name := c.name + " / " + strings.TrimSuffix(peer.title(), "-fp8") // "inputs" has the type
			if len(ours) == 1 {
				name = "/ " + peer.title()
			}
			row := []string{maskWord(causal), name, c.inputs, c.exp2(b, shapes)}
			for _, shape := range shapes {
				cell := "-"
				if mine, theirs := c.rows[shape], peer.rows[shape]; mine.P50US != nil && theirs.P50US != nil {
					cell = fmt.Sprintf("%.2fx%s", *theirs.P50US / *mine.P50US, document.BenchExponentials(b, mine).Mark())
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// writeSkipped lists peers that were not timed, and shapes that were not finished.
func writeSkipped(out *bytes.Buffer, b *run.Bench) {
	if lines := document.SkippedLines(b.Skipped); len(lines) > 0 {
		out.WriteString("\n")
		for _, line := range lines {
			listItem(out, line)
		}
	}
	if b.Ended != "" {
		fmt.Fprintf(out, "\nNot finished: %d of %d shapes: %s.\n", len(b.Checked), len(b.Requested), b.Ended)
	}
}
