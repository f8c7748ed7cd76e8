package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/run"
)

// percent is a share as benchstat prints it.
func percent(share float64) string {
	if math.IsInf(share, 1) {
		return "∞"
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

// plusMinus is how far the interval of a median reaches on its wider side. Older records have none.
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

// timingLines say what stands beside the times of a run.
func timingLines(r *run.Run) []string {
	var lines []string
	var all []run.Circumstances
	for _, p := range r.Performance {
		lines = append(lines, flushLine(p.Shape, r.Variant, p.Parts)...)
		all = append(all, p.Circumstances)
	}
	return append(lines, circumstanceLines(all)...)
}

// ComparisonLines say what stands beside the times of a comparison.
func ComparisonLines(c *run.Comparison) []string {
	lines := []string{fmt.Sprintf("inputs %s in L2", c.L2)}
	if graphs := run.GraphsText(c.Launches); graphs != "" {
		lines = append(lines, graphs)
	}
	var all []run.Circumstances
	for _, s := range c.Shapes {
		if s.Answers != nil && !s.Answers.Whole() {
			lines = append(lines, fmt.Sprintf("%s: answers: %s", s.Shape, s.Answers))
		}
		if a, b := s.AParts.SingleUS, s.BParts.SingleUS; a != nil && b != nil {
			lines = append(lines, fmt.Sprintf("%s: a launch by itself %s us (%s) and %s us (%s)", s.Shape, orDash(a), c.A.Variant, orDash(b), c.B.Variant))
		}
		lines = append(lines, flushLine(s.Shape, c.A.Variant, s.AParts)...)
		lines = append(lines, flushLine(s.Shape, c.B.Variant, s.BParts)...)
		all = append(all, s.Circumstances)
	}
	return append(lines, circumstanceLines(all)...)
}

// flushLine gives both numbers of which a time with a cold L2 is the difference.
func flushLine(shape, variant string, p run.Parts) []string {
	if p.WithFlushUS == nil || p.FlushUS == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s, %s, L2 cold: a flush and a launch %s us, less the flush alone %s us", shape, variant, orDash(p.WithFlushUS), orDash(p.FlushUS))}
}

// circumstanceLines sum up the circumstances of several shapes. What was not measured is said once.
func circumstanceLines(all []run.Circumstances) []string {
	var lines []string
	var empty []float64
	var copies []int
	var watched run.Circumstances
	var unwatched []string
	for _, c := range all {
		if c.EmptyNodeUS != nil {
			empty = append(empty, *c.EmptyNodeUS)
		}
		if c.Copies > 0 {
			copies = append(copies, c.Copies)
		}
		if c.Unwatched != "" && !slices.Contains(unwatched, c.Unwatched) {
			unwatched = append(unwatched, c.Unwatched)
		}
		watched = watched.And(c)
	}
	if len(empty) > 0 {
		lines = append(lines, fmt.Sprintf("empty node %s us, which is part of every time above", rangeText("%.2f", slices.Min(empty), slices.Max(empty))))
	}
	if len(copies) > 0 && slices.Max(copies) > 1 {
		lines = append(lines, fmt.Sprintf("launches take %s copies of their buffers in turns", rangeText("%d", slices.Min(copies), slices.Max(copies))))
	}
	if watched.Unstable {
		lines = append(lines, "not stable: some times still moved when the warm-up came to its end")
	}
	if w := watched.Watched; w != nil {
		lines = append(lines, watchedText(w))
	}
	if len(unwatched) > 0 {
		lines = append(lines, "clocks, power and heat not measured: "+strings.Join(unwatched, "; "))
	}
	return lines
}

func watchedText(w *run.Watched) string {
	text := fmt.Sprintf("SM clock %s MHz, memory %s MHz, at most %.0f W and %d C; throttled: %d", rangeText("%d", w.ClockMHz[0], w.ClockMHz[1]),
		rangeText("%d", w.MemoryClockMHz[0], w.MemoryClockMHz[1]), w.PowerWatts, w.Celsius, w.Throttled)
	if w.Throttled == 0 {
		return text
	}
	text += fmt.Sprintf(" of %d rounds (%s)", w.Rounds, strings.Join(w.Reasons, ", "))
	switch {
	case w.Kept != "":
		return text + ", not set aside: " + w.Kept
	case w.SetAside == w.Throttled:
		return text + ", set aside"
	case w.SetAside == 0:
		return text + ", too many to set aside"
	}
	return fmt.Sprintf("%s, %d set aside", text, w.SetAside)
}

// rangeText is from one value to another, or the one where both read the same.
func rangeText[T int | float64](format string, low, high T) string {
	a, b := fmt.Sprintf(format, low), fmt.Sprintf(format, high)
	if a == b {
		return a
	}
	return a + " to " + b
}

// paragraphs are lines as Markdown, each with an empty one after it.
func paragraphs(lines []string) string {
	text := ""
	for _, line := range lines {
		text += "\n" + line + ".\n"
	}
	return text
}
