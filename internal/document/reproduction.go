package document

import (
	"fmt"
	"strings"

	"attune/internal/run"
)

// Reproduction is whether a run was reproduced: what was compared, and every difference.
func Reproduction(r *run.Reproduction) *Document {
	var fields []Field
	line := func(name, outcome, format string, args ...any) {
		fields = append(fields, Field{Name: name, Outcome: say(outcome), Lines: []Text{say(fmt.Sprintf(format, args...))}})
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
	head := []string{"what", "outcome", "details"}
	section := Section{ID: "reproduction", Title: say("Reproduction"), Label: say(r.Recorded, " repeated")}
	if len(r.Times) > 0 {
		line("time", timeRatio(r), "recorded over repeated; the sessions differ, so it decides nothing")
		section.Blocks = append(section.Blocks, Fields{Head: head, Fields: fields}, reproducedTimes(r))
		fields = nil
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
	section.Blocks = append(section.Blocks, Fields{Head: head, Fields: fields})
	return &Document{Title: say(r.Recorded, " repeated"), Brief: []Text{}, Sections: []Section{section}}
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
func reproducedTimes(r *run.Reproduction) Table {
	t := Table{Indent: 2, Columns: []Column{
		named("shape", Column{}), named("was us", Column{}), named("is us", Column{}), named("was/is", Column{}),
		named("95 % within the sessions", Column{Optional: 1}), named("counted", Column{Bare: true, Keep: true}),
	}}
	for _, times := range r.Times {
		counted := ""
		if times.Benchmark {
			counted = benchmarkWord
		}
		t.Rows = append(t.Rows, []Text{
			say(times.Shape), say(fmt.Sprintf("%.2f", times.RecordedUS)), say(fmt.Sprintf("%.2f", times.RepeatedUS)), say(fmt.Sprintf("%.3fx", times.Ratio.Ratio)),
			say(fmt.Sprintf("%.3f to %.3f", times.Ratio.Low, times.Ratio.High)), say(counted),
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
