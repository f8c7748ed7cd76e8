package plot

import (
	"fmt"
	"strings"
)

// Class is the class of the root element of every plot. The rules of [CSS] apply below it only.
const Class = "attune-plot"

// theme has the colours of a page. Texts and series have a contrast of at least 4.5 with the page.
type theme struct {
	page, ink, muted, grid string
	series                 [seriesColours]string
	heat                   [heatSteps]string // from the best value to the worst
}

const (
	seriesColours = 8
	heatSteps     = 5
)

var (
	light = theme{
		page: "#ffffff", ink: "#1c1f23", muted: "#57606a", grid: "#d5d9de",
		series: [seriesColours]string{"#1f5fa8", "#a84f00", "#1a7340", "#7b3fa0", "#b3261e", "#0b6f7a", "#735613", "#5c6570"},
		heat:   [heatSteps]string{"#bfe3cd", "#dcefd9", "#f3efd2", "#f8dcc0", "#f5c3b8"},
	}
	dark = theme{
		page: "#14171b", ink: "#e6e9ed", muted: "#a3acb7", grid: "#3a424b",
		series: [seriesColours]string{"#7ab0f0", "#f0a860", "#6fd19a", "#c9a0e8", "#f2918a", "#6ccbd6", "#d6b872", "#aab3bd"},
		heat:   [heatSteps]string{"#1d4d33", "#33492c", "#4a4626", "#573c24", "#5e2f2b"},
	}
)

// The series of a plot that has a variant and what it is compared with.
const (
	ownColour, otherColour, goodColour, peerColour, badColour, warnColour, controlColour = 0, 1, 2, 3, 4, 6, 7
)

// rules are the rules of a theme below a selector, which may be empty.
func (t theme) rules(below string) string {
	out := &strings.Builder{}
	rule := func(class, body string) { fmt.Fprintf(out, "%s.%s{%s}\n", below, class, body) }
	rule("bg", "fill:"+t.page)
	halo := ";stroke:" + t.page + ";stroke-width:3;paint-order:stroke" // against lines behind a text
	rule("t", "fill:"+t.ink+halo)
	rule("m", "fill:"+t.muted+halo)
	rule("c", "fill:"+t.ink) // on a coloured cell
	rule("g", "stroke:"+t.grid+";fill:none")
	rule("i", "stroke:"+t.ink+";fill:none")
	for i, colour := range t.series {
		rule(fmt.Sprintf("f%d", i), "fill:"+colour)
		rule(fmt.Sprintf("l%d", i), "stroke:"+colour+";fill:none")
	}
	for i, colour := range t.heat {
		rule(fmt.Sprintf("h%d", i), "fill:"+colour)
	}
	return out.String()
}

// shapes are the rules that no theme changes.
func shapes(below string) string {
	out := &strings.Builder{}
	for _, rule := range []string{
		"b{font-weight:bold}", "w{stroke-width:2}", "k{stroke-dasharray:4 3}",
		"o{stroke-width:3;stroke-linecap:round;stroke-opacity:.5}",
	} {
		out.WriteString(below + "." + rule + "\n")
	}
	return out.String()
}

const darkMedia = "@media (prefers-color-scheme:dark){\n%s}\n"

// fileStyle is the style of a plot in a file of its own.
var fileStyle = light.rules("") + shapes("") + fmt.Sprintf(darkMedia, dark.rules(""))

// CSS has the rules of plots in an HTML page. They follow the system's theme, or the page's if its
// root element has the attribute data-theme with the value light or dark.
var CSS = light.rules("."+Class+" ") + shapes("."+Class+" ") +
	fmt.Sprintf(darkMedia, dark.rules(":root:not([data-theme=light]) ."+Class+" ")) +
	dark.rules(":root[data-theme=dark] ."+Class+" ")
