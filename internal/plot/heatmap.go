package plot

import (
	"fmt"
	"math"
	"slices"
)

// HeatMap shows values in coloured cells, such as the cost of each value of each knob.
type HeatMap struct {
	Title string
	Value string // what the values are, such as "median cost over the best"
	Rows  []HeatRow
}

// HeatRow is a row of cells.
type HeatRow struct {
	Name  string
	Cells []HeatCell
}

// HeatCell is a value; lower is better. One that is not finite was not measured.
type HeatCell struct {
	Label string
	Value float64
}

func (h *HeatMap) name() string { return h.Title }

// SVG is the plot as a file.
func (h *HeatMap) SVG() []byte { return file(h) }

// Inline is the plot in an HTML page.
func (h *HeatMap) Inline(id string) []byte { return inline(h, id) }

// span are the ends of a row's finite values.
func (r *HeatRow) span() (low, high HeatCell, ok bool) {
	cells := slices.DeleteFunc(slices.Clone(r.Cells), func(c HeatCell) bool { return !finite(c.Value) })
	if len(cells) == 0 {
		return HeatCell{}, HeatCell{}, false
	}
	byValue := func(a, b HeatCell) int {
		switch {
		case a.Value < b.Value:
			return -1
		case a.Value > b.Value:
			return 1
		}
		return 0
	}
	return slices.MinFunc(cells, byValue), slices.MaxFunc(cells, byValue), true
}

// Finding names the row whose values differ most.
func (h *HeatMap) Finding() string {
	text, most := "", 0.0
	for _, row := range h.Rows {
		low, high, ok := row.span()
		if !ok || low.Value <= 0 || high.Value/low.Value <= max(most, 1) {
			continue
		}
		most = high.Value / low.Value
		text = fmt.Sprintf("%s matters most: %s has %s the value of %s.", named(row.Name), named(high.Label), factor(most, 2), named(low.Label))
	}
	if text == "" {
		return "No row has two values that differ."
	}
	return text
}

const cellWidth, cellHeight, cellGap, cellMargin = 74.0, 32.0, 2.0, 6.0

// layout is the size of the row's cells, and the lines of their labels. The widest label decides: labels
// differ anywhere, so that none is shortened.
func (r *HeatRow) layout() (width float64, labels [][]string, height float64) {
	width = cellWidth
	for _, cell := range r.Cells {
		width = min(max(width, TextWidth(plain(cell.Label), smallSize, false)+cellMargin), right-margin)
	}
	lines := 1
	for _, cell := range r.Cells {
		label := nameLines(cell.Label, width-cellMargin, smallSize, false)
		labels, lines = append(labels, label), max(lines, len(label))
	}
	return width, labels, cellHeight + float64(lines-1)*lineHeight
}

func (h *HeatMap) draw(c *canvas) {
	lowest, highest := math.Inf(1), math.Inf(-1)
	for _, row := range h.Rows {
		if low, high, ok := row.span(); ok {
			lowest, highest = min(lowest, low.Value), max(highest, high.Value)
		}
	}
	for _, row := range h.Rows {
		lines := nameLines(row.Name, right-margin, smallSize, false)
		c.name(margin, c.y+12, "t", smallSize, lines)
		c.y += float64(len(lines)) * lineHeight
		width, labels, height := row.layout()
		x := margin
		for i, cell := range row.Cells {
			if i > 0 && x+width > right {
				x, c.y = margin, c.y+height+cellGap
			}
			cell.draw(c, labels[i], x, width, height, heatStep(cell.Value, lowest, highest))
			x += width + cellGap
		}
		c.y += height + 8
	}
	c.note("Cells: a value of the row, and " + plain(h.Value) + ". Green is the lowest of all, red the highest. A cell without a number was not measured.")
}

// heatStep is the colour of a value between the ends of all, by its logarithm if all are positive.
func heatStep(v, low, high float64) int {
	if !finite(v) {
		return -1
	}
	share := (v/2 - low/2) / (high/2 - low/2)
	if low > 1e-300 {
		share = math.Log(v/low) / math.Log(high/low)
	}
	if !(share > 0) { // also of equal values
		return 0
	}
	return min(int(share*heatSteps), heatSteps-1)
}

func (cell HeatCell) draw(c *canvas, label []string, x, width, height float64, step int) {
	class, value := "g", ""
	if step >= 0 {
		class, value = fmt.Sprintf("h%d", step), number(cell.Value, 4)
	}
	c.rect(class, x, c.y, width, height)
	for i, line := range label {
		c.write(x+width/2, c.y+13+float64(i)*lineHeight, middle, "c", smallSize, line)
	}
	c.write(x+width/2, c.y+height-5, middle, "c", smallSize, fit(value, width-cellMargin, smallSize, false))
}
