package plot

import (
	"math"
	"strconv"
	"testing"
)

// Texts and lines stand out from the page and from the cells in both themes.
func TestContrast(t *testing.T) {
	t.Parallel()
	for name, th := range map[string]theme{"light": light, "dark": dark} {
		for _, colour := range append([]string{th.ink, th.muted}, th.series[:]...) {
			if c := contrast(colour, th.page); c < 4.5 {
				t.Errorf("%s: %s on the page has %.2f", name, colour, c)
			}
		}
		for _, cell := range th.heat {
			if c := contrast(th.ink, cell); c < 4.5 {
				t.Errorf("%s: text on %s has %.2f", name, cell, c)
			}
		}
	}
}

// contrast is the ratio of the relative luminances of two colours, as WCAG defines it.
func contrast(a, b string) float64 {
	luminance := func(colour string) float64 {
		n, _ := strconv.ParseUint(colour[1:], 16, 32)
		linear := func(byte uint64) float64 {
			v := float64(byte&0xff) / 255
			if v <= 0.04045 {
				return v / 12.92
			}
			return math.Pow((v+0.055)/1.055, 2.4)
		}
		return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}
