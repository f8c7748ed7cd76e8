package plot

import (
	"math"
	"slices"
	"strconv"
)

// axis maps values to the page. Values beyond its ends are drawn at the end.
type axis struct {
	low, high float64 // values
	from, to  float64 // places
	log       bool
}

// newAxis is an axis that contains the finite values, with some room at both ends. A logarithmic axis
// takes positive values only.
func newAxis(values []float64, log bool, from, to float64) axis {
	a := axis{from: from, to: to, log: log, low: math.Inf(1), high: math.Inf(-1)}
	for _, v := range values {
		if finite(v) && (!log || v > 1e-300) {
			a.low, a.high = min(a.low, v), max(a.high, v)
		}
	}
	if a.low > a.high { // no values
		a.low, a.high = 1, 2
	}
	if log {
		a.low, a.high = a.low/1.15, a.high*1.15
		return a
	}
	room := 0.06 * (a.high - a.low)
	if largest := max(math.Abs(a.low), math.Abs(a.high)); room < 1e-9*largest {
		room = 0.05 * largest
	}
	if room == 0 {
		room = 1
	}
	a.low, a.high = a.low-room, a.high+room
	return a
}

// at is the place of a value.
func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	v = min(max(v, low), high)
	if a.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return a.from + (a.to-a.from)*(v-low)/(high-low)
}

// ticks are at most about so many round values on the axis, with their labels.
func (a axis) ticks(most int) (values []float64, labels []string) {
	if a.log {
		return a.logTicks(most)
	}
	step := roundStep((a.high - a.low) / float64(most))
	first := math.Ceil(a.low / step)
	for i := range most + 2 {
		if v := (first + float64(i)) * step; v <= a.high {
			values = append(values, v)
			labels = append(labels, tickLabel(v, step, max(math.Abs(a.low), math.Abs(a.high))))
		}
	}
	return values, labels
}

// tickLabel writes a multiple of a step with the digits that tell it from its neighbours.
func tickLabel(v, step, largest float64) string {
	if math.Abs(v) < step/2 {
		return "0"
	}
	if largest >= 1e6 || largest < 1e-3 {
		digits := int(math.Ceil(math.Log10(largest/step))) + 1
		return exponential(v, min(max(digits, 1), 8))
	}
	return strconv.FormatFloat(v, 'f', max(0, decimalsOf(step)), 64)
}

// logTicks are powers of ten, or also 2 and 5 times them if there are few.
func (a axis) logTicks(most int) (values []float64, labels []string) {
	first, last := math.Floor(math.Log10(a.low)), math.Ceil(math.Log10(a.high))
	every := max(1, math.Ceil((last-first)/float64(most)))
	factors := []float64{1}
	if (last-first)*3 <= float64(most)+3 {
		factors = []float64{1, 2, 5}
	}
	for exponent := first; exponent <= last; exponent += every {
		for _, f := range factors {
			if v := f * math.Pow(10, exponent); v >= a.low*(1-1e-9) && v <= a.high*(1+1e-9) {
				values, labels = append(values, v), append(labels, powerLabel(v))
			}
		}
	}
	if len(values) < 2 { // within one step: the ends say more
		inner := axis{low: a.low, high: a.high}
		values, labels = inner.ticks(min(most, 4))
		values = slices.DeleteFunc(values, func(v float64) bool { return v <= 0 })
		labels = labels[len(labels)-len(values):]
	}
	return values, labels
}

// powerLabel writes a tick of a logarithmic axis.
func powerLabel(v float64) string {
	if v >= 1e5 {
		return exponential(v, 1)
	}
	return number(v, 1)
}

// decimalsOf are the decimals that tell multiples of a step apart.
func decimalsOf(step float64) int {
	for n := range 8 {
		if scaled := step * math.Pow10(n); math.Abs(scaled-math.Round(scaled)) < 1e-6*scaled {
			return n
		}
	}
	return 8
}

// roundStep is 1, 2, 2.5 or 5 times a power of ten, at least x.
func roundStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, factor := range []float64{1, 2, 2.5, 5} {
		if factor*power >= x*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// widest is the width of the widest of some labels.
func widest(labels []string, size float64) float64 {
	width := 0.0
	for _, l := range labels {
		width = max(width, TextWidth(l, size, false))
	}
	return width
}

// bottomAxis draws a horizontal axis below the marks: lines up to the top, and the labels that fit.
func (c *canvas) bottomAxis(a axis, top, bottom float64, most int) {
	values, labels := a.ticks(most)
	for i, v := range values {
		c.gridLine(a.at(v), top, a.at(v), bottom)
		c.label(a.at(v), bottom+13, middle, "m", smallSize, labels[i])
	}
}

// leftAxis draws a vertical axis whose labels end at its left.
func (c *canvas) leftAxis(a axis, left, to float64, most int) {
	values, labels := a.ticks(most)
	for i, v := range values {
		c.gridLine(left, a.at(v), to, a.at(v))
		c.label(left-5, a.at(v)+4, end, "m", smallSize, labels[i])
	}
}
