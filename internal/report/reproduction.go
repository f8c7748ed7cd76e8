package report

import (
	"fmt"
	"io"
	"strings"

	"attune/internal/run"
)

// Reproduction writes whether a run was reproduced: what was compared, and every difference.
func Reproduction(w io.Writer, r *run.Reproduction) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s repeated\n", r.Recorded)
	line := func(name, outcome, format string, args ...any) {
		fmt.Fprintf(out, "  %-12s %-13s %s\n", name, outcome, fmt.Sprintf(format, args...))
	}
	if r.Code.Same {
		line("code", "same", "%s", shortHash(r.Code.Repeated))
	} else {
		line("code", "differs", "was %s, is %s", orNone(shortHash(r.Code.Recorded)), orNone(shortHash(r.Code.Repeated)))
	}
	line("outputs", outputsWord(r.Outputs), "%s", outputsText(r.Outputs))
	for _, g := range append(r.Gates, r.Verdict) {
		switch {
		case !g.Compared:
			line(g.Name, "not compared", "was %s; this device measures no time", g.Recorded)
		case g.Recorded == g.Repeated:
			line(g.Name, "same", "%s", g.Repeated)
		default:
			line(g.Name, "differs", "was %s, is %s", g.Recorded, g.Repeated)
		}
	}
	if len(r.Times) > 0 {
		timeLines(out, r)
	}
	holds := "yes"
	if !r.Holds {
		holds = "no"
	}
	note := strings.Join(r.Differences, "; ")
	if r.Holds && r.CorrectnessOnly {
		note = "correctness only: the record has times, and this device measures none"
	}
	fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("  %-12s %-13s %s", "holds", holds, note), " "))
	_, err := io.WriteString(w, out.String())
	return err
}

func outputsWord(o run.OutputCheck) string {
	switch {
	case o.Different+o.Missing > 0:
		return "differ"
	case o.Same == 0:
		return "not compared"
	}
	return "same"
}

func outputsText(o run.OutputCheck) string {
	text := fmt.Sprintf("%d of %d bit for bit", o.Same, o.Same+o.Different+o.Missing)
	if o.Same+o.Different+o.Missing == 0 {
		text = "the record has no outputs to compare with"
	}
	if o.Skipped > 0 {
		text += fmt.Sprintf("; %d were skipped", o.Skipped)
	}
	return text
}

// timeLines writes the times of both runs, which were not interleaved.
func timeLines(out *strings.Builder, r *run.Reproduction) {
	ratio := "-"
	if r.Time != nil {
		ratio = fmt.Sprintf("%.3fx", r.Time.Ratio)
	}
	fmt.Fprintf(out, "  %-12s %-13s recorded over repeated; the sessions differ, so it decides nothing\n", "time", ratio)
	var rows [][]string
	for _, t := range r.Times {
		counted := ""
		if t.Benchmark {
			counted = benchmarkWord
		}
		rows = append(rows, []string{
			t.Shape, fmt.Sprintf("%.2f", t.RecordedUS), fmt.Sprintf("%.2f", t.RepeatedUS), fmt.Sprintf("%.3fx", t.Ratio.Ratio),
			fmt.Sprintf("%.3f to %.3f", t.Ratio.Low, t.Ratio.High), counted,
		})
	}
	writeTable(out, "    ", []string{"shape", "was us", "is us", "was/is", "95 % within the sessions", ""}, rows)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
