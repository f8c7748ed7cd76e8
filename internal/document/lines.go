package document

import (
	"fmt"
	"strings"

	"attune/internal/coverage"
	"attune/internal/run"
)

// Unexecuted is the note about source lines that no shape of a run executes. It names the lines of a
// single run, and of several only the variants. It is empty without such lines.
func Unexecuted(runs []*run.Run) []string {
	var names []string
	for _, r := range runs {
		if s := r.Lines; s != nil && len(s.Never)+len(s.Partly)+len(s.Shapes) > 0 {
			names = append(names, r.Variant)
		}
	}
	switch {
	case len(names) == 0:
		return nil
	case len(runs) > 1:
		return []string{"note: no shape executes some lines of " + strings.Join(names, ", ") + "; `attune show ID` names them"}
	}
	texts := lineTexts(runs[0])
	texts[0] = "note: " + names[0] + ": " + texts[0]
	return texts
}

// lineTexts name the lines and conditions that a run has not covered, and the shapes that cover them.
// A run that covers everything has none.
func lineTexts(r *run.Run) []string {
	s := r.Lines
	if s == nil {
		return nil
	}
	shape, shapes := "no shape", "all shapes"
	if r.Simulated != nil { // the GPU has run others, which count no lines
		shape, shapes = "no simulated shape", "all simulated shapes"
	}
	var texts []string
	add := func(what string, ranges []coverage.Range) {
		if len(ranges) > 0 {
			texts = append(texts, what+rangeList(ranges))
		}
	}
	add(shape+" executes ", s.Never)
	add("a part behind a condition is never executed: ", s.Partly)
	add("conditions with one outcome on "+shapes+": ", s.OneWay)
	for _, shape := range s.Shapes {
		add(fmt.Sprintf("`--shapes %s` reaches ", run.ShellWord(shape.Shape)), shape.Lines)
	}
	return texts
}

// rangeList names the first ranges of lines, those of one file together: "a.cu:3, 7-9, b.cuh:4".
func rangeList(ranges []coverage.Range) string {
	const most = 6
	var items []string
	file := ""
	for _, r := range ranges[:min(most, len(ranges))] {
		text := r.String()
		if r.File == file {
			text = strings.TrimPrefix(text, file+":")
		}
		file = r.File
		items = append(items, text)
	}
	if more := len(ranges) - most; more > 0 {
		items = append(items, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(items, ", ")
}
