package report

import (
	"fmt"
	"io"
	"strings"

	"attune/internal/run"
)

// Reproduction writes whether a run still holds: what was compared, and every difference.
func Reproduction(w io.Writer, r *run.Reproduction) error {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s done again\n", r.Then)
	line := func(name, outcome, format string, args ...any) {
		fmt.Fprintf(out, "  %-12s %-13s %s\n", name, outcome, fmt.Sprintf(format, args...))
	}
	if r.Code.Same {
		line("code", "same", "%s", shortHash(r.Code.Now))
	} else {
		line("code", "another", "%s then, %s now", orNone(shortHash(r.Code.Then)), orNone(shortHash(r.Code.Now)))
	}
	line("answers", answersWord(r.Outputs), "%s", answersText(r.Outputs))
	for _, g := range append(r.Gates, r.Verdict) {
		switch {
		case !g.Compared:
			line(g.Name, "not compared", "%s then; this device takes no times", g.Then)
		case g.Then == g.Now:
			line(g.Name, "same", "%s", g.Now)
		default:
			line(g.Name, "another", "%s then, %s now", g.Then, g.Now)
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
		note = "of correctness only: times were taken then, and this device takes none"
	}
	fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("  %-12s %-13s %s", "holds", holds, note), " "))
	_, err := io.WriteString(w, out.String())
	return err
}

func answersWord(o run.OutputCheck) string {
	switch {
	case o.Different+o.Missing > 0:
		return "others"
	case o.Same == 0:
		return "not compared"
	}
	return "same"
}

func answersText(o run.OutputCheck) string {
	text := fmt.Sprintf("%d of %d bit for bit", o.Same, o.Same+o.Different+o.Missing)
	if o.Same+o.Different+o.Missing == 0 {
		text = "the record has no answers to compare with"
	}
	if o.LeftOut > 0 {
		text += fmt.Sprintf("; %d were left out", o.LeftOut)
	}
	return text
}

// timeLines writes the times of the two sessions, and what such a comparison is worth.
func timeLines(out *strings.Builder, r *run.Reproduction) {
	ratio := "-"
	if r.Time != nil {
		ratio = fmt.Sprintf("%.3fx", r.Time.Ratio)
	}
	fmt.Fprintf(out, "  %-12s %-13s then over now; the two were taken in different sessions, so it decides nothing\n", "time", ratio)
	var rows [][]string
	for _, t := range r.Times {
		judged := ""
		if t.Judged {
			judged = "judged"
		}
		rows = append(rows, []string{
			t.Shape, fmt.Sprintf("%.2f", t.ThenUS), fmt.Sprintf("%.2f", t.NowUS), fmt.Sprintf("%.3fx", t.Ratio.Ratio),
			fmt.Sprintf("%.3f to %.3f", t.Ratio.Low, t.Ratio.High), judged,
		})
	}
	writeTable(out, "    ", []string{"shape", "then us", "now us", "then/now", "95 % within the sessions", ""}, rows)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
