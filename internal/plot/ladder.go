package plot

import (
	"fmt"
	"math"
)

// Ladder shows the times of successive steps, such as the stages of a kernel, on a logarithmic axis.
type Ladder struct {
	Title string
	Unit  string
	Steps []Step
}

// Step is one step of a ladder.
type Step struct {
	Name      string
	Value     float64 // a time; NaN if it was not measured
	Low, High float64 // its interval; 0 if unknown
	Outcome   Outcome
}

// Outcome is the decision on a step.
type Outcome int

// The outcomes of a step.
const (
	Accepted Outcome = iota
	Rejected         // slower than required
	Open             // too close to call
	Failed           // incorrect, or over its budget
)

var outcomes = [...]struct {
	text   string
	colour int
}{
	Accepted: {"accepted", goodColour}, Rejected: {"not accepted", warnColour}, Open: {"not decided", warnColour}, Failed: {"failed", badColour},
}

func (l *Ladder) name() string { return l.Title }

// SVG is the plot as a file.
func (l *Ladder) SVG() []byte { return file(l) }

// Inline is the plot in an HTML page.
func (l *Ladder) Inline(id string) []byte { return inline(l, id) }

// measured are the steps with a time.
func (l *Ladder) measured() []Step {
	var all []Step
	for _, s := range l.Steps {
		if finite(s.Value) && s.Value > 1e-300 {
			all = append(all, s)
		}
	}
	return all
}

// Finding compares the fastest step with the first, and names the largest single gain.
func (l *Ladder) Finding() string {
	all := l.measured()
	if len(all) == 0 {
		return fmt.Sprintf("None of the %d steps was timed.", len(l.Steps))
	}
	first, best := all[0], all[0]
	gain, from, to := 1.0, Step{}, Step{}
	for _, s := range all[1:] {
		if s.Value >= best.Value {
			continue
		}
		if g := best.Value / s.Value; g > gain {
			gain, from, to = g, best, s
		}
		best = s
	}
	if gain == 1 {
		return fmt.Sprintf("%s has the shortest time of the %d steps, %s.", named(first.Name), len(all), quantity(first.Value, l.Unit))
	}
	text := fmt.Sprintf("%s is %s as fast as %s", named(best.Name), factor(first.Value/best.Value, 2), named(first.Name))
	if from.Name != first.Name || to.Name != best.Name {
		text += fmt.Sprintf("; the largest gain, %s, is from %s to %s", factor(gain, 2), named(from.Name), named(to.Name))
	}
	return text + "."
}

const stepHeight = 34.0

func (l *Ladder) draw(c *canvas) {
	var values []float64
	for _, s := range l.Steps {
		values = append(values, s.Value, s.Low, s.High)
	}
	a := newAxis(values, true, margin+6, right-6)
	top := c.y
	first, best, course := math.NaN(), math.Inf(1), []point{}
	for _, s := range l.Steps {
		known := finite(s.Value) && s.Value > 1e-300
		value := "not timed"
		if known {
			if math.IsNaN(first) {
				first = s.Value
			}
			value = fmt.Sprintf("%s, %s", quantity(s.Value, l.Unit), factor(first/s.Value, 2))
		}
		c.write(right, c.y+12, end, "m", smallSize, value)
		room := right - margin - TextWidth(value, smallSize, false) - 10
		lines := nameLines(s.Name, room, smallSize, false)
		c.name(margin, c.y+12, "t", smallSize, lines)
		c.y += float64(len(lines)-1) * lineHeight
		y := c.y + 22
		c.gridLine(a.from, y, a.to, y)
		if known {
			l.mark(c, s, a, y)
			if s.Value < best {
				best = s.Value
			}
			course = append(course, point{a.at(best), y})
		}
		c.y += stepHeight
	}
	if d := pathAround(course, c.texts); d != "" {
		fmt.Fprintf(&c.grid, `<path class="k l%d" d="%s"/>`+"\n", controlColour, d)
	}
	c.bottomAxis(a, top, c.y, 6)
	c.y += lineHeight + 4
	c.legend(l.keys(c))
	unit := ""
	if l.Unit != "" {
		unit = " in " + l.Unit
	}
	c.note("Time" + unit + ", logarithmic, and the speedup over the first step. The dashed line is the best so far.")
}

// mark draws the time of a step and its interval.
func (l *Ladder) mark(c *canvas, s Step, a axis, y float64) {
	o := outcomes[s.Outcome]
	if finite(s.Low) && finite(s.High) && s.Low > 0 && s.High > s.Low {
		c.line(fmt.Sprintf("w l%d", o.colour), a.at(s.Low), y, a.at(s.High), y)
	}
	c.mark(int(s.Outcome), fmt.Sprintf("f%d", o.colour), a.at(s.Value), y)
}

// keys explain the marks that occur.
func (l *Ladder) keys(c *canvas) []key {
	var keys []key
	for i, o := range outcomes {
		for _, s := range l.measured() {
			if int(s.Outcome) == i {
				keys = append(keys, key{o.text, func(x, y float64) { c.mark(i, fmt.Sprintf("f%d", o.colour), x, y) }})
				break
			}
		}
	}
	return keys
}
