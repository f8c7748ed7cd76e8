package report

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
			var plot bytes.Buffer
			plotName = run.FileName(variant, p.Shape) + ".svg"
			if err := RooflinePlot(&plot, variant, p); err != nil {
				return nil, err
			}
			files[plotName] = plot.Bytes()
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
		fmt.Fprintf(out, "\n![roofline](%s)\n", plot)
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

// RooflinePlot draws a launch under the ceilings of its device, with logarithmic axes.
func RooflinePlot(w io.Writer, variant string, p *profile.Profile) error {
	r := p.Roofline
	out := &strings.Builder{}
	plot := newLogPlot(r)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(out, `<rect width="%.0f" height="%.0f" fill="white"/>`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(out, `<text x="%.0f" y="20" font-weight="bold">%s on %s, %s</text>`+"\n", plotLeft, escaped(variant), escaped(p.Shape), escaped(r.Device))
	plot.axes(out)
	for i, c := range r.Compute {
		ridge := c.PerSecond / r.Memory.PerSecond
		if i == len(r.Compute)-1 { // the memory slope ends at the highest ceiling
			plot.line(out, plot.fromX, plot.fromX*r.Memory.PerSecond, ridge, c.PerSecond, "#3366aa")
		}
		plot.line(out, ridge, c.PerSecond, plot.toX, c.PerSecond, "#3366aa")
		fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="end">%s: %.0f TFLOP/s, %s</text>`+"\n",
			plotWidth-plotRight, plot.y(c.PerSecond)-5, escaped(c.Name), c.PerSecond/1e12, escaped(c.Basis))
	}
	fmt.Fprintf(out, `<text x="%.0f" y="%.0f">%s: %.2f TB/s, %s</text>`+"\n",
		plotLeft, plotHeight-8, escaped(r.Memory.Name), r.Memory.PerSecond/1e12, escaped(r.Memory.Basis))
	x, y := plot.x(r.Point.Intensity), plot.y(r.Point.PerSecond)
	fmt.Fprintf(out, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#aa3333" stroke-dasharray="3 3"/>`+"\n",
		x, x, y, plot.y(r.Limit(r.Point.Intensity)))
	fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="5" fill="#aa3333"/>`+"\n", x, y)
	fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="middle" fill="#aa3333">%.1f TFLOP/s</text>`+"\n", x, y+20, r.Point.PerSecond/1e12)
	out.WriteString("</svg>\n")
	_, err := io.WriteString(w, out.String())
	return err
}

const (
	plotWidth, plotHeight                    = 760.0, 460.0
	plotLeft, plotRight, plotTop, plotBottom = 80.0, 20.0, 40.0, 70.0
	plotInnerWidth, plotInnerHeight          = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	marginFactor                             = 2.0 // between the drawn values and the edges
)

// logPlot maps intensities and rates to the page. Its edges are powers of ten.
type logPlot struct{ fromX, toX, fromY, toY float64 }

func newLogPlot(r *profile.Roofline) logPlot {
	highest := r.Compute[len(r.Compute)-1].PerSecond
	ridge := highest / r.Memory.PerSecond
	down := func(v float64) float64 { return math.Pow(10, math.Floor(math.Log10(v/marginFactor))) }
	up := func(v float64) float64 { return math.Pow(10, math.Ceil(math.Log10(v*marginFactor))) }
	p := logPlot{fromX: down(min(r.Point.Intensity, ridge/10)), toX: up(max(r.Point.Intensity, ridge)), toY: up(highest)}
	p.fromY = down(min(r.Point.PerSecond, p.fromX*r.Memory.PerSecond*marginFactor))
	return p
}

func (p logPlot) x(intensity float64) float64 {
	return plotLeft + plotInnerWidth*math.Log10(intensity/p.fromX)/math.Log10(p.toX/p.fromX)
}

func (p logPlot) y(rate float64) float64 {
	return plotTop + plotInnerHeight*(1-math.Log10(rate/p.fromY)/math.Log10(p.toY/p.fromY))
}

func (p logPlot) line(out io.Writer, x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2"/>`+"\n", p.x(x1), p.y(y1), p.x(x2), p.y(y2), colour)
}

// axes draws a line and a label at every power of ten.
func (p logPlot) axes(out io.Writer) {
	bottom := plotTop + plotInnerHeight
	out.Write([]byte(`<g stroke="#dddddd">` + "\n"))
	for v := p.fromX; v <= p.toX*1.01; v *= 10 {
		fmt.Fprintf(out, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", p.x(v), p.x(v), plotTop, bottom)
	}
	for v := p.fromY; v <= p.toY*1.01; v *= 10 {
		fmt.Fprintf(out, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", plotLeft, plotWidth-plotRight, p.y(v), p.y(v))
	}
	out.Write([]byte("</g>\n"))
	for v := p.fromX; v <= p.toX*1.01; v *= 10 {
		fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="middle">%g</text>`+"\n", p.x(v), bottom+16, math.Round(v*1e6)/1e6)
	}
	for v := p.fromY; v <= p.toY*1.01; v *= 10 {
		fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="end">%g</text>`+"\n", plotLeft-6, p.y(v)+4, math.Round(v/1e6)/1e6)
	}
	fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="middle">FLOPs of the problem per byte from DRAM</text>`+"\n",
		plotLeft+plotInnerWidth/2, bottom+34)
	fmt.Fprintf(out, `<text x="16" y="%.1f" text-anchor="middle" transform="rotate(-90 16 %.1f)">TFLOP/s</text>`+"\n", plotTop+plotInnerHeight/2, plotTop+plotInnerHeight/2)
}
