package document

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"attune/internal/ci"
	"attune/internal/measure"
	"attune/internal/plot"
	"attune/internal/run"
)

// Comparison is what people read about a comparison, in the manner of benchstat: the verdict and the
// geometric mean, a row for each shape, and the conditions. command repeats it; it may be empty.
func Comparison(c *run.Comparison, command string) *Document {
	a, b := Span{Text: c.A.Variant, Variant: true}, Span{Text: c.B.Variant, Variant: true}
	d := &Document{
		Title:    say(ComparisonVerdict(c)),
		Headline: []Text{say("B over A: ", strings.TrimPrefix(comparedText(c), ", "), ".")},
		Brief:    []Text{say(a, " → ", b, ": ", Span{Text: string(c.Verdict), Colour: wordColour(string(c.Verdict))}, comparedText(c))},
	}
	shapes := Section{ID: "shapes", Title: say("Shapes"), Blocks: []Block{comparisonTable(c)}}
	for _, mark := range comparisonMarks(c) {
		shapes.Blocks = append(shapes.Blocks, only(Brief, say(mark)))
	}
	shapes.Blocks = append(shapes.Blocks, only(Long, say(comparisonNote(c))))
	conditions := Section{ID: "conditions", Title: say("Conditions")}
	for _, line := range ComparisonLines(c) {
		conditions.Blocks = append(conditions.Blocks, say(line))
	}
	device := say("Device: ", measuredFacts(c), ". Code: ", orNone(shortHash(c.A.CodeHash)), " and ", orNone(shortHash(c.B.CodeHash)), ".")
	conditions.Blocks = append(conditions.Blocks, only(Long, device))
	d.Sections = []Section{shapes, {ID: "samples", Title: say("Samples"), Depth: Long, Blocks: []Block{Figure{Name: "compare", Plot: ComparisonPlot(c)}}}, conditions}
	if command != "" {
		d.Sections = append(d.Sections, Section{ID: "reproduce", Title: say("Reproduce it"), Depth: Long, Blocks: []Block{Code{Text: Span{Text: command}}}})
	}
	return d
}

func measuredFacts(c *run.Comparison) string {
	return fmt.Sprintf("%s, %s, driver %s", c.Facts.Name, c.Facts.Arch, c.Facts.Driver)
}

// comparisonTable has a row for each shape.
func comparisonTable(c *run.Comparison) Table {
	t := Table{Columns: []Column{
		named("shape", Column{}),
		named("old → new us", Column{Keep: true, Depth: Brief}),
		{Name: say(c.A.Variant, " us"), Depth: Long},
		{Name: say(c.B.Variant, " us"), Depth: Long},
		named("change", Column{Keep: true}),
		named("ratio", Column{Depth: Long}),
		named("interval", Column{Depth: Long}),
		named("verdict", Column{Bare: true, Keep: true, Colour: wordColour, Depth: Brief}),
		named("control", Column{Optional: 4}),
		named("floor", Column{Optional: 2}),
		named("p", Column{Optional: 1}),
		named("rounds", Column{Optional: 3}),
		named("verdict", Column{Depth: Long, Colour: wordColour}),
	}}
	figure := func(format string, v float64) Text { return cell(Span{Text: fmt.Sprintf(format, v), Format: format}) }
	for _, s := range c.Shapes {
		control := cell(missing)
		if !c.Recorded {
			control = say(fmt.Sprintf("%.3f to %.3f", s.Control.Low, s.Control.High))
		}
		shape := say(s.Shape)
		for _, chosen := range []string{s.AVariant, s.BVariant} { // by a selection
			if chosen != "" {
				shape = append(shape, Span{Text: " (" + chosen + ")", Long: true})
			}
		}
		t.Rows = append(t.Rows, []Text{
			shape, say(fmt.Sprintf("%s → %s", median(s.ATimes), median(s.BTimes))), say(medianText(s.ATimes)), say(medianText(s.BTimes)),
			say(changeText(measure.Speedup{Ratio: s.Ratio, Low: s.Low, High: s.High})), figure("%.3fx", s.Ratio), say(fmt.Sprintf("%.3f to %.3f", s.Low, s.High)),
			say(verdictMark(s.Verdict)), control, figure("%.1f %%", 100*s.Floor), figure("%.3f", s.P), figure("%.0f", float64(s.Rounds)), say(string(s.Verdict)),
		})
		var notes []Text
		if s.AVariant != "" || s.BVariant != "" {
			notes = []Text{say(Span{Text: cmp.Or(s.AVariant, c.A.Variant), Variant: true}, " → ", Span{Text: cmp.Or(s.BVariant, c.B.Variant), Variant: true})}
		}
		t.Notes = append(t.Notes, notes)
	}
	return t
}

// comparisonMarks explain the marks of the table on a terminal.
func comparisonMarks(c *run.Comparison) (all []string) {
	has := func(v measure.Verdict) bool {
		return slices.ContainsFunc(c.Shapes, func(s run.ComparedShape) bool { return s.Verdict == v })
	}
	if has(measure.Same) {
		within := 1.0 // percent
		if c.Recorded {
			within = 100 * c.Shapes[0].Floor
		}
		all = append(all, fmt.Sprintf("~ the same within %.0f %%", within))
	}
	if has(measure.Ambiguous) {
		all = append(all, "? the samples do not decide")
	}
	return all
}

// comparedText is the geometric mean of a comparison, and where it was measured.
func comparedText(c *run.Comparison) string {
	overall := c.Overall()
	text := fmt.Sprintf(", %s (%.3fx, %.3f to %.3f)", changeText(overall), overall.Ratio, overall.Low, overall.High)
	if len(c.Shapes) > 1 {
		text += fmt.Sprintf(", geometric mean of %d shapes", len(c.Shapes))
	}
	text += ", " + c.Facts.Name
	if c.Same {
		text += " (both have the same machine code)"
	}
	return text
}

// changeText is a ratio of times as the change of the time in percent, with the wider side of its
// interval: -1.4 % ±0.2.
func changeText(s measure.Speedup) string {
	change := func(ratio float64) float64 { return 100 * (1/ratio - 1) }
	mid := change(s.Ratio)
	around := max(change(s.Low)-mid, mid-change(s.High))
	if around < 0.05 {
		return fmt.Sprintf("%+.2f %% ±%.2f", mid, around)
	}
	return fmt.Sprintf("%+.1f %% ±%.1f", mid, around)
}

// verdictMark is the verdict on a shape in a table.
func verdictMark(v measure.Verdict) string {
	switch v {
	case measure.Same:
		return "~"
	case measure.Ambiguous:
		return "?"
	}
	return string(v)
}

// comparedSeries is one series of a comparison on one shape.
type comparedSeries struct {
	key, variant string
	kind         plot.Kind
	samples      []float64
}

// seriesOf are the series of a shape: A, B, and the control unless the runs are recorded ones.
func seriesOf(c *run.Comparison, s run.ComparedShape) []comparedSeries {
	all := []comparedSeries{{"a", c.A.Variant, plot.Other, s.Samples.A}, {"b", c.B.Variant, plot.Own, s.Samples.B}}
	if len(s.Samples.Control) > 0 {
		all = append(all, comparedSeries{"control", c.A.Variant, plot.Control, s.Samples.Control})
	}
	return all
}

// ComparisonVerdict is the verdict in one line.
func ComparisonVerdict(c *run.Comparison) string {
	text := fmt.Sprintf("%s compared with %s on %s: %s", c.B.Variant, c.A.Variant, c.Facts.Name, c.Verdict)
	if c.Same {
		text += " (both have the same machine code)"
	}
	return text
}

// medianText is a median in microseconds with the half-width of its interval, as benchstat prints
// it. Four significant digits are enough: differences below a thousandth are noise.
func medianText(s measure.Summary) string {
	return fmt.Sprintf("%s ± %s", median(s), Percent(s.Spread()))
}

// median is a median in microseconds with four significant digits.
func median(s measure.Summary) string {
	us, decimals := 1e6*s.P50, 3
	for most := 10.0; us >= most && decimals > 0; most *= 10 {
		decimals--
	}
	return fmt.Sprintf("%.*f", decimals, us)
}

func comparisonNote(c *run.Comparison) string {
	if c.Recorded {
		return fmt.Sprintf(`A ratio above 1 means that %s is faster. The samples are those of two recorded runs, which were not
interleaved. The interval does not include changes of clocks, temperature or GPU between the runs. A
difference up to the floor is no difference. %s`, c.B.Variant, benchstatNote)
	}
	return fmt.Sprintf(`A ratio above 1 means that %s is faster. It is the median of the ratios of adjacent rounds, in both orders.
The intervals contain the true ratios with 99 %% confidence over all shapes together. The control is %s
compared with itself in the same rounds. A difference must exceed the floor: 1 %%, or the difference of
the control if that is larger. "Same" means within 1 %%. %s`, c.B.Variant, c.A.Variant, benchstatNote)
}

const benchstatNote = `The medians with their ± (95 %) and p are benchstat's
figures. p treats the samples of A and B as independent sets, and does not decide the verdict.`

// ComparisonBenchstat writes the samples in the format of Go's benchmarks, for
// `benchstat -col /variant FILE`.
func ComparisonBenchstat(w io.Writer, c *run.Comparison) error {
	var all []ci.Series
	for _, s := range c.Shapes {
		for _, series := range seriesOf(c, s)[:2] {
			name := series.variant
			if series.key == "b" && c.A.Variant == c.B.Variant {
				name += ",again"
			}
			all = append(all, ci.Series{Kernel: c.Kernel, Shape: s.Shape, Variant: name, Seconds: series.samples})
		}
	}
	return ci.Benchmarks(w, []ci.Config{{Key: "device", Value: c.Facts.Name}, {Key: "arch", Value: c.Facts.Arch}}, all)
}

// ComparisonCSV writes one line per sample.
func ComparisonCSV(w io.Writer, c *run.Comparison) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{"shape", "round", "side", "variant", "seconds"})
	for _, s := range c.Shapes {
		for _, series := range seriesOf(c, s) {
			for round, seconds := range series.samples {
				_ = out.Write([]string{s.Shape, fmt.Sprint(round), series.key, series.variant, fmt.Sprintf("%.10g", seconds)})
			}
		}
	}
	out.Flush()
	return out.Error()
}

// ComparisonT4 writes A and B in the T4 format of auto-tuners (schema 1.0.0), whose times are in
// milliseconds.
func ComparisonT4(w io.Writer, c *run.Comparison) error {
	type measurement struct {
		Name  string  `json:"name"`
		Value float64 `json:"value"`
		Unit  string  `json:"unit"`
	}
	var results []any
	for _, s := range c.Shapes {
		for _, series := range seriesOf(c, s)[:2] {
			runtimes := make([]float64, len(series.samples))
			for i, seconds := range series.samples {
				runtimes[i] = 1e3 * seconds
			}
			results = append(results, map[string]any{
				"configuration": map[string]any{"variant": series.variant, "shape": s.Shape},
				"times":         map[string]any{"runtimes": runtimes},
				"invalidity":    "correct", "correctness": 1,
				"measurements": []measurement{{"time", 1e3 * measure.Summarize(series.samples).P50, "ms"}},
				"objectives":   []string{"time"},
			})
		}
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(map[string]any{"schema_version": "1.0.0", "results": results})
}

// ComparisonFiles renders a comparison, by file name: the report, its plot and the samples in every
// format. command repeats the comparison.
func ComparisonFiles(c *run.Comparison, command string) (map[string][]byte, error) {
	files := Comparison(c, command).recordFiles("COMPARE.md")
	for name, write := range map[string]func(io.Writer) error{
		"benchstat.txt": func(w io.Writer) error { return ComparisonBenchstat(w, c) },
		"samples.csv":   func(w io.Writer) error { return ComparisonCSV(w, c) },
		"t4.json":       func(w io.Writer) error { return ComparisonT4(w, c) },
	} {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			return nil, err
		}
		files[name] = text.Bytes()
	}
	return files, nil
}
