package document

import (
	"fmt"
	"slices"

	"attune/internal/run"
)

// Document is what people read about a bench.
func (s *BenchStudy) Document() *Document {
	b, from := s.Bench, benchRecord(s.Bench.ID)
	device := benchDevice(b)
	if !b.Time.IsZero() {
		device += ", " + b.Time.UTC().Format(dateLayout)
	}
	d := &Document{
		Title:    say("Bench of ", from.text(b.Kernel, "kernel")),
		Headline: benchHeadline(b),
		Brief:    append(leadTexts(b), say(device)),
	}
	if b.ID != "" {
		d.Title = append(d.Title, say(", ", from.text(b.ID, "id"))...)
	}
	section := Section{ID: "throughput", Title: say("Throughput and roofline")}
	for i, p := range throughputPlots(b) {
		section.Blocks = append(section.Blocks, Figure{Name: fmt.Sprintf("throughput-%d", i), Plot: p})
	}
	if p := benchRoofline(b); p != nil {
		section.Blocks = append(section.Blocks, Figure{Name: "roofline", Plot: p})
	}
	section.Depth = Long
	times := say("Inputs is the number format. Compare rows of equal formats, or keep the difference in mind. ", approximationNote(b))
	rows := Section{ID: "rows", Title: say("Times"), Blocks: []Block{only(Long, times), benchTable(b)}}
	if b.Random != nil { // too many for a terminal, which has the worst
		rows.Depth = Long
	}
	d.Sections = append(randomSections(b), section, rows)
	if best := bestTable(b); len(best.Rows) > 0 {
		d.Sections = append(d.Sections, Section{ID: "best", Title: say("Our best beside the best peer"), Depth: Long, Blocks: []Block{best, overallText(b)}})
	}
	if strips := benchStrips(b); strips != nil {
		figure := Figure{Name: "samples", Plot: strips}
		d.Sections = append(d.Sections, Section{ID: "samples", Title: say("Samples of the first shapes"), Depth: Long, Blocks: []Block{figure}})
	}
	d.Sections = append(d.Sections, benchConditions(b), s.reproduce())
	return dropEmpty(d)
}

// leadTexts are the first lines on a terminal.
func leadTexts(b *run.Bench) []Text {
	if b.Random != nil {
		return randomTexts(b)
	}
	return []Text{overallText(b)}
}

// reproduce has the command that repeats the bench.
func (s *BenchStudy) reproduce() Section {
	b, from := s.Bench, benchRecord(s.Bench.ID)
	var blocks []Block
	if b.Command != "" {
		blocks = append(blocks, s.Commands.bench(from.text(b.Command, "command"), b.Kernel))
	}
	if !hasKernel(b.Command) {
		blocks = append(blocks, s.Commands.unknownKernel(from.code(b.Kernel, "kernel"))...)
	}
	if origin := originText(b); origin != "" {
		blocks = append(blocks, cell(from.summary(origin, "attune")))
	}
	return Section{ID: "reproduce", Title: say("Reproduce it"), Depth: Long, Blocks: append(blocks, leftOut(s.LeftOut)...)}
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
	if b.Random != nil {
		lines = append(lines, randomTexts(b)...)
		return append(lines, measuredOn(from.text(b.Facts.Name, "facts.name"), from.text(b.Facts.Driver, "facts.driver")))
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

// benchTable has a row for each implementation on each shape.
func benchTable(b *run.Bench) Table {
	t := Table{Columns: []Column{
		named("shape", Column{}),
		named("name", Column{Keep: true}),
		named("variant", Column{Optional: 6}),
		named("inputs", Column{}),
		named("p50 us", Column{Keep: true, Colour: wordColour}),
		named("±", Column{Optional: 8}),
		named("interval", Column{Depth: Long}),
		named("TFLOP/s", Column{Keep: true, Optional: 1}),
		named("GB/s", Column{Keep: true, Optional: 1}),
		named("mJ", Column{Optional: 9}),
		named("speedup", Column{}),
		named("95 % interval", Column{Optional: 7}),
		named("max_err", Column{Optional: 2}),
		named("mean_err", Column{Depth: Long}),
		named("of bf16", Column{Optional: 4}),
		named("of FP8", Column{Optional: 3}),
		named("of copy", Column{Optional: 5}),
	}}
	alone := !slices.ContainsFunc(b.Rows, func(r run.BenchRow) bool { return r.Speedup != nil })
	for i := range b.Rows {
		t.Rows = append(t.Rows, benchRow(b, i, alone))
	}
	return t
}

// benchRow has the cells of one row. A speedup is that of our best variant over it; alone means that
// there is nothing to compare with.
func benchRow(b *run.Bench, i int, alone bool) []Text {
	r, from, at := b.Rows[i], benchRecord(b.ID), fmt.Sprintf("rows.%d.", i)
	figure := func(format string, v *float64, key string) Text { return cell(from.optional(format, v, "%s", at+key)) }
	shape := cell(from.text(r.Shape, "%sshape", at))
	if r.ShapeName != "" {
		shape = append(shape, Span{Text: " (", Long: true}, Span{Text: r.ShapeName, Source: from.key("%sshape_name", at), Long: true}, Span{Text: ")", Long: true})
	}
	row := []Text{
		shape, cell(from.variant(r.Name, "%sname", at)), cell(missing), cell(from.text(r.DType, "%sdtype", at)), cell(missing),
		cell(missing), from.interval("%.2f", r.P50LowUS, r.P50HighUS, at+"p50_low_us", at+"p50_high_us"), cell(missing), cell(missing),
		cell(missing), cell(missing), cell(missing), figure("%.3g", r.MaxErr, "max_err"), figure("%.3g", r.MeanErr, "mean_err"),
		cell(missing), cell(missing), cell(missing),
	}
	if r.Variant != "" {
		row[2] = cell(from.variant(r.Variant, "%svariant", at))
	}
	if r.P50US != nil {
		row[4] = append(figure("%.2f", r.P50US, "p50_us"), approximation(b, r)...)
		row[7], row[8] = figure("%.2f", r.TFLOPS, "tflops"), figure("%.0f", r.GBPerS, "gb_per_s")
	}
	if r.P50LowUS != nil && r.P50HighUS != nil && r.P50US != nil {
		row[5] = cell(from.summary(spread(*r.P50US, *r.P50LowUS, *r.P50HighUS), "%sp50_us", at))
	}
	if r.Joules > 0 {
		row[9] = from.millijoules(&r.Joules, at+"joules_per_launch")
	}
	switch {
	case r.Wrong != "":
		row[4] = say(wrongWord(r))
	case r.Speedup != nil:
		row[10] = cell(from.figure("%.3fx", r.Speedup.Ratio, "%sspeedup.ratio", at))
		row[11] = from.interval("%.3f", &r.Speedup.Low, &r.Speedup.High, at+"speedup.low", at+"speedup.high")
	case !r.Peer && !alone:
		row[10] = say("best")
	}
	if r.Shares != nil {
		for j, s := range []struct {
			share float64
			key   string
		}{{r.Shares.BF16, "bf16_gemm"}, {r.Shares.FP8, "fp8_gemm"}, {r.Shares.Copy, "copy"}} {
			if s.share > 0 {
				row[14+j] = cell(derived("%.1f %%", 100*s.share, "100 * "+from.key("%sshares.%s", at, s.key)))
			}
		}
	}
	return row
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

// approximation marks a figure of a kernel with approximate exponentials.
func approximation(b *run.Bench, row run.BenchRow) Text {
	if row.P50US != nil && ApproximateRow(b, row) {
		return cell(Span{Text: "~", Long: true})
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

// wrongWord is the outcome of a row without times.
func wrongWord(r run.BenchRow) string {
	if r.Unchecked {
		return "not checked"
	}
	return "WRONG"
}

// benchConditions says what was wrong, and how the times were taken.
func benchConditions(b *run.Bench) Section {
	from := benchRecord(b.ID)
	section := Section{ID: "conditions", Title: say("Conditions")}
	add := func(text, key string, args ...any) {
		section.Blocks = append(section.Blocks, cell(from.summary(text, key, args...)))
	}
	section.Blocks = append(section.Blocks, only(Long, cell(from.summary(benchDevice(b), "facts"))))
	for i, r := range b.Rows {
		if r.Wrong != "" {
			add(fmt.Sprintf("%s: %s on %s: %s", wrongWord(r), r.Name, r.Shape, r.Wrong), "rows.%d.wrong", i)
		}
	}
	if text := sampledText(b); b.Random != nil && text != "" {
		add(text, "answers")
	}
	for i, c := range b.Checked {
		if b.Random == nil && !c.Whole() {
			add(fmt.Sprintf("%s: checked: %s", c.Shape, c.Coverage), "answers.%d", i)
		}
	}
	if len(b.Best) > 1 && b.Random == nil { // else it is the first line
		for i := range b.Best {
			section.Blocks = append(section.Blocks, only(Brief, bestText(b, i)))
		}
	}
	for _, line := range append(conditionLines([]run.Conditions{b.Conditions}), benchNotes(b)...) {
		add(line, "rounds")
	}
	skipped := List{}
	for _, line := range SkippedLines(b.Skipped) {
		skipped = append(skipped, cell(from.summary(line, "left_out")))
	}
	if len(skipped) > 0 {
		section.Blocks = append(section.Blocks, only(Long, skipped))
	}
	if b.Ended != "" {
		add(endedText(b), "ended")
	}
	if origin := originText(b); origin != "" {
		section.Blocks = append(section.Blocks, only(Brief, say(origin, ": ", Span{Text: b.Command, Code: true})))
	}
	return section
}
