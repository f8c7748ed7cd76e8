package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/run"
)

// percent is a fraction as benchstat prints it.
func percent(share float64) string {
	if math.IsInf(share, 1) {
		return "∞"
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

// plusMinus is the wider side of the interval of a median. Old records have no interval.
func plusMinus(p run.Performance) string {
	if p.P50LowUS == nil || p.P50HighUS == nil {
		return "-"
	}
	return percent(max(*p.P50HighUS/p.P50US-1, 1-*p.P50LowUS/p.P50US))
}

func orDash(us *float64) string {
	if us == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", *us)
}

// timingLines describe the conditions of a run's times.
func timingLines(r *run.Run) []string {
	var lines []string
	var all []run.Conditions
	for _, p := range r.Performance {
		lines = append(lines, flushLine(p.Shape, r.Variant, p.RelatedTimes)...)
		all = append(all, p.Conditions)
	}
	return append(lines, conditionLines(all)...)
}

// ComparisonLines describe the conditions of a comparison.
func ComparisonLines(c *run.Comparison) []string {
	lines := []string{fmt.Sprintf("inputs %s in L2", c.L2)}
	if graphs := run.GraphsText(c.Launches); graphs != "" {
		lines = append(lines, graphs)
	}
	var all []run.Conditions
	for _, s := range c.Shapes {
		if s.Checked != nil && !s.Checked.Whole() {
			lines = append(lines, fmt.Sprintf("%s: checked: %s", s.Shape, s.Checked))
		}
		if a, b := s.ARelated.SingleUS, s.BRelated.SingleUS; a != nil && b != nil {
			lines = append(lines, fmt.Sprintf("%s: a single launch %s us (%s) and %s us (%s)",
				s.Shape, orDash(a), c.A.Variant, orDash(b), c.B.Variant))
		}
		lines = append(lines, flushLine(s.Shape, c.A.Variant, s.ARelated)...)
		lines = append(lines, flushLine(s.Shape, c.B.Variant, s.BRelated)...)
		all = append(all, s.Conditions)
	}
	return append(lines, conditionLines(all)...)
}

// flushLine writes the two times whose difference is the time with a cold L2.
func flushLine(shape, variant string, p run.RelatedTimes) []string {
	if p.WithFlushUS == nil || p.FlushUS == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s, %s, L2 cold: a flush and a launch %s us, minus the flush alone %s us",
		shape, variant, orDash(p.WithFlushUS), orDash(p.FlushUS))}
}

// conditionLines summarize the conditions of several shapes. A reason is listed once.
func conditionLines(all []run.Conditions) []string {
	var lines []string
	var empty []float64
	var copies []int
	var together run.Conditions
	var unmonitored []string
	for _, c := range all {
		if c.EmptyNodeUS != nil {
			empty = append(empty, *c.EmptyNodeUS)
		}
		if c.Copies > 0 {
			copies = append(copies, c.Copies)
		}
		if c.Unmonitored != "" && !slices.Contains(unmonitored, c.Unmonitored) {
			unmonitored = append(unmonitored, c.Unmonitored)
		}
		together = together.And(c)
	}
	if len(empty) > 0 {
		lines = append(lines, fmt.Sprintf("empty node %s us, included in every time above", rangeText("%.2f", slices.Min(empty), slices.Max(empty))))
	}
	if len(copies) > 0 && slices.Max(copies) > 1 {
		lines = append(lines, fmt.Sprintf("launches rotate over %s copies of their buffers", rangeText("%d", slices.Min(copies), slices.Max(copies))))
	}
	if together.Unstable {
		lines = append(lines, "not stable: some times still changed at the end of the warm-up")
	}
	if together.Monitored != nil {
		lines = append(lines, monitoredText(together.Monitored))
	}
	if len(unmonitored) > 0 {
		lines = append(lines, "clocks, power and temperature not measured: "+strings.Join(unmonitored, "; "))
	}
	return lines
}

func monitoredText(m *run.Monitored) string {
	text := fmt.Sprintf("SM clock %s MHz, memory %s MHz, at most %.0f W and %d C; throttled: %d", rangeText("%d", m.ClockMHz[0], m.ClockMHz[1]),
		rangeText("%d", m.MemoryClockMHz[0], m.MemoryClockMHz[1]), m.PowerWatts, m.Celsius, m.Throttled)
	if m.Throttled == 0 {
		return text
	}
	text += fmt.Sprintf(" of %d rounds (%s)", m.Rounds, strings.Join(m.Reasons, ", "))
	switch {
	case m.Kept != "":
		return text + ", not excluded: " + m.Kept
	case m.Excluded == m.Throttled:
		return text + ", excluded"
	case m.Excluded == 0:
		return text + ", too many to exclude"
	}
	return fmt.Sprintf("%s, %d excluded", text, m.Excluded)
}

// rangeText is a range of values, or one value if both are printed alike.
func rangeText[T int | float64](format string, low, high T) string {
	a, b := fmt.Sprintf(format, low), fmt.Sprintf(format, high)
	if a == b {
		return a
	}
	return a + " to " + b
}

// paragraphs writes each line as a Markdown paragraph.
func paragraphs(lines []string) string {
	text := ""
	for _, line := range lines {
		text += "\n" + line + ".\n"
	}
	return text
}
