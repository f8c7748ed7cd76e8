package document

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"attune/internal/ci"
	"attune/internal/measure"
	"attune/internal/plot"
	"attune/internal/run"
	"attune/internal/terminal"
)

// Comparison writes a comparison for people, in the manner of benchstat: the verdict and the
// geometric mean, a row for each shape, and the conditions.
func Comparison(w io.Writer, c *run.Comparison, s terminal.Screen) error {
	var out bytes.Buffer
	names := newShortNames(c.A.Variant, c.B.Variant)
	margin := fmt.Sprintf("%s → %s: %s", names.of(c.A.Variant), names.of(c.B.Variant), s.Paint(wordColour(string(c.Verdict)), string(c.Verdict)))
	s.Paragraph(&out, margin, overallText(c), 2)
	out.WriteString("\n")
	t := terminal.Table{Columns: []terminal.Column{
		{Name: "shape"},
		{Name: "old → new us", Keep: true},
		{Name: "change", Keep: true},
		{Name: "", Keep: true, Colour: wordColour},
		{Name: "control", Optional: 4},
		{Name: "floor", Optional: 2},
		{Name: "p", Optional: 1},
		{Name: "rounds", Optional: 3},
	}}
	marks := map[measure.Verdict]bool{}
	for _, shape := range c.Shapes {
		control := "-"
		if !c.Recorded {
			control = fmt.Sprintf("%.3f to %.3f", shape.Control.Low, shape.Control.High)
		}
		t.Rows = append(t.Rows, []string{
			shape.Shape, fmt.Sprintf("%s → %s", median(shape.ATimes), median(shape.BTimes)),
			changeText(measure.Speedup{Ratio: shape.Ratio, Low: shape.Low, High: shape.High}), verdictMark(shape.Verdict),
			control, fmt.Sprintf("%.1f %%", 100*shape.Floor), fmt.Sprintf("%.3f", shape.P), fmt.Sprint(shape.Rounds),
		})
		marks[shape.Verdict] = true
		var notes []string
		if shape.AVariant != "" || shape.BVariant != "" { // chosen by a selection
			notes = []string{fmt.Sprintf("%s → %s", names.add(cmp.Or(shape.AVariant, c.A.Variant)), names.add(cmp.Or(shape.BVariant, c.B.Variant)))}
		}
		t.Notes = append(t.Notes, notes)
	}
	t.Write(&out, s)
	if marks[measure.Same] {
		within := 1.0 // percent
		if c.Recorded {
			within = 100 * c.Shapes[0].Floor
		}
		s.Paragraph(&out, "", fmt.Sprintf("~ the same within %.0f %%", within), 2)
	}
	if marks[measure.Ambiguous] {
		s.Paragraph(&out, "", "? the samples do not decide", 2)
	}
	out.WriteString("\n")
	names.write(&out, s, out.String())
	for _, line := range ComparisonLines(c) {
		s.Paragraph(&out, "", line, 2)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// overallText is the geometric mean of a comparison, and where it was measured.
func overallText(c *run.Comparison) string {
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

// comparisonTable writes the table of COMPARE.md.
func comparisonTable(w io.Writer, c *run.Comparison) error {
	header := []string{
		"shape", c.A.Variant + " us", c.B.Variant + " us", "ratio", "interval", "control", "floor", "p", "rounds", "verdict",
	}
	var rows [][]string
	for _, s := range c.Shapes {
		control := "-"
		if !c.Recorded {
			control = fmt.Sprintf("%.3f to %.3f", s.Control.Low, s.Control.High)
		}
		shape := s.Shape
		for _, chosen := range []string{s.AVariant, s.BVariant} { // by a selection
			if chosen != "" {
				shape += " (" + chosen + ")"
			}
		}
		rows = append(rows, []string{
			shape, medianText(s.ATimes), medianText(s.BTimes), fmt.Sprintf("%.3fx", s.Ratio), fmt.Sprintf("%.3f to %.3f", s.Low, s.High),
			control, fmt.Sprintf("%.1f %%", 100*s.Floor), fmt.Sprintf("%.3f", s.P), fmt.Sprint(s.Rounds), string(s.Verdict),
		})
	}
	return writeMarkdownTable(w, header, rows, "")
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
	return fmt.Sprintf("%s ± %s", median(s), percent(s.Spread()))
}

// median is a median in microseconds with four significant digits.
func median(s measure.Summary) string {
	us, decimals := 1e6*s.P50, 3
	for most := 10.0; us >= most && decimals > 0; most *= 10 {
		decimals--
	}
	return fmt.Sprintf("%.*f", decimals, us)
}

// ComparisonMarkdown writes COMPARE.md: the verdict, the table, the plot and the command that
// repeats it.
func ComparisonMarkdown(w io.Writer, c *run.Comparison, figure, command string) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "# %s\n\n", ComparisonVerdict(c))
	if err := comparisonTable(out, c); err != nil {
		return err
	}
	fmt.Fprintf(out, `
%s
%s
![%s](%s)

Device: %s, %s, driver %s. Code: %s and %s.

    %s
`, comparisonNote(c), paragraphs(ComparisonLines(c)), inAlt.Replace(ComparisonPlot(c).Finding()), figure, c.Facts.Name, c.Facts.Arch, c.Facts.Driver,
		orNone(shortHash(c.A.CodeHash)), orNone(shortHash(c.B.CodeHash)), command)
	_, err := io.WriteString(w, out.String())
	return err
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
	const figure = "compare.svg"
	files := map[string][]byte{figure: ComparisonPlot(c).SVG()}
	for name, write := range map[string]func(io.Writer) error{
		"COMPARE.md":    func(w io.Writer) error { return ComparisonMarkdown(w, c, figure, command) },
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
