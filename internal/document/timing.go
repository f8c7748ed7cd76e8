package document

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/measure"
	"attune/internal/run"
)

// Percent is a fraction in percent. Times of one program differ by less than 1 %.
func Percent(share float64) string {
	if math.IsInf(share, 1) {
		return "∞"
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// millijoules is an energy with three significant digits.
func (r record) millijoules(joules *float64, key string) Text {
	if joules == nil {
		return cell(missing)
	}
	return cell(derived(millijouleFormat(*joules), 1e3**joules, "1000 * "+r.key("%s", key)))
}

func millijouleFormat(joules float64) string {
	return fmt.Sprintf("%%.%df", max(0, 2-int(math.Floor(math.Log10(1e3*joules)))))
}

func millijoules(joules *float64) string {
	if joules == nil {
		return none
	}
	return fmt.Sprintf(millijouleFormat(*joules), 1e3**joules)
}

// plusMinus is the wider side of the interval of a median. Old records have none, or one that covers
// a single process only.
func plusMinus(p run.Performance) string {
	if p.P50LowUS == nil || p.P50HighUS == nil {
		return "-"
	}
	low, high := *p.P50LowUS, *p.P50HighUS
	if p.Processes < 2 {
		low, high = min(low, p.P50US*(1-measure.SingleSpread)), max(high, p.P50US*(1+measure.SingleSpread))
	}
	return spread(p.P50US, low, high)
}

func spread(p50, low, high float64) string { return Percent(max(high/p50-1, 1-low/p50)) }

// timingLines describe the conditions of a run's times.
func timingLines(r *run.Run) []string {
	var lines []string
	var all []run.Conditions
	processes := 0
	for _, p := range r.Performance {
		lines = append(lines, flushLine(p.Shape, r.Variant, p.RelatedTimes)...)
		all, processes = append(all, p.Conditions), max(processes, p.Processes, 1)
	}
	if processes > 0 {
		lines = append(lines, "samples of "+processesText(processes))
	}
	return append(lines, conditionLines(all)...)
}

// processesText says in how many processes times were taken, and what ± covers.
func processesText(n int) string {
	if n == 1 {
		return "1 process: ± is at least 1 %, by which processes differ"
	}
	return fmt.Sprintf("%d processes: ± covers what differs between them", n)
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
				s.Shape, OrMissing("%.2f", a), c.A.Variant, OrMissing("%.2f", b), c.B.Variant))
		}
		lines = append(lines, processLines(s, c)...)
		lines = append(lines, flushLine(s.Shape, c.A.Variant, s.ARelated)...)
		lines = append(lines, flushLine(s.Shape, c.B.Variant, s.BRelated)...)
		all = append(all, s.Conditions)
	}
	for _, one := range []run.Compared{c.A, c.B} {
		lines = append(lines, simulatedLine(one.Variant, one.Simulated, c.NoSim)...)
	}
	return append(lines, conditionLines(all)...)
}

// processLines describe what differs between the processes of a comparison, and the energy.
func processLines(s run.ComparedShape, c *run.Comparison) []string {
	var lines []string
	for _, side := range []struct {
		name    string
		between measure.Between
	}{{c.A.Variant, s.ABetween}, {c.B.Variant, s.BBetween}} {
		if b := side.between; b.Processes > 1 {
			lines = append(lines, fmt.Sprintf("%s, %s: medians of %d processes %.3f to %.3f us, mean %.3f us, standard deviation %.2f %%",
				s.Shape, side.name, b.Processes, 1e6*b.Min, 1e6*b.Max, 1e6*b.Mean, 100*b.CV))
		}
	}
	if s.AJoules > 0 && s.BJoules > 0 {
		lines = append(lines, fmt.Sprintf("%s: %s mJ (%s) and %s mJ (%s) a launch, %+.1f %%", s.Shape,
			millijoules(&s.AJoules), c.A.Variant, millijoules(&s.BJoules), c.B.Variant, 100*(s.BJoules/s.AJoules-1)))
	}
	return lines
}

// flushLine writes the two times whose difference is the time with a cold L2.
func flushLine(shape, variant string, p run.RelatedTimes) []string {
	if p.WithFlushUS == nil || p.FlushUS == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s, %s, L2 cold: a flush and a launch %s us, minus the flush alone %s us",
		shape, variant, OrMissing("%.2f", p.WithFlushUS), OrMissing("%.2f", p.FlushUS))}
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
		lines = append(lines, fmt.Sprintf("empty node %s us, included in every time above", Range("%.2f", slices.Min(empty), slices.Max(empty))))
	}
	if len(copies) > 0 && slices.Max(copies) > 1 {
		lines = append(lines, fmt.Sprintf("launches rotate over %s copies of their buffers", Range("%d", slices.Min(copies), slices.Max(copies))))
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
	text := fmt.Sprintf("SM clock %s MHz, memory %s MHz, at most %.0f W and %d C; throttled: %d", Range("%d", m.ClockMHz[0], m.ClockMHz[1]),
		Range("%d", m.MemoryClockMHz[0], m.MemoryClockMHz[1]), m.PowerWatts, m.Celsius, m.Throttled)
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

// Range is a range of values, or one value if both are printed alike.
func Range[T int | float64](format string, low, high T) string {
	a, b := fmt.Sprintf(format, low), fmt.Sprintf(format, high)
	if a == b {
		return a
	}
	return a + " to " + b
}
