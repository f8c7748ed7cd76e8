package document

import (
	"fmt"
	"strings"

	"attune/internal/coverage"
	"attune/internal/run"
)

// Unexecuted is the note of a run about source lines that none of its shapes executes. It is empty for
// a run without them, and for one of the quick set, which leaves out shapes.
func Unexecuted(r *run.Run) []string {
	s := r.Lines
	if s == nil || r.Requested.Quick || len(s.Never)+len(s.Partly)+len(s.Shapes) == 0 {
		return nil
	}
	texts := lineTexts(s)
	texts[0] = "note: " + r.Variant + ": " + texts[0]
	return texts
}

// lineTexts are what is not covered of the source, and the shapes that cover it. Nothing is said of a
// run that covers everything.
func lineTexts(s *coverage.Summary) []string {
	if s == nil {
		return nil
	}
	var texts []string
	add := func(what string, ranges []coverage.Range) {
		if len(ranges) > 0 {
			texts = append(texts, what+rangeList(ranges))
		}
	}
	add("no shape executes ", s.Never)
	add("a part behind a condition is never executed: ", s.Partly)
	add("conditions with one outcome on all shapes: ", s.OneWay)
	for _, shape := range s.Shapes {
		add(fmt.Sprintf("`--shapes %s` reaches ", shape.Shape), shape.Lines)
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
