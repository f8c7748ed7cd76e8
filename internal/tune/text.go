package tune

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"attune/internal/terminal"
)

// Describe writes what a replay searches: one paragraph.
func (r *Replay) Describe(w io.Writer, s terminal.Screen) {
	what := r.Recording.Kernel
	if what == "" {
		what = "recorded results"
	}
	if r.Recording.Device != "" {
		what += " on " + r.Recording.Device
	}
	variants, failing := r.Count()
	text := fmt.Sprintf("%s: %s, %d of which fail; the best %s is %s, and %s within 5 %% of it. ",
		what, counted(variants, "variant"), failing, r.Recording.Objective, r.format(r.Optimum), are(r.Near))
	if median := r.RandomMedian(); median > 0 {
		text += fmt.Sprintf("A random search needs %s in the median (computed).", counted(median, "evaluation"))
	} else {
		text += "The space has too many variants to count, so that the median of a random search is not known."
	}
	s.Paragraph(w, "", text, 0)
}

func are(n int) string {
	if n == 1 {
		return "1 variant is"
	}
	return fmt.Sprintf("%d variants are", n)
}

func areResults(n int) string {
	if n == 1 {
		return "is 1 such result"
	}
	return fmt.Sprintf("are %d such results", n)
}

// format formats a value of the objective with its unit.
func (r *Replay) format(value float64) string {
	return strings.TrimSpace(strconv.FormatFloat(value, 'g', 5, 64) + " " + r.Unit())
}

// Unit is the unit of the objective: milliseconds, or empty if the recording does not say.
func (r *Replay) Unit() string {
	if r.Recording.Objective == "time" {
		return "ms"
	}
	return ""
}

// Notes are remarks about how well the recording fits the space.
func (r *Replay) Notes() []string {
	var notes []string
	if r.Recording.Truncated {
		notes = append(notes, fmt.Sprintf("the recording ends in the middle; its %d complete results are used", len(r.Recording.Entries)))
	}
	switch n := r.Recording.Repeated; {
	case n == 1:
		notes = append(notes, "1 recorded result is of a variant that has a later one; the last one counts")
	case n > 1:
		notes = append(notes, fmt.Sprintf("%d recorded results are of variants that have a later one; the last one counts", n))
	}
	if n := r.Recording.Impossible; n > 0 {
		notes = append(notes, fmt.Sprintf("a recorded %s of zero or below counts as failed; there %s", r.Recording.Objective, areResults(n)))
	}
	switch {
	case r.Missing < 0:
		notes = append(notes, "the space has too many variants to count; those that are not in the recording count as failed")
	case r.Missing == 1:
		notes = append(notes, "1 allowed variant is not in the recording; it counts as failed")
	case r.Missing > 0:
		notes = append(notes, fmt.Sprintf("%d allowed variants are not in the recording; they count as failed", r.Missing))
	}
	switch {
	case r.Outside == 1:
		notes = append(notes, "1 recorded result is not in the space; it is left out")
	case r.Outside > 1:
		notes = append(notes, fmt.Sprintf("%d recorded results are not in the space; they are left out", r.Outside))
	}
	return notes
}

// WriteSummaries writes a table of strategies.
func (r *Replay) WriteSummaries(w io.Writer, s terminal.Screen, all []*Summary) {
	t := terminal.Table{Columns: []terminal.Column{
		{Name: "strategy"},
		{Name: "in flight", Keep: true},
		{Name: "median evaluations", Keep: true},
		{Name: "10 %", Keep: true},
		{Name: "90 %", Keep: true},
		{Name: "of random", Keep: true},
		{Name: "success", Keep: true},
		{Name: "recorded time", Keep: true, Optional: 1},
	}}
	for _, one := range all {
		ratio := "-"
		if random := r.RandomMedian(); one.Median != nil && random > 0 {
			ratio = fmt.Sprintf("%.2f", *one.Median/float64(random))
		}
		t.Rows = append(t.Rows, []string{
			one.Strategy, strconv.Itoa(one.InFlight), one.count(one.Median), one.count(one.P10), one.count(one.P90), ratio,
			fmt.Sprintf("%.0f %%", math.Floor(100*one.SuccessRate)), duration(one.Seconds),
		})
	}
	if !slices.ContainsFunc(all, func(one *Summary) bool { return one.InFlight > 1 }) {
		t.Columns = slices.Delete(t.Columns, 1, 2)
		for i := range t.Rows {
			t.Rows[i] = slices.Delete(t.Rows[i], 1, 2)
		}
	}
	t.Write(w, s)
	if len(all) > 0 {
		s.Paragraph(w, "", fmt.Sprintf("Evaluations until a variant within 5 %% of the best: %d repeats, each of at most %d evaluations.",
			all[0].Repeats, all[0].Budget), 0)
	}
}

// count formats a number of evaluations; one that is over the budget is not known.
func (s *Summary) count(n *float64) string {
	if n == nil {
		return fmt.Sprintf("> %d", s.Budget)
	}
	return strconv.FormatFloat(math.Round(*n), 'f', 0, 64)
}

func duration(seconds *float64) string {
	switch {
	case seconds == nil:
		return "-"
	case *seconds < 120:
		return fmt.Sprintf("%.1f s", *seconds)
	}
	return fmt.Sprintf("%.0f min", *seconds/60)
}

// WriteBest writes the result of one search.
func (r *Replay) WriteBest(w io.Writer, s terminal.Screen, search *Search) {
	best, ok := search.Best()
	n := len(search.Evaluations())
	if !ok {
		fmt.Fprintf(w, "%s, all of which failed\n", counted(n, "evaluation"))
		return
	}
	value := r.Value(best.Cost)
	s.Paragraph(w, "", fmt.Sprintf("best of %s: %s, %s, at evaluation %d",
		counted(n, "evaluation"), r.formatWithUnit(value), r.distance(value), search.best+1), 2)
	s.Paragraph(w, "  ", strings.TrimSpace(r.Space.Format(best.Point)), 4)
}

// formatWithUnit formats a value of the objective where the text around it does not name it.
func (r *Replay) formatWithUnit(value float64) string {
	switch name := r.Recording.Objective; {
	case r.Unit() != "":
		return r.format(value)
	case strings.Contains(name, "/"): // a rate is its own unit
		return r.format(value) + " " + name
	default:
		return name + " " + r.format(value)
	}
}

// distance says how much worse than the optimum a value is.
func (r *Replay) distance(value float64) string {
	direction := "over"
	if r.Recording.maximises() {
		direction = "below"
	}
	if r.Optimum == 0 {
		return fmt.Sprintf("%s %s the best of the recording", r.format(math.Abs(value)), direction)
	}
	return fmt.Sprintf("%.1f %% %s the best of the recording", 100*math.Abs((value-r.Optimum)/r.Optimum), direction)
}

// counted is a number of things; their name takes an s.
func counted(n int, name string) string {
	if n == 1 {
		return "1 " + name
	}
	return fmt.Sprintf("%d %ss", n, name)
}
