package document

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"

	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/terminal"
)

// Profile writes the figures of one launch and the conclusions from them, for a terminal.
func Profile(w io.Writer, variant string, p *profile.Profile, s terminal.Screen) error {
	out := &strings.Builder{}
	s.Paragraph(out, "", fmt.Sprintf("%s on %s, seed %d", variant, p.Shape, p.Seed), 2)
	header, rows := profileTable(p)
	figures := plainTable(header, rows)
	figures.Indent = 2
	figures.Write(out, s)
	for _, sentence := range profileSentences(p) {
		s.Paragraph(out, "  - ", sentence, 4)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// ProfileFiles renders the profiles of a variant, by file name: profile.md with all tables, and a
// plot for each shape with a roofline.
func ProfileFiles(variant string, profiles []*profile.Profile) (map[string][]byte, error) {
	files := map[string][]byte{}
	var tables bytes.Buffer
	for _, p := range profiles {
		plotName := ""
		if p.Roofline != nil {
			plotName = run.FileName(variant, p.Shape) + ".svg"
			files[plotName] = RooflinePlot(variant, p).SVG()
		}
		if err := ProfileMarkdown(&tables, variant, p, plotName); err != nil {
			return nil, err
		}
	}
	files["profile.md"] = tables.Bytes()
	return files, nil
}

// ProfileMarkdown writes one profile as Markdown, with its plot if there is one.
func ProfileMarkdown(w io.Writer, variant string, p *profile.Profile, plot string) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "# %s on %s\n\n", variant, p.Shape)
	for _, sentence := range profileSentences(p) {
		fmt.Fprintf(out, "- %s\n", sentence)
	}
	if plot != "" {
		fmt.Fprintf(out, "\n![%s](%s)\n", inAlt.Replace(RooflinePlot(variant, p).Finding()), plot)
	}
	out.WriteString("\n")
	header, rows := profileTable(p)
	if err := writeMarkdownTable(out, header, rows, ""); err != nil {
		return err
	}
	out.WriteString("\n")
	_, err := io.WriteString(w, out.String())
	return err
}

// profileTable has a column for the simulator, one for ncu, and the difference if both counted.
func profileTable(p *profile.Profile) (header []string, rows [][]string) {
	header = []string{"metric"}
	if p.Sim != nil {
		header = append(header, "sim")
	}
	if p.Ncu != nil {
		header = append(header, "ncu")
	}
	if p.Sim != nil && p.Ncu != nil {
		header = append(header, "difference")
	}
	stalls := false
	for _, r := range p.Rows() {
		stalls = stalls || strings.HasPrefix(r.Key, "stall_")
		row := []string{r.About}
		if p.Sim != nil {
			row = append(row, figure(r.Sim, r.Unit))
		}
		if p.Ncu != nil {
			row = append(row, figure(r.Ncu, r.Unit))
		}
		if p.Sim != nil && p.Ncu != nil {
			row = append(row, differenceText(r))
		}
		rows = append(rows, row)
	}
	if !stalls {
		row := []string{"warp stalls"}
		for range header[1:] {
			row = append(row, notMeasured)
		}
		rows = append(rows, row)
	}
	return header, rows
}

const notMeasured = "not measured"

// figure is a value with its unit.
func figure(value *float64, unit string) string {
	switch {
	case value == nil:
		return notMeasured
	case unit == "ns":
		return fmt.Sprintf("%.2f us", *value/1e3)
	case unit == "%":
		return fmt.Sprintf("%.1f %%", *value)
	case *value == math.Trunc(*value):
		return fmt.Sprintf("%.0f", *value)
	}
	return fmt.Sprintf("%.2f", *value)
}

func differenceText(r profile.Row) string {
	text := "all of it" // ncu counted 0
	if r.Difference != nil {
		text = fmt.Sprintf("%+.2f %%", *r.Difference)
	}
	switch {
	case !r.Compared():
		return "-"
	case !r.Exact: // the two need not agree
		return "(" + text + ")"
	}
	return text
}

// profileSentences are the position under the roofline, the limits of the launch, and the metrics
// that the profiler does not have.
func profileSentences(p *profile.Profile) []string {
	var all []string
	if r := p.Roofline; r != nil {
		all = append(all, fmt.Sprintf("roofline: %.1f TFLOP/s at %.0f FLOPs per byte, %.1f %% of the ceiling of %s (%s)",
			r.Point.PerSecond/1e12, r.Point.Intensity, 100*r.Point.PerSecond/r.Limit(r.Point.Intensity), r.Device, basis(r)))
	} else if p.NoRoofline != "" {
		all = append(all, "no roofline: "+p.NoRoofline)
	}
	for _, i := range p.Insights {
		text := i.Rule + ": " + i.Text
		if len(i.Knobs) > 0 {
			text += "; knobs: " + strings.Join(i.Knobs, ", ")
		}
		all = append(all, text)
	}
	if len(p.Unknown) > 0 {
		all = append(all, "metrics that ncu does not have on this chip: "+strings.Join(p.Unknown, ", "))
	}
	return append(all, agreementSentences(p)...)
}

// agreementSentences compare the counts of the simulator with those of a chip.
func agreementSentences(p *profile.Profile) []string {
	if p.Sim == nil || p.Ncu == nil {
		return nil
	}
	agree, differ, free := p.Agreement()
	all := []string{fmt.Sprintf("simulator and chip agree within %d %% on %d of the %d figures that PTX determines and both counted",
		profile.Tolerance, len(agree), len(agree)+len(differ))}
	for _, r := range differ {
		all = append(all, fmt.Sprintf("do not agree: %s, sim %s and ncu %s; ptxas may have merged, moved or dropped instructions of the PTX",
			r.About, figure(r.Sim, r.Unit), figure(r.Ncu, r.Unit)))
	}
	for _, r := range free {
		all = append(all, fmt.Sprintf("need not agree: %s, because %s", r.About, r.Why))
	}
	return append(all, "cannot agree: time, DRAM, caches, pipes, occupancy and stalls, which are not simulated; instructions and "+
		"registers, which the simulator counts in PTX and the chip in machine code")
}

// basis is the source of the ceilings: measured or computed.
func basis(r *profile.Roofline) string {
	word, _, _ := strings.Cut(r.Memory.Basis, ":")
	return word + " ceilings"
}
