package plot

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Strips shows every sample of some series as a dot, and each median as a line. A group has its own
// axis.
type Strips struct {
	Title  string
	Unit   string
	Digits int // significant digits of medians, as the table beside has them; 0 for two decimals
	Groups []StripGroup
}

// StripGroup are series that are compared, such as those of one shape. The first is the baseline.
type StripGroup struct {
	Name   string
	Series []StripSeries
	// Ratio is how fast the second series is as a multiple of the first, by a better estimate than the
	// medians; 0 if there is none.
	Ratio float64
}

// ratio is how fast the second series is as a multiple of the first.
func (g *StripGroup) ratio() (r float64, ok bool) {
	if len(g.Series) < 2 {
		return 0, false
	}
	if g.Ratio > 0 && finite(g.Ratio) {
		return g.Ratio, true
	}
	r = median(g.Series[0].Samples) / median(g.Series[1].Samples)
	return r, finite(r) && r > 0
}

// StripSeries are the samples of one implementation.
type StripSeries struct {
	Name    string
	Kind    Kind
	Samples []float64
}

// Kind is the part that a series plays in a plot.
type Kind int

// The kinds of series.
const (
	Own     Kind = iota // the variant in question
	Other               // a variant that it is compared with
	Peer                // another implementation
	Control             // the baseline a second time
)

func (k Kind) colour() int {
	return [...]int{Own: ownColour, Other: otherColour, Peer: peerColour, Control: controlColour}[k]
}

func (s *Strips) name() string { return s.Title }

// SVG is the plot as a file.
func (s *Strips) SVG() []byte { return file(s) }

// Inline is the plot in an HTML page.
func (s *Strips) Inline(id string) []byte { return inline(s, id) }

// Finding says how far apart the medians are: of the group with the largest difference between the
// first two series.
func (s *Strips) Finding() string {
	text, largest, groups := "", -1.0, 0
	for _, g := range s.Groups {
		r, ok := g.ratio()
		if !ok {
			continue
		}
		groups++
		if apart := math.Abs(math.Log(r)); apart > largest {
			largest = apart
			text = fmt.Sprintf("%s is %s as fast as %s on %s", named(g.Series[1].Name), factor(r, 3), named(g.Series[0].Name), named(g.Name))
		}
	}
	switch {
	case text == "":
		return s.alone()
	case groups > 1:
		return fmt.Sprintf("%s, the largest difference of %d groups.", text, groups)
	}
	return text + "."
}

// alone is the finding about series that nothing is compared with.
func (s *Strips) alone() string {
	for _, g := range s.Groups {
		for _, series := range g.Series {
			if m := median(series.Samples); finite(m) {
				return fmt.Sprintf("The median of %s on %s is %s.", named(series.Name), named(g.Name), s.value(m))
			}
		}
	}
	return "No samples were taken."
}

// value is a median with its unit.
func (s *Strips) value(m float64) string {
	if s.Digits == 0 || !finite(m) {
		return quantity(m, s.Unit)
	}
	return strings.TrimSpace(number(m, s.Digits) + " " + s.Unit)
}

// median is that of the finite samples, NaN without any.
func median(samples []float64) float64 {
	all := sorted(samples)
	if len(all) == 0 {
		return math.NaN()
	}
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

func sorted(samples []float64) []float64 {
	all := slices.DeleteFunc(slices.Clone(samples), func(v float64) bool { return !finite(v) })
	slices.Sort(all)
	return all
}

// stripHeight is the height of the dots of one series.
const stripHeight = 20.0

func (s *Strips) draw(c *canvas) {
	for _, g := range s.Groups {
		lines := nameLines(g.Name, right-margin, fontSize, true)
		c.name(margin, c.y+12, "t b", fontSize, lines)
		c.y += float64(len(lines))*lineHeight + 2
		var all []float64
		for _, series := range g.Series {
			all = append(all, within99(series.Samples)...)
		}
		a := newAxis(all, false, margin+4, right-4)
		top := c.y
		for _, series := range g.Series {
			s.strip(c, series, a)
		}
		c.bottomAxis(a, top, c.y, 5)
		c.y += lineHeight + 8
	}
	unit := ""
	if s.Unit != "" {
		unit = ", in " + s.Unit
	}
	c.note("Each dot is a sample" + unit + "; each line a median. The slowest 1 % are drawn at the edge.")
}

// within99 are the samples without the slowest 1 %, which may be far off.
func within99(samples []float64) []float64 {
	all := sorted(samples)
	return all[:len(all)-len(all)/100]
}

// strip draws a series: its name and its median, and the samples below.
func (s *Strips) strip(c *canvas, series StripSeries, a axis) {
	colour := series.Kind.colour()
	m := median(series.Samples)
	value := s.value(m)
	c.write(right, c.y+12, end, "m", smallSize, value)
	room := right - margin - TextWidth(value, smallSize, false) - 10
	lines := nameLines(series.Name, room, smallSize, false)
	c.name(margin, c.y+12, "t", smallSize, lines)
	c.y += float64(len(lines)) * lineHeight
	c.path(fmt.Sprintf("o l%d", colour), dots(series.Samples, a, c.y))
	if finite(m) {
		c.line(fmt.Sprintf("w l%d", colour), a.at(m), c.y, a.at(m), c.y+stripHeight)
	}
	c.y += stripHeight + 2
}

// dots is a path of a series.
func dots(samples []float64, a axis, top float64) string {
	var path dotPath
	for i, v := range samples {
		if finite(v) {
			// Equal samples get different heights by their index, not at random, so that the plot is the
			// same each time.
			path.add(a.at(v), top+3+(stripHeight-6)*float64(i*7%19)/18)
		}
	}
	return path.String()
}

// dotPath is a path of round points, a tenth of the size of as many circles. Points in the same place
// are drawn once.
type dotPath struct {
	strings.Builder
	drawn map[[2]float64]bool
}

func (p *dotPath) add(x, y float64) {
	at := [2]float64{math.Round(2*x) / 2, math.Round(2*y) / 2}
	if p.drawn[at] {
		return
	}
	if p.drawn == nil {
		p.drawn = map[[2]float64]bool{}
	}
	p.drawn[at] = true
	fmt.Fprintf(p, "M%s %sh0", at1(at[0]), at1(at[1]))
}
