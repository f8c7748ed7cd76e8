package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The page, in units. On a screen of 360 pixels a unit is nearly a pixel.
const (
	pageWidth  = 360.0
	margin     = 10.0
	right      = pageWidth - margin
	fontSize   = 12.0
	smallSize  = 11.0
	lineHeight = 16.0
)

// anchor is the end of a text that its position names.
type anchor string

const (
	start  anchor = "start"
	middle anchor = "middle"
	end    anchor = "end"
)

// canvas collects the marks and texts of a plot. y is the top of what is drawn next.
type canvas struct {
	grid  strings.Builder // drawn first, so that it crosses no text
	body  strings.Builder
	y     float64
	texts []box
}

// box is the room of a text.
type box struct{ left, top, right, bottom float64 }

func (b box) overlaps(other box) bool {
	return b.left < other.right && other.left < b.right && b.top < other.bottom && other.top < b.bottom
}

// point is a place on the page.
type point struct{ x, y float64 }

// pathAround is the path through points, with gaps where it would cross a text.
func pathAround(points []point, texts []box) string {
	d := strings.Builder{}
	pen := point{math.NaN(), math.NaN()}
	for i := 1; i < len(points); i++ {
		from, to := points[i-1], points[i]
		at := func(t float64) point { return point{from.x + t*(to.x-from.x), from.y + t*(to.y-from.y)} }
		for _, piece := range outside(from, to, texts) {
			if begin := at(piece[0]); begin != pen {
				fmt.Fprintf(&d, "M%s %s", at1(begin.x), at1(begin.y))
			}
			pen = at(piece[1])
			fmt.Fprintf(&d, "L%s %s", at1(pen.x), at1(pen.y))
		}
	}
	return d.String()
}

// outside are the pieces of a line that cross no text, each from and to a share of the line.
func outside(from, to point, texts []box) [][2]float64 {
	pieces := [][2]float64{{0, 1}}
	for _, b := range texts {
		const space = 2 // between a text and the line
		enter, leave := 0.0, 1.0
		for _, side := range [][4]float64{{from.x, to.x, b.left - space, b.right + space}, {from.y, to.y, b.top - space, b.bottom + space}} {
			begin, length := side[0], side[1]-side[0]
			low, high := (side[2]-begin)/length, (side[3]-begin)/length
			switch {
			case length == 0 && (begin <= side[2] || begin >= side[3]):
				enter = 2 // beside the text
			case length != 0:
				enter, leave = max(enter, min(low, high)), min(leave, max(low, high))
			}
		}
		if enter >= leave {
			continue
		}
		var rest [][2]float64
		for _, p := range pieces {
			for _, part := range [][2]float64{{p[0], min(p[1], enter)}, {max(p[0], leave), p[1]}} {
				if part[0] < part[1] {
					rest = append(rest, part)
				}
			}
		}
		pieces = rest
	}
	return pieces
}

// drawing is a plot that can be drawn.
type drawing interface {
	name() string
	Finding() string
	draw(c *canvas)
}

// file is a plot as a file of its own. The width is for pages that do not set one.
func file(d drawing) []byte {
	return render(d, "plot", "<style>\n"+fileStyle+"</style>\n", fmt.Sprintf(` width="%.0f"`, 1.2*pageWidth))
}

// inline is a plot inside an HTML page.
func inline(d drawing, id string) []byte { return render(d, id, "", "") }

func render(d drawing, id, style, width string) []byte {
	c := &canvas{y: margin}
	c.header(d.name(), d.Finding())
	d.draw(c)
	height := math.Ceil(c.y + margin)
	out := &bytes.Buffer{}
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" class="%s" viewBox="0 0 %.0f %.0f"%s role="img" aria-labelledby="%s-title %s-desc" `+
		`font-family="system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif" font-size="%.0f">`+"\n",
		Class, pageWidth, height, width, escape(id), escape(id), fontSize)
	fmt.Fprintf(out, "<title id=\"%s-title\">%s</title>\n<desc id=\"%s-desc\">%s</desc>\n%s", escape(id), escape(plain(d.name())), escape(id),
		escape(plain(d.Finding())), style)
	fmt.Fprintf(out, `<rect class="bg" width="%.0f" height="%.0f"/>`+"\n%s%s</svg>\n", pageWidth, height, c.grid.String(), c.body.String())
	return out.Bytes()
}

// escape writes a text for XML. Characters that XML does not have become U+FFFD.
func escape(text string) string {
	out := &strings.Builder{}
	_ = xml.EscapeText(out, []byte(text)) // a Builder has no errors
	return out.String()
}

// header writes the title and the finding.
func (c *canvas) header(title, finding string) {
	for _, line := range wrap(title, right-margin, fontSize+1, true, 6) {
		c.write(margin, c.y+fontSize, start, "t b", fontSize+1, line)
		c.y += lineHeight + 1
	}
	for _, line := range wrap(finding, right-margin, fontSize, false, 8) {
		c.write(margin, c.y+fontSize, start, "m", fontSize, line)
		c.y += lineHeight
	}
	c.y += 6
}

// boxOf is the room of a text whose baseline is at y.
func boxOf(x, y float64, at anchor, size float64, bold bool, text string) box {
	width := TextWidth(text, size, bold)
	left := x
	switch at {
	case middle:
		left = x - width/2
	case end:
		left = x - width
	}
	return box{left: left, top: y - 0.8*size, right: left + width, bottom: y + 0.2*size}
}

// write puts a text whose place the layout has reserved.
func (c *canvas) write(x, y float64, at anchor, class string, size float64, text string) {
	if text == "" {
		return
	}
	c.texts = append(c.texts, boxOf(x, y, at, size, strings.HasSuffix(class, " b"), text))
	attributes := ""
	if at != start {
		attributes = fmt.Sprintf(` text-anchor="%s"`, at)
	}
	if size != fontSize {
		attributes += fmt.Sprintf(` font-size="%g"`, size)
	}
	fmt.Fprintf(&c.body, `<text class="%s" x="%s" y="%s"%s>%s</text>`+"\n", class, at1(x), at1(y), attributes, escape(text))
}

// name writes the lines of a name, the first at a baseline.
func (c *canvas) name(x, y float64, class string, size float64, lines []string) {
	for i, line := range lines {
		c.write(x, y+float64(i)*lineHeight, start, class, size, line)
	}
}

// label writes a text if it fits on the page beside the texts before it, with some space around. It
// is for texts of which a plot can do without some.
func (c *canvas) label(x, y float64, at anchor, class string, size float64, text string) bool {
	room := boxOf(x, y, at, size, false, text)
	room.left, room.right = room.left-3, room.right+3
	if room.left < 0 || room.right > pageWidth {
		return false
	}
	for _, b := range c.texts {
		if room.overlaps(b) {
			return false
		}
	}
	c.write(x, y, at, class, size, text)
	return true
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) { drawLine(&c.body, class, x1, y1, x2, y2) }

// gridLine draws a line behind everything else.
func (c *canvas) gridLine(x1, y1, x2, y2 float64) { drawLine(&c.grid, "g", x1, y1, x2, y2) }

func drawLine(out *strings.Builder, class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(out, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, at1(x1), at1(y1), at1(x2), at1(y2))
}

func (c *canvas) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&c.body, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`+"\n", class, at1(x), at1(y), at1(width), at1(height))
}

func (c *canvas) circle(class string, x, y, radius float64) {
	fmt.Fprintf(&c.body, `<circle class="%s" cx="%s" cy="%s" r="%g"/>`+"\n", class, at1(x), at1(y), radius)
}

func (c *canvas) path(class, d string) {
	if d != "" {
		fmt.Fprintf(&c.body, `<path class="%s" d="%s"/>`+"\n", class, d)
	}
}

// at1 is a coordinate with one decimal.
func at1(v float64) string { return strconv.FormatFloat(math.Round(10*v)/10, 'f', -1, 64) }

// mark draws one of four shapes around a point.
func (c *canvas) mark(kind int, class string, x, y float64) {
	switch kind % 4 {
	case 0:
		c.circle(class, x, y, 3.5)
	case 1:
		c.rect(class, x-3, y-3, 6, 6)
	case 2:
		c.path(class, fmt.Sprintf("M%s %sl4 7h-8z", at1(x), at1(y-4)))
	default:
		c.path(class, fmt.Sprintf("M%s %sl4 4l-4 4l-4-4z", at1(x), at1(y-4)))
	}
}

// cross is the path of a failure.
func cross(x, y float64) string { return fmt.Sprintf("M%s %sl5 5m0-5l-5 5", at1(x-2.5), at1(y-2.5)) }

// key is an entry of a legend. mark draws its sign around a point.
type key struct {
	text string
	mark func(x, y float64)
}

// legend writes entries side by side, in as many lines as they need.
func (c *canvas) legend(keys []key) {
	const sign, gap = 18.0, 14.0
	x := margin
	for i, k := range keys {
		lines := nameLines(k.text, right-margin-sign, smallSize, false)
		width := sign + widest(lines, smallSize)
		if i > 0 && x+width > right {
			x, c.y = margin, c.y+lineHeight
		}
		k.mark(x+6, c.y+8)
		c.name(x+sign, c.y+12, "t", smallSize, lines)
		c.y += float64(len(lines)-1) * lineHeight
		x += width + gap
	}
	if len(keys) > 0 {
		c.y += lineHeight
	}
}

// note writes a sentence in small letters.
func (c *canvas) note(text string) {
	for _, line := range wrap(text, right-margin, smallSize, false, 4) {
		c.write(margin, c.y+12, start, "m", smallSize, line)
		c.y += lineHeight - 1
	}
}
