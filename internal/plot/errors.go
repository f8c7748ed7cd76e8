package plot

import (
	"fmt"
	"math"
	"strings"
)

// Errors shows the errors of outputs as shares of their limits, on a logarithmic axis: one strip for
// each shape, one dot for each output.
type Errors struct {
	Title string
	Error string // such as "largest error"
	Rows  []ErrorRow
}

// ErrorRow are the errors on one shape. A share of 1 is the limit. A share that is not finite is a
// wrong output without a size of its error.
type ErrorRow struct {
	Name   string
	Shares []float64
}

func (e *Errors) name() string { return e.Title }

// SVG is the plot as a file.
func (e *Errors) SVG() []byte { return file(e) }

// Inline is the plot in an HTML page.
func (e *Errors) Inline(id string) []byte { return inline(e, id) }

// Finding says how many outputs keep to the limit, and which comes nearest to it.
func (e *Errors) Finding() string {
	count, over, broken, largest, where := 0, 0, 0, math.Inf(-1), ""
	for _, row := range e.Rows {
		for _, s := range row.Shares {
			count++
			switch {
			case !finite(s):
				broken++
			case s > largest:
				largest, where = s, row.Name
			}
			if finite(s) && s > 1 {
				over++
			}
		}
	}
	if count == 0 {
		return "No output was compared with a limit."
	}
	text := fmt.Sprintf("All %d outputs are within their limits", count)
	if wrong := over + broken; wrong > 0 {
		text = fmt.Sprintf("%d of %d outputs exceed their limits", wrong, count)
	}
	if where == "" {
		return text + "."
	}
	return fmt.Sprintf("%s; the %s is %s %% of its limit, on %s.", text, e.errorName(), number(100*largest, 3), named(where))
}

func (e *Errors) errorName() string {
	if e.Error == "" {
		return "largest error"
	}
	return plain(e.Error)
}

// errorColumn is the widest name beside a strip.
const errorColumn, errorHeight = 150.0, 20.0

func (e *Errors) draw(c *canvas) {
	all := []float64{1}
	zero, broken := false, false
	names := []string{}
	for _, row := range e.Rows {
		names = append(names, row.Name)
		for _, s := range row.Shares {
			zero, broken = zero || s == 0, broken || !finite(s)
		}
		all = append(all, row.Shares...)
	}
	left := margin + min(widest(names, smallSize), errorColumn) + 12
	a := newAxis(all, true, left+14, right-14)
	top := c.y
	for _, row := range e.Rows {
		lines := nameLines(row.Name, left-margin-10, smallSize, false)
		c.name(margin, c.y+14, "t", smallSize, lines)
		c.y += float64(len(lines)-1) * lineHeight / 2
		c.gridLine(left, c.y+errorHeight/2, right, c.y+errorHeight/2)
		e.row(c, row, a, left)
		c.y += errorHeight + float64(len(lines)-1)*lineHeight/2
	}
	c.line(fmt.Sprintf("w k l%d", badColour), a.at(1), top, a.at(1), c.y)
	c.label(a.at(1), c.y+13, middle, "t", smallSize, "limit")
	if zero {
		c.label(left+4, c.y+13, middle, "m", smallSize, "0")
	}
	values, labels := a.ticks(5)
	for i, v := range values {
		c.gridLine(a.at(v), top, a.at(v), c.y)
		c.label(a.at(v), c.y+13, middle, "m", smallSize, labels[i])
	}
	c.y += lineHeight + 4
	text := "Each dot is an output; its place is its error as a share of the limit, logarithmic."
	if broken {
		text += " A cross at the right edge is an output without a finite error."
	}
	c.note(text)
}

func (e *Errors) row(c *canvas, row ErrorRow, a axis, left float64) {
	var inside, over dotPath
	var broken strings.Builder
	for i, s := range row.Shares {
		y := c.y + 4 + (errorHeight-8)*float64(i*7%19)/18
		switch {
		case !finite(s):
			broken.WriteString(cross(right-4, c.y+errorHeight/2))
		case s <= 1e-300:
			inside.add(left+4, y)
		case s > 1:
			over.add(a.at(s), y)
		default:
			inside.add(a.at(s), y)
		}
	}
	c.path(fmt.Sprintf("o l%d", ownColour), inside.String())
	c.path(fmt.Sprintf("o l%d", badColour), over.String())
	c.path(fmt.Sprintf("w l%d", badColour), broken.String())
}
