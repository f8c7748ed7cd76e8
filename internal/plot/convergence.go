package plot

import (
	"fmt"
	"strings"
)

// Convergence shows the course of a search: the best value against the number of evaluations.
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

func (p *Convergence) name() string { return p.Title }

// SVG is the plot as a file.
func (p *Convergence) SVG() []byte { return file(p) }

// Inline is the plot in an HTML page.
func (p *Convergence) Inline(id string) []byte { return inline(p, id) }

// better reports whether one value is better than another.
func (p *Convergence) better(a, b float64) bool {
	if p.Maximised {
		return a > b
	}
	return a < b
}

// bests are the indices of the evaluations that were better than all before them.
func (p *Convergence) bests() (indices []int) {
	for i, v := range p.Values {
		if finite(v) && (indices == nil || p.better(v, p.Values[indices[len(indices)-1]])) {
			indices = append(indices, i)
		}
	}
	return indices
}

func (p *Convergence) failed() (n int) {
	for _, v := range p.Values {
		if !finite(v) {
			n++
		}
	}
	return n
}

// cost is a cost with its unit. Times have three decimals, as in the tables of a search.
func (p *Convergence) cost(v float64) string {
	if p.Unit == "us" && finite(v) {
		return decimal(v, 3) + " us"
	}
	return strings.TrimSpace(number(v, 4) + " " + p.Unit)
}

// Finding states what the search found.
func (p *Convergence) Finding() string {
	n := len(p.Values)
	bests := p.bests()
	if len(bests) == 0 {
		return fmt.Sprintf("None of the %d evaluations has a result.", n)
	}
	last := bests[len(bests)-1]
	text := fmt.Sprintf("The best %s, %s, was found at evaluation %d of %d", plain(p.Objective), p.cost(p.Values[last]), last+1, n)
	if finite(p.Reference) {
		text += fmt.Sprintf("; %s: %s", named(p.ReferenceName), p.cost(p.Reference))
	}
	return fmt.Sprintf("%s. New bests after the first: %d. Failed evaluations: %d.", text, len(bests)-1, p.failed())
}

// verticalAxis contains the values from the best to the median and the reference. What is far worse
// would only flatten the part that matters; it is drawn at the edge.
func (p *Convergence) verticalAxis(bests []int, bottom, top float64) axis {
	var shown []float64
	if ran := sorted(p.Values); len(ran) > 0 {
		shown = []float64{p.Values[bests[0]], p.Values[bests[len(bests)-1]], ran[len(ran)/2], p.Reference}
	}
	return newAxis(shown, false, bottom, top)
}

const (
	convergenceHeight = 170.0
	failureStrip      = 12.0 // above the axis, for failed evaluations
)

func (p *Convergence) draw(c *canvas) {
	bests := p.bests()
	top := c.y + lineHeight
	bottom := top + convergenceHeight
	c.write(margin, c.y+10, start, "m", smallSize, fit(strings.TrimSpace(p.Objective+" "+inUnit(p.Unit)), right-margin, smallSize, false))
	vertical := p.verticalAxis(bests, bottom-failureStrip, top)
	left := margin + 6
	if len(bests) > 0 {
		_, labels := vertical.ticks(5)
		left += min(widest(labels, smallSize), 90)
		c.leftAxis(vertical, left, right, 5)
	}
	c.gridLine(left, bottom, right, bottom)
	x := func(i int) float64 {
		return left + 4 + (right-left-8)*(float64(i)+0.5)/float64(max(len(p.Values), 1))
	}
	step := max(1, int(roundStep(float64(max(len(p.Values), 1))/5)))
	for n := step; n <= len(p.Values); n += step {
		c.label(x(n-1), bottom+13, middle, "m", smallSize, fmt.Sprint(n))
	}
	p.marks(c, bests, x, vertical, bottom)
	if finite(p.Reference) && len(bests) > 0 {
		c.line("i k", left, vertical.at(p.Reference), right, vertical.at(p.Reference))
	}
	c.write(right, bottom+13+lineHeight, end, "m", smallSize, "evaluation")
	c.y = bottom + 2*lineHeight + 4
	c.legend(p.keys(c, bests))
}

func (p *Convergence) marks(c *canvas, bests []int, x func(int) float64, vertical axis, bottom float64) {
	var evaluated dotPath
	var failed, course strings.Builder
	for i, v := range p.Values {
		if finite(v) {
			evaluated.add(x(i), vertical.at(v))
		} else {
			failed.WriteString(cross(x(i), bottom-failureStrip/2))
		}
	}
	for i, at := range bests {
		if i == 0 {
			fmt.Fprintf(&course, "M%s %s", at1(x(at)), at1(vertical.at(p.Values[at])))
		} else {
			fmt.Fprintf(&course, "H%sV%s", at1(x(at)), at1(vertical.at(p.Values[at])))
		}
	}
	if len(bests) > 0 {
		fmt.Fprintf(&course, "H%s", at1(x(len(p.Values)-1)))
	}
	c.path(fmt.Sprintf("o l%d", controlColour), evaluated.String())
	c.path(fmt.Sprintf("l%d", badColour), failed.String())
	c.path(fmt.Sprintf("w l%d", ownColour), course.String())
	for _, at := range bests {
		c.circle(fmt.Sprintf("f%d", ownColour), x(at), vertical.at(p.Values[at]), 3.5)
	}
}

func (p *Convergence) keys(c *canvas, bests []int) []key {
	keys := []key{
		{"new best", func(x, y float64) { c.circle(fmt.Sprintf("f%d", ownColour), x, y, 3.5) }},
		{"evaluation", func(x, y float64) {
			c.path(fmt.Sprintf("o l%d", controlColour), fmt.Sprintf("M%s %sh0", at1(x), at1(y)))
		}},
		{fmt.Sprintf("failed (%d)", p.failed()), func(x, y float64) { c.path(fmt.Sprintf("l%d", badColour), cross(x, y)) }},
	}
	if finite(p.Reference) && len(bests) > 0 {
		keys = append(keys, key{fmt.Sprintf("%s: %s", p.ReferenceName, p.cost(p.Reference)), func(x, y float64) { c.line("i k", x-6, y, x+8, y) }})
	}
	return keys
}
