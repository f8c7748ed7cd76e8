// Package plot draws figures of a lab as SVG: latency strips, the ladder of stages, rooflines, the
// convergence of a search, errors against their limits, the effects of knobs, and throughput against
// a size. It knows no records: each plot is a struct of plain data with these methods:
//
//	Finding() string          what the plot shows, in a sentence; also its text alternative
//	SVG() []byte              a file of its own, for light and dark pages
//	Inline(id string) []byte  the same for an HTML page that has the rules of [CSS]
//
// A page is 360 units wide with letters of at least 11 units. So the text is legible on a screen of
// 360 pixels, and on a wide one the drawing grows. Labels never overlap and never leave the page: a
// text is measured with the widths of a wide font (DejaVu Sans), then wrapped, shortened, or left out
// if it is one of many on an axis. Values that are not finite are drawn as failures or left out.
// Equal data gives equal bytes.
//
// The drawing is by hand. The plotting libraries for Go, such as gonum/plot, write each colour as an
// attribute, so one file cannot follow the theme of the page. They place labels without looking for
// overlaps, and have no text alternative. What remained of them here, the ticks of an axis, is thirty
// lines; scale.Linear of go-moremath, which attune depends on anyway, rounds to 1 and 5 only and has
// no limit for huge values.
package plot
