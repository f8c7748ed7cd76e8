package document

import (
	"fmt"
	"io"
	"strings"

	"attune/internal/run"
	"attune/internal/terminal"
)

// Reproduction writes whether a run was reproduced: what was compared, and every difference.
func Reproduction(w io.Writer, r *run.Reproduction, s terminal.Screen) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s repeated\n", r.Recorded)
	line := func(name, outcome, format string, args ...any) {
		margin := fmt.Sprintf("  %-*s %-13s ", fieldWidth, name, outcome)
		s.Paragraph(out, margin, fmt.Sprintf(format, args...), len(margin)+2)
	}
	if r.Code.Same {
		line("code", "same", "%s", shortHash(r.Code.Repeated))
	} else {
		line("code", "differs", "was %s, is %s", orNone(shortHash(r.Code.Recorded)), orNone(shortHash(r.Code.Repeated)))
	}
	if len(r.Changed) > 0 {
		line("problem", "differs", "%s", strings.Join(r.Changed, "; "))
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
		line("time", timeRatio(r), "recorded over repeated; the sessions differ, so it decides nothing")
		reproducedTimes(r).Write(out, s)
	}
	holds := "yes"
	if !r.Holds {
		holds = "no"
	}
	note := strings.Join(r.Differences, "; ")
	if r.Holds && r.CorrectnessOnly {
		note = "correctness only: the record has times, and this device measures none"
	}
	line("holds", holds, "%s", note)
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
	if o.Unordered > 0 {
		text += fmt.Sprintf("; %d differ, which their unordered sums may", o.Unordered)
	}
	if o.Skipped > 0 {
		text += fmt.Sprintf("; %d were skipped", o.Skipped)
	}
	return text
}

func timeRatio(r *run.Reproduction) string {
	if r.Time == nil {
		return "-"
	}
	return fmt.Sprintf("%.3fx", r.Time.Ratio)
}

// reproducedTimes has the times of both runs, which were not interleaved.
func reproducedTimes(r *run.Reproduction) terminal.Table {
	t := terminal.Table{Indent: 4, Columns: []terminal.Column{
		{Name: "shape"}, {Name: "was us"}, {Name: "is us"}, {Name: "was/is"}, {Name: "95 % within the sessions", Optional: 1}, {Keep: true},
	}}
	for _, times := range r.Times {
		counted := ""
		if times.Benchmark {
			counted = benchmarkWord
		}
		t.Rows = append(t.Rows, []string{
			times.Shape, fmt.Sprintf("%.2f", times.RecordedUS), fmt.Sprintf("%.2f", times.RepeatedUS), fmt.Sprintf("%.3fx", times.Ratio.Ratio),
			fmt.Sprintf("%.3f to %.3f", times.Ratio.Low, times.Ratio.High), counted,
		})
	}
	return t
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
