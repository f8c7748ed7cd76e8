package document

import (
	"fmt"

	"attune/internal/catalog"
	"attune/internal/run"
)

// Runs is the report on several runs: a table of all, a comparison of two, then each of them. One run
// has the report of RunStudy.Document.
func Runs(studies []*RunStudy) *Document {
	if len(studies) == 1 {
		return studies[0].Document()
	}
	runs := make([]*run.Run, len(studies))
	title := say("Report on ")
	for i, s := range studies {
		runs[i] = s.Run
		if i > 0 {
			title = append(title, say(", ")...)
		}
		title = append(title, runRecord(s.Run.ID).text(s.Run.Variant, "variant"))
	}
	d := &Document{Title: title}
	approximate := Approximate{}
	for _, s := range studies {
		approximate[s.Run.ID] = s.Approximate[s.Run.ID]
	}
	for _, s := range studies {
		from := runRecord(s.Run.ID)
		d.Headline = append(d.Headline, append(say(from.code(s.Run.Variant, "variant"), ", ", verdictSpan(s.Run), ". "), s.timeLine()...))
	}
	if shape := headlineShape(runs); shape != "" {
		d.Sections = append(d.Sections, Section{ID: "overview", Title: say("Overview"), Blocks: historyBlocks(runs, shape, "", approximate)})
	}
	if len(studies) == 2 {
		d.Sections = append(d.Sections, comparisonOf(runs[0], runs[1]))
	}
	for i, s := range studies {
		for _, section := range s.sections(fmt.Sprintf("run-%d-", i+1)) {
			section.Title = say(runRecord(s.Run.ID).text(s.Run.Variant, "variant"), ": ", section.Title)
			d.Sections = append(d.Sections, section)
		}
	}
	return dropEmpty(d)
}

// comparisonOf compares the recorded samples of two runs.
func comparisonOf(a, b *run.Run) Section {
	section := Section{ID: "compare", Title: say("Samples of both")}
	c, _, err := catalog.Compare(a, b, nil, false)
	if err != nil {
		section.Blocks = []Block{say("The runs cannot be compared: ", Span{Text: err.Error(), Output: true}, ".")}
		return section
	}
	if len(c.Shapes) > mostStrips {
		c.Shapes = c.Shapes[:mostStrips]
	}
	section.Blocks = []Block{
		say("The runs were not interleaved: clocks, temperature and GPU may differ between them."),
		Figure{Name: "compare", Plot: ComparisonPlot(c)},
	}
	return section
}
