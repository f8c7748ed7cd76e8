package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Roofline shows launches below the ceilings of a device, with logarithmic axes.
type Roofline struct {
	Title   string
	X       string    // name of the intensity; empty: FLOPs per byte of memory traffic
	Memory  Ceiling   // bytes per second
	Compute []Ceiling // FLOPs per second, the highest last
	Points  []RooflinePoint
}

// Ceiling is an upper limit of a rate.
type Ceiling struct {
	Name, Basis string
	PerSecond   float64
}

// RooflinePoint is a launch: FLOPs per byte of memory traffic, and FLOPs per second.
type RooflinePoint struct {
	Name                 string
	Intensity, PerSecond float64
}

func (r *Roofline) name() string { return r.Title }

// SVG is the plot as a file.
func (r *Roofline) SVG() []byte { return file(r) }

// Inline is the plot in an HTML page.
func (r *Roofline) Inline(id string) []byte { return inline(r, id) }

func positive(v float64) bool { return finite(v) && v > 1e-300 }

// ceilings are those that can be drawn.
func (r *Roofline) ceilings() []Ceiling {
	return slices.DeleteFunc(slices.Clone(r.Compute), func(c Ceiling) bool { return !positive(c.PerSecond) })
}

// points are those that can be drawn.
func (r *Roofline) points() []RooflinePoint {
	return slices.DeleteFunc(slices.Clone(r.Points), func(p RooflinePoint) bool { return !positive(p.Intensity) || !positive(p.PerSecond) })
}

// limit is the lower of the memory ceiling and the highest compute ceiling at an intensity, and its
// name.
func (r *Roofline) limit(intensity float64) (float64, string) {
	perSecond, name := math.Inf(1), ""
	if positive(r.Memory.PerSecond) {
		perSecond, name = intensity*r.Memory.PerSecond, r.Memory.Name
	}
	if all := r.ceilings(); len(all) > 0 && all[len(all)-1].PerSecond < perSecond {
		perSecond, name = all[len(all)-1].PerSecond, all[len(all)-1].Name
	}
	return perSecond, name
}

// Finding says how near the launches are to their ceilings.
func (r *Roofline) Finding() string {
	best, text := -1.0, "No launch has a point below the roofline."
	for _, p := range r.points() {
		limit, name := r.limit(p.Intensity)
		share := p.PerSecond / limit
		if share > best && !math.IsInf(limit, 1) {
			best = share
			text = fmt.Sprintf("%s reaches %s TFLOP/s, %s %% of the %s ceiling at %s FLOPs per byte.",
				named(p.Name), decimal(p.PerSecond/1e12, 2), number(100*share, 3), named(name), number(p.Intensity, 3))
		}
	}
	return text
}

const rooflineHeight = 200.0

func (r *Roofline) draw(c *canvas) {
	compute, points := r.ceilings(), r.points()
	var xs, ys []float64
	for _, p := range points {
		xs, ys = append(xs, p.Intensity), append(ys, p.PerSecond/1e12)
	}
	for _, ceiling := range compute {
		ys = append(ys, ceiling.PerSecond/1e12)
		if positive(r.Memory.PerSecond) {
			ridge := ceiling.PerSecond / r.Memory.PerSecond
			xs, ys = append(xs, ridge/10, ridge*4), append(ys, ceiling.PerSecond/1e13)
		}
	}
	top, bottom := c.y+lineHeight, c.y+lineHeight+rooflineHeight
	c.write(margin, c.y+10, start, "m", smallSize, "TFLOP/s")
	vertical := newAxis(ys, true, bottom, top)
	_, labels := vertical.ticks(6)
	left := margin + min(widest(labels, smallSize), 90) + 6
	horizontal := newAxis(xs, true, left, right-4)
	c.leftAxis(vertical, left, right, 6)
	c.bottomAxis(horizontal, top, bottom, 6)
	r.roofs(c, compute, horizontal, vertical)
	for i, p := range points {
		x, y := horizontal.at(p.Intensity), vertical.at(p.PerSecond/1e12)
		if limit, _ := r.limit(p.Intensity); positive(limit) {
			c.line(fmt.Sprintf("k l%d", colourOf(i)), x, y, x, vertical.at(limit/1e12))
		}
		c.mark(i, fmt.Sprintf("f%d", colourOf(i)), x, y)
	}
	c.write(right, bottom+13+lineHeight, end, "m", smallSize, fit(cmp.Or(r.X, "FLOPs per byte of memory traffic"), right-margin, smallSize, false))
	c.y = bottom + 2*lineHeight + 6
	r.keys(c, compute, points)
}

// colourOf leaves the first colour to the ceilings.
func colourOf(i int) int { return 1 + i%(seriesColours-1) }

// roofs draws the memory slope up to the highest ceiling, and the ceilings from the slope on.
func (r *Roofline) roofs(c *canvas, compute []Ceiling, horizontal, vertical axis) {
	class := fmt.Sprintf("w l%d", ownColour)
	if !positive(r.Memory.PerSecond) {
		return
	}
	for i, ceiling := range compute {
		ridge := ceiling.PerSecond / r.Memory.PerSecond
		if ridge < horizontal.high {
			y := vertical.at(ceiling.PerSecond / 1e12)
			c.line(class, horizontal.at(ridge), y, horizontal.to, y)
		}
		if i == len(compute)-1 {
			from := max(horizontal.low, vertical.low*1e12/r.Memory.PerSecond)
			to := min(ridge, horizontal.high)
			if from < to {
				c.line(class, horizontal.at(from), vertical.at(from*r.Memory.PerSecond/1e12), horizontal.at(to), vertical.at(to*r.Memory.PerSecond/1e12))
			}
		}
	}
}

// keys name the points and the ceilings, the highest first.
func (r *Roofline) keys(c *canvas, compute []Ceiling, points []RooflinePoint) {
	var keys []key
	for i, p := range points {
		keys = append(keys, key{fmt.Sprintf("%s: %s TFLOP/s", plain(p.Name), decimal(p.PerSecond/1e12, 2)), func(x, y float64) {
			c.mark(i, fmt.Sprintf("f%d", colourOf(i)), x, y)
		}})
	}
	c.legend(keys)
	for _, ceiling := range slices.Backward(compute) {
		c.note(fmt.Sprintf("Ceiling %s: %s TFLOP/s, %s.", plain(ceiling.Name), decimal(ceiling.PerSecond/1e12, 2), plain(ceiling.Basis)))
	}
	if positive(r.Memory.PerSecond) {
		c.note(fmt.Sprintf("Slope %s: %s TB/s, %s.", plain(r.Memory.Name), number(r.Memory.PerSecond/1e12, 3), plain(r.Memory.Basis)))
	}
}
