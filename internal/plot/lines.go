package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Lines shows a rate against a size, such as throughput against sequence length, with one line for
// each implementation. The axis of sizes is logarithmic.
type Lines struct {
	Title   string
	X, Y    string // names of the axes
	Unit    string // of Y
	Series  []LineSeries
	Subject string // series that the finding is about; empty for our best
}

// LineSeries is one implementation.
type LineSeries struct {
	Name   string
	Peer   bool // another implementation than those in question
	Points []LinePoint
}

// LinePoint is a rate at a size.
type LinePoint struct{ X, Y float64 }

func (l *Lines) name() string { return l.Title }

// SVG is the plot as a file.
func (l *Lines) SVG() []byte { return file(l) }

// Inline is the plot in an HTML page.
func (l *Lines) Inline(id string) []byte { return inline(l, id) }

// valid are the points of a series that can be drawn, by size.
func (s *LineSeries) valid() []LinePoint {
	all := slices.DeleteFunc(slices.Clone(s.Points), func(p LinePoint) bool { return !finite(p.X) || p.X <= 1e-300 || !finite(p.Y) })
	slices.SortStableFunc(all, func(a, b LinePoint) int { return cmp.Compare(a.X, b.X) })
	return all
}

// Finding compares the subject, or our best, with the best peer at the largest size that both have.
func (l *Lines) Finding() string {
	type best struct {
		name string
		y    float64
	}
	at := map[float64]*[2]best{}
	subject := l.subject()
	for _, s := range l.Series {
		if !s.Peer && subject != "" && s.Name != subject {
			continue
		}
		side := 0
		if s.Peer {
			side = 1
		}
		for _, p := range s.valid() {
			if at[p.X] == nil {
				at[p.X] = &[2]best{{"", math.Inf(-1)}, {"", math.Inf(-1)}}
			}
			if b := &at[p.X][side]; p.Y > b.y {
				*b = best{named(s.Name), p.Y}
			}
		}
	}
	largest, both := math.Inf(-1), false
	for x, b := range at {
		pair := b[0].name != "" && b[1].name != ""
		if pair && !both || pair == both && x > largest {
			largest, both = x, pair
		}
	}
	if math.IsInf(largest, -1) {
		return "Nothing was measured."
	}
	b := at[largest]
	where := fmt.Sprintf("at %s %s", plain(l.X), whole(largest))
	switch {
	case both && b[1].y > 0:
		return fmt.Sprintf("%s reaches %s %s, %s the best peer, %s.", b[0].name, quantity(b[0].y, l.Unit), where, factor(b[0].y/b[1].y, 3), b[1].name)
	case b[0].name != "":
		return fmt.Sprintf("%s reaches %s %s.", b[0].name, quantity(b[0].y, l.Unit), where)
	}
	return fmt.Sprintf("%s reaches %s %s.", b[1].name, quantity(b[1].y, l.Unit), where)
}

// subject is the subject if the plot has a point of it, else empty.
func (l *Lines) subject() string {
	if slices.ContainsFunc(l.Series, func(s LineSeries) bool { return !s.Peer && s.Name == l.Subject && len(s.valid()) > 0 }) {
		return l.Subject
	}
	return ""
}

const linesHeight = 190.0

func (l *Lines) draw(c *canvas) {
	var xs, ys []float64
	for _, s := range l.Series {
		for _, p := range s.valid() {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	top, bottom := c.y+lineHeight, c.y+lineHeight+linesHeight
	c.write(margin, c.y+10, start, "m", smallSize, fit(strings.TrimSpace(l.Y+" "+inUnit(l.Unit)), right-margin, smallSize, false))
	vertical := newAxis(append(ys, 0), false, bottom, top)
	if slices.Min(append(ys, 0)) == 0 {
		vertical.low = 0
	}
	_, labels := vertical.ticks(5)
	left := margin + min(widest(labels, smallSize), 90) + 6
	horizontal := newAxis(xs, true, left, right-4)
	c.leftAxis(vertical, left, right, 5)
	c.sizes(horizontal, xs, top, bottom)
	for i, s := range l.Series {
		l.series(c, i, s.valid(), horizontal, vertical)
	}
	c.write(right, bottom+13+lineHeight, end, "m", smallSize, fit(l.X+", logarithmic", right-left, smallSize, false))
	c.y = bottom + 2*lineHeight + 6
	var keys []key
	for i, s := range l.Series {
		if len(s.valid()) > 0 {
			keys = append(keys, key{s.Name, func(x, y float64) {
				c.line(l.class(i), x-6, y, x+7, y)
				c.mark(i/seriesColours+i, fmt.Sprintf("f%d", i%seriesColours), x, y)
			}})
		}
	}
	c.legend(keys)
	if slices.ContainsFunc(l.Series, func(s LineSeries) bool { return s.Peer && len(s.valid()) > 0 }) {
		c.note("Dashed lines are peers.")
	}
}

// inUnit is a unit behind the name of an axis.
func inUnit(unit string) string {
	if unit == "" {
		return ""
	}
	return "in " + unit
}

// sizes labels the sizes that occur, as many as fit.
func (c *canvas) sizes(a axis, xs []float64, top, bottom float64) {
	xs = slices.Compact(slices.Sorted(slices.Values(xs)))
	slices.Reverse(xs) // the largest has the first claim on a label
	for _, x := range xs {
		c.gridLine(a.at(x), top, a.at(x), bottom)
		c.label(a.at(x), bottom+13, middle, "m", smallSize, whole(x))
	}
}

// class is the style of the line of a series.
func (l *Lines) class(i int) string {
	class := fmt.Sprintf("w l%d", i%seriesColours)
	if l.Series[i].Peer {
		class += " k"
	}
	return class
}

func (l *Lines) series(c *canvas, i int, points []LinePoint, horizontal, vertical axis) {
	var d strings.Builder
	for n, p := range points {
		command := "L"
		if n == 0 {
			command = "M"
		}
		fmt.Fprintf(&d, "%s%s %s", command, at1(horizontal.at(p.X)), at1(vertical.at(p.Y)))
	}
	if len(points) > 1 {
		c.path(l.class(i), d.String())
	}
	for _, p := range points {
		c.mark(i/seriesColours+i, fmt.Sprintf("f%d", i%seriesColours), horizontal.at(p.X), vertical.at(p.Y))
	}
}
