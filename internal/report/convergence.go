package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Convergence is the course of a search, for its plot.
type Convergence struct {
	Title     string
	Objective string // such as "time" or "simulated cost"
	Unit      string // of the values; may be empty
	Maximised bool
	Values    []float64 // of each evaluation, in their order; NaN if it failed
	// Reference is a value to compare with, such as that of the default; NaN if there is none.
	Reference     float64
	ReferenceName string
}

// better reports whether one value is better than another.
func (c *Convergence) better(a, b float64) bool {
	if c.Maximised {
		return a > b
	}
	return a < b
}

// bests returns the indices of the evaluations that were better than all before them.
func (c *Convergence) bests() (indices []int) {
	for i, v := range c.Values {
		if !math.IsNaN(v) && (indices == nil || c.better(v, c.Values[indices[len(indices)-1]])) {
			indices = append(indices, i)
		}
	}
	return indices
}

func (c *Convergence) failed() (n int) {
	for _, v := range c.Values {
		if math.IsNaN(v) {
			n++
		}
	}
	return n
}

// text formats a value with its unit, with four significant digits.
func (c *Convergence) text(v float64) string {
	text := strconv.FormatFloat(v, 'g', 4, 64)
	if math.Abs(v) >= 1000 && math.Abs(v) < 1e10 {
		text = strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strings.TrimSpace(text + " " + c.Unit)
}

// Sentence states what the search found. It is the text alternative of the plot.
func (c *Convergence) Sentence() string {
	n := len(c.Values)
	bests := c.bests()
	if len(bests) == 0 {
		return fmt.Sprintf("None of the %d evaluations has a result.", n)
	}
	last := bests[len(bests)-1]
	text := fmt.Sprintf("The best %s, %s, was found at evaluation %d of %d", c.Objective, c.text(c.Values[last]), last+1, n)
	if !math.IsNaN(c.Reference) {
		text += fmt.Sprintf("; %s: %s", c.ReferenceName, c.text(c.Reference))
	}
	return fmt.Sprintf("%s. New bests after the first: %d. Failed evaluations: %d.", text, len(bests)-1, c.failed())
}

// The page of the plot, in units of which a character of 13 is about 7 wide. At a width of 360 pixels
// a unit is 0.9 pixels.
const (
	convergeWidth, convergeHeight = 400.0, 300.0
	convergeLeft, convergeRight   = 58.0, 12.0
	convergeTop, convergeBottom   = 48.0, 82.0
	failureStrip                  = 12.0 // above the axis, for failed evaluations
	convergeFont                  = 13.0
)

// convergeStyle has the colours, for light and dark pages.
const convergeStyle = `<style>
text{fill:#222}.b{font-weight:bold}.g{stroke:#ddd}.bg{fill:#fff}
.dot{stroke:#888;stroke-width:3;stroke-linecap:round}.step{stroke:#3366aa;stroke-width:2;fill:none}
.best{fill:#3366aa}.fail{stroke:#aa3333;stroke-width:1.5}.ref{stroke:#222;stroke-dasharray:4 3}
@media (prefers-color-scheme:dark){text{fill:#ddd}.g{stroke:#444}.bg{fill:#111}.dot{stroke:#999}
.step{stroke:#7ab0f0}.best{fill:#7ab0f0}.fail{stroke:#f08080}.ref{stroke:#ddd}}
</style>
`

// ConvergencePlot draws the best value against the number of evaluations. Each evaluation is a dot,
// each new best a disc, each failure a cross above the axis.
func ConvergencePlot(w io.Writer, c *Convergence) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-labelledby="t d" font-family="sans-serif" font-size="%.0f">`+"\n",
		convergeWidth, convergeHeight, convergeFont)
	fmt.Fprintf(out, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n%s", escaped(c.Title), escaped(c.Sentence()), convergeStyle)
	fmt.Fprintf(out, `<rect class="bg" width="%.0f" height="%.0f"/>`+"\n", convergeWidth, convergeHeight)
	fmt.Fprintf(out, `<text class="b" x="8" y="18">%s</text>`+"\n", escaped(shorten(c.Title, 40)))
	p := newConvergePlot(c)
	fmt.Fprintf(out, `<text x="8" y="36">%s</text>`+"\n", escaped(shorten(p.headline(), 54)))
	p.axes(out)
	p.marks(out)
	p.legend(out)
	out.WriteString("</svg>\n")
	_, err := io.WriteString(w, out.String())
	return err
}

// shorten cuts a text to at most n characters.
func shorten(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// convergePlot maps evaluations and values to the page.
type convergePlot struct {
	*Convergence
	bestAt    []int
	low, high float64 // of the axis of values
}

// newConvergePlot chooses the range of values: from the best to the median and the reference. Most of
// what is far worse would only flatten the part that matters; it is drawn at the edge.
func newConvergePlot(c *Convergence) *convergePlot {
	p := &convergePlot{Convergence: c, bestAt: c.bests(), low: 0, high: 1}
	if len(p.bestAt) == 0 {
		return p
	}
	ran := slices.DeleteFunc(slices.Clone(c.Values), math.IsNaN)
	slices.Sort(ran)
	shown := []float64{c.Values[p.bestAt[len(p.bestAt)-1]], c.Values[p.bestAt[0]], ran[len(ran)/2]}
	if !math.IsNaN(c.Reference) {
		shown = append(shown, c.Reference)
	}
	p.low, p.high = slices.Min(shown), slices.Max(shown)
	margin := 0.08 * (p.high - p.low)
	if margin == 0 {
		margin = 0.05 * math.Abs(p.high)
	}
	if margin == 0 { // all values are 0
		margin = 1
	}
	p.low, p.high = p.low-margin, p.high+margin
	return p
}

func (p *convergePlot) headline() string {
	if len(p.bestAt) == 0 {
		return fmt.Sprintf("%d evaluations, none with a result", len(p.Values))
	}
	last := p.bestAt[len(p.bestAt)-1]
	return fmt.Sprintf("best %s: %s, evaluation %d of %d", p.Objective, p.text(p.Values[last]), last+1, len(p.Values))
}

func (p *convergePlot) x(evaluation int) float64 {
	inner := convergeWidth - convergeLeft - convergeRight
	return convergeLeft + inner*(float64(evaluation)+0.5)/float64(max(len(p.Values), 1))
}

// y clips values to the range of the axis.
func (p *convergePlot) y(v float64) float64 {
	inner := convergeHeight - convergeTop - convergeBottom - failureStrip
	share := (min(max(v, p.low), p.high) - p.low) / (p.high - p.low)
	return convergeTop + inner*(1-share)
}

// axes draws a line and a label at round numbers.
func (p *convergePlot) axes(out io.Writer) {
	bottom := convergeHeight - convergeBottom
	scale := p.scale()
	if len(p.bestAt) > 0 {
		step := roundStep((p.high - p.low) / 4)
		decimals := decimalsOf(step / scale)
		for n := math.Ceil(p.low / step); n*step <= p.high; n++ {
			y := p.y(n * step)
			label := strconv.FormatFloat(n*step/scale+0, 'f', decimals, 64) // + 0 turns -0 into 0
			fmt.Fprintf(out, `<line class="g" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, convergeLeft, convergeWidth-convergeRight, y, y)
			fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="end">%s</text>`+"\n", convergeLeft-4, y+4, label)
		}
	}
	fmt.Fprintf(out, `<line class="g" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`+"\n", convergeLeft, convergeWidth-convergeRight, bottom, bottom)
	step := max(1, int(roundStep(float64(len(p.Values))/5)))
	for n := step; n <= len(p.Values); n += step {
		anchor := "middle"
		if p.x(n-1) > convergeWidth-convergeRight-20 {
			anchor = "end"
		}
		fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="%s">%d</text>`+"\n", p.x(n-1), bottom+16, anchor, n)
	}
	unit := p.Unit
	if scale != 1 {
		unit = strings.TrimSpace(fmt.Sprintf("%g %s", scale, unit))
	}
	if unit != "" {
		unit = " in " + unit
	}
	unit = p.Objective + unit
	fmt.Fprintf(out, `<text x="8" y="%.1f">%s, by evaluation</text>`+"\n", bottom+36, escaped(shorten(unit, 40)))
}

// scale is the power of a thousand that the labels of values are divided by, so that they are short.
func (p *convergePlot) scale() float64 {
	largest := max(math.Abs(p.low), math.Abs(p.high))
	if largest >= 0.01 && largest < 1e5 {
		return 1
	}
	return math.Pow(1000, math.Floor(math.Log10(largest)/3))
}

// decimalsOf returns the decimals that tell multiples of a step apart.
func decimalsOf(step float64) int {
	for n := range 6 {
		if scaled := step * math.Pow10(n); math.Abs(scaled-math.Round(scaled)) < 1e-6*scaled {
			return n
		}
	}
	return 6
}

// roundStep returns 1, 2, 2.5 or 5 times a power of ten, at least x.
func roundStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, factor := range []float64{1, 2, 2.5, 5} {
		if factor*power >= x*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// marks draws the evaluations. A path of many dots is a tenth of the size of as many circles.
func (p *convergePlot) marks(out io.Writer) {
	var dots, crosses, step strings.Builder
	for i, v := range p.Values {
		if math.IsNaN(v) {
			fmt.Fprintf(&crosses, "M%.1f %.1fl5 5m0-5l-5 5", p.x(i)-2.5, convergeHeight-convergeBottom-failureStrip+4)
		} else {
			fmt.Fprintf(&dots, "M%.1f %.1fh0", p.x(i), p.y(v))
		}
	}
	for i, at := range p.bestAt {
		if i == 0 {
			fmt.Fprintf(&step, "M%.1f %.1f", p.x(at), p.y(p.Values[at]))
		} else {
			fmt.Fprintf(&step, "H%.1fV%.1f", p.x(at), p.y(p.Values[at]))
		}
	}
	if len(p.bestAt) > 0 {
		fmt.Fprintf(&step, "H%.1f", p.x(len(p.Values)-1))
	}
	for _, path := range []struct{ class, d string }{{"dot", dots.String()}, {"fail", crosses.String()}, {"step", step.String()}} {
		if path.d != "" {
			fmt.Fprintf(out, `<path class="%s" d="%s"/>`+"\n", path.class, path.d)
		}
	}
	for _, at := range p.bestAt {
		fmt.Fprintf(out, `<circle class="best" cx="%.1f" cy="%.1f" r="4"/>`, p.x(at), p.y(p.Values[at]))
	}
	if p.hasReference() {
		y := p.y(p.Reference)
		fmt.Fprintf(out, "\n"+`<line class="ref" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, convergeLeft, convergeWidth-convergeRight, y, y)
	}
	io.WriteString(out, "\n")
}

func (p *convergePlot) hasReference() bool { return !math.IsNaN(p.Reference) && len(p.bestAt) > 0 }

// legend explains the marks in two rows.
func (p *convergePlot) legend(out io.Writer) {
	y := convergeHeight - 28
	fmt.Fprintf(out, `<circle class="best" cx="13" cy="%.1f" r="4"/><text x="22" y="%.1f">new best</text>`+"\n", y-4, y)
	fmt.Fprintf(out, `<path class="dot" d="M103 %.1fh0"/><text x="112" y="%.1f">evaluation</text>`+"\n", y-4, y)
	fmt.Fprintf(out, `<path class="fail" d="M203 %.1fl5 5m0-5l-5 5"/><text x="214" y="%.1f">failed (%d)</text>`+"\n", y-7, y, p.failed())
	if p.hasReference() {
		fmt.Fprintf(out, `<line class="ref" x1="8" x2="32" y1="%.1f" y2="%.1f"/><text x="38" y="%.1f">%s</text>`+"\n", y+14, y+14, y+18,
			escaped(shorten(p.ReferenceName+": "+p.text(p.Reference), 42)))
	}
}
