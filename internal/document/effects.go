package document

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"attune/internal/terminal"
	"attune/internal/tune"
)

// CostScale returns the unit that costs are printed in, and the factor to it.
func CostScale(unit string) (name string, factor float64) {
	switch word, _, _ := strings.Cut(unit, " "); word {
	case "seconds":
		return "us", 1e6
	case "joules":
		return "mJ", 1e3
	default:
		return word, 1
	}
}

// CostUnit names the unit of CostScale in a sentence about an objective. A simulated cost says that it
// is no time.
func CostUnit(unit string) string {
	if name, factor := CostScale(unit); factor != 1 {
		return name
	}
	return unit
}

// costText prints a cost in the unit of CostScale with four significant digits; "-" if there is none.
func costText(cost *float64, unit string) string {
	if cost == nil {
		return "-"
	}
	_, factor := CostScale(unit)
	v := factor * *cost
	if math.Abs(v) >= 1000 && math.Abs(v) < 1e10 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// ratioText prints a ratio; "-" if there is none.
func ratioText(x *float64) string {
	if x == nil {
		return "-"
	}
	return strconv.FormatFloat(*x, 'f', 3, 64)
}

const effectsNote = "Of each value: its evaluations, how many of them failed, the best cost with it, the median over the " +
	"best of the search, and the median over neighbours: variants that differ in this knob alone. Below 1 the value is better."

// effectsTable has a row for each value of each knob.
func effectsTable(effects []tune.KnobEffect, unit string) (header []string, rows [][]string) {
	name, _ := CostScale(unit)
	header = []string{"knob", "tried", "failed", strings.TrimSpace("best " + name), "median", "neighbours", "pairs"}
	for _, e := range effects {
		for _, v := range e.Values {
			rows = append(rows, []string{
				e.Knob + "=" + v.Value.String(), strconv.Itoa(v.Evaluations), strconv.Itoa(v.Failures), costText(v.Best, unit),
				ratioText(v.Median), ratioText(v.Ratio), strconv.Itoa(v.Neighbours),
			})
		}
	}
	return header, rows
}

// shownEffects is how many knobs a terminal shows.
const shownEffects = 8

// Effects writes what a search says about each knob, the one that matters most first.
func Effects(w io.Writer, effects []tune.KnobEffect, unit string, s terminal.Screen) error {
	if len(effects) == 0 {
		return nil
	}
	out := &strings.Builder{}
	s.Paragraph(out, "", "Effect of each knob. "+effectsNote, 0)
	header, rows := effectsTable(effects[:min(len(effects), shownEffects)], unit)
	t := plainTable(header, rows)
	t.Indent = 2
	t.Write(out, s)
	if more := len(effects) - shownEffects; more > 0 {
		s.Paragraph(out, "", fmt.Sprintf("%d more knobs with smaller effects are in report.md and in --json.", more), 0)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// effectsMarkdown writes the table of all knobs.
func effectsMarkdown(out *bytes.Buffer, effects []tune.KnobEffect, unit string) {
	if len(effects) == 0 {
		out.WriteString("No knob has two values among the evaluations.\n")
		return
	}
	header, rows := effectsTable(effects, unit)
	stringTable(out, header, rows)
	fmt.Fprintf(out, "\n%s\n", effectsNote)
}
